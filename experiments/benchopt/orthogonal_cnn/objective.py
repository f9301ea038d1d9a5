"""Networks with orthogonal convolutions, section 4.3 of the paper: test accuracy and distance to the constraint."""

import math
from typing import ClassVar

from benchmark_utils.training import Task, record_of
from benchopt import BaseObjective


class Objective(BaseObjective):
    name = "orthogonal-cnn"
    min_benchopt_version = "1.10"
    sampling_strategy = "callback"
    parameters: ClassVar = {
        "network": ["resnet18"],
        "width": [8],
        "batch_size": [128],
        "epochs": [3],
        "milestones": [(1, 2)],
        "weight_decay": [5e-4],
        "max_seconds": [None],
        "seed": [0],
        "held_out": [False],
        "n_train": [None],
        "device": ["cpu"],
        "precision": ["float32"],
        "compiled": [False],
    }
    test_config: ClassVar = {"dataset": {"name": "digits"}}

    def set_data(self, load):
        self.load = load

    def get_objective(self):
        images = self.load()
        images = images.held_out() if self.held_out else images
        task = Task(
            images=images if self.n_train is None else images.first(self.n_train),
            network=self.network,
            width=self.width,
            batch_size=self.batch_size,
            epochs=self.epochs,
            milestones=tuple(self.milestones),
            weight_decay=self.weight_decay,
            max_seconds=self.max_seconds,
            seed=self.seed,
            device=self.device,
            precision=self.precision,
            compiled=self.compiled,
        )
        return {"task": task}

    def evaluate_result(self, record):
        """The record as it is: a solver measures, and keeps what it measured in its checkpoint."""
        return dict(record)

    def get_one_result(self):
        task = self.get_objective()["task"]
        return {"record": record_of(task.model(), task.images, 0.0, 0.0, math.nan, "running")}
