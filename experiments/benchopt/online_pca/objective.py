"""Online PCA, section 4.1 of the paper: f(X) = -1/(2N) ‖A X‖² over matrices with XᵀX = I."""

import math
from typing import ClassVar

import torch
from benchmark_utils.pca import Task
from benchopt import BaseObjective

import glideslope as gs


class Objective(BaseObjective):
    name = "online-pca"
    min_benchopt_version = "1.10"
    sampling_strategy = "callback"
    parameters: ClassVar = {
        "batch_size": [128],
        "epochs": [10],
        "milestones": [(5, 8)],
        "records_per_epoch": [1],
        "max_seconds": [None],
        "seed": [0],
    }

    def set_data(self, load, n_components):
        self.load, self.n_components = load, n_components

    def start(self, n):
        generator = torch.Generator().manual_seed(1000 + self.seed)
        return gs.random_stiefel(n, self.n_components, generator=generator)

    def get_objective(self):
        samples = self.load()
        task = Task(
            samples=samples,
            X0=self.start(samples.data.shape[1]),
            batch_size=min(self.batch_size, len(samples.data)),
            epochs=self.epochs,
            milestones=tuple(self.milestones),
            max_seconds=self.max_seconds,
            records_per_epoch=self.records_per_epoch,
            seed=self.seed,
        )
        return {"task": task}

    def evaluate_result(self, X, epoch, seconds, status):
        """The gap f - f* at X and at its projection, in float64, and the distance to the manifold.

        An infeasible X can have f(X) < f*. The projected value needs no projection: f depends on the span alone, and
        for orthonormal Q = X S^{-1/2}, S = XᵀX, tr(Qᵀ C Q) = tr(S^{-1} Xᵀ C X).
        """
        found = {"epoch": epoch, "seconds": seconds, "status": status}
        if X is None or not bool(torch.isfinite(X).all()):
            return found | {"value": math.nan, "gap_at_iterate": math.nan, "distance": math.nan, "penalty": math.nan}
        samples = self.load()
        wide = X.detach().double()
        moment = wide.mT @ (samples.covariance @ wide)
        spanned = torch.linalg.solve(gs.formulas.gram(wide), moment)
        return found | {
            "value": -float(spanned.trace()) / 2 - samples.optimum,
            "gap_at_iterate": -float(moment.trace()) / 2 - samples.optimum,
            "distance": float(gs.formulas.distance(wide)),
            "penalty": float(gs.formulas.penalty(wide)),
        }

    def get_one_result(self):
        return {"X": self.start(self.load().data.shape[1]), "epoch": 0.0, "seconds": 0.0, "status": "running"}
