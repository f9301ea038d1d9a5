"""ICA, section 4.2 of the paper: the mean of Σ_j log cosh([A X]_j) over orthogonal X."""

import math
from typing import ClassVar

import torch
from benchmark_utils.ica import Task, amari_distance
from benchopt import BaseObjective

import glideslope as gs


class Objective(BaseObjective):
    name = "ica"
    min_benchopt_version = "1.10"
    sampling_strategy = "callback"
    parameters: ClassVar = {"batch_size": [100], "epochs": [20], "max_seconds": [None], "seed": [0]}

    def skip(self, load, missing):
        return missing is not None, missing

    def set_data(self, load, missing):
        self.load = load

    def get_objective(self):
        mixture = self.load(self.seed)
        batch_size = min(self.batch_size, len(mixture.data))
        return {"task": Task(mixture, batch_size, self.epochs, self.max_seconds, self.seed)}

    def evaluate_result(self, X, epoch, seconds, status):
        """The loss from the best known, at X and at its projection, the distances to manifold and sources."""
        mixture = self.load(self.seed)
        found = {"epoch": epoch, "seconds": seconds, "status": status}
        names = ["value", "gap_at_iterate", "distance", "penalty"]
        names += ["amari"] if mixture.mixing is not None else []
        names += ["witness_correlation"] if mixture.witness is not None else []
        if X is None or not bool(torch.isfinite(X).all()):
            return found | dict.fromkeys(names, math.nan)
        problem = gs.problems.ICA(mixture.data)
        values = [
            float(problem.value(gs.project(X))) - mixture.reference,
            float(problem.value(X)) - mixture.reference,
            float(gs.formulas.distance(X)),
            float(gs.formulas.penalty(X)),
        ]
        if mixture.mixing is not None:
            values.append(amari_distance(X, mixture.mixing))
        if mixture.witness is not None:
            both = torch.cat([(mixture.data @ X).mT, mixture.witness.unsqueeze(0)])
            values.append(float(torch.corrcoef(both)[-1, :-1].abs().max()))
        return found | dict(zip(names, values, strict=True))

    def get_one_result(self):
        n = self.load(self.seed).data.shape[1]
        return {"X": torch.eye(n, dtype=torch.float64), "epoch": 0.0, "seconds": 0.0, "status": "running"}
