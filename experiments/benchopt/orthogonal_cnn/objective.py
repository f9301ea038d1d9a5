"""Networks with orthogonal convolutions, section 4.3 of the paper: test accuracy and distance to the constraint."""

import math
from typing import ClassVar

import torch
from benchmark_utils.networks import kernels, tall
from benchmark_utils.training import Task, projected
from benchopt import BaseObjective

import glideslope as gs


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
    }
    test_config: ClassVar = {"dataset": {"name": "digits"}}

    def set_data(self, load):
        self.load = load

    def images(self):
        images = self.load()
        return images.held_out() if self.held_out else images

    def get_objective(self):
        task = Task(
            images=self.images(),
            network=self.network,
            width=self.width,
            batch_size=self.batch_size,
            epochs=self.epochs,
            milestones=tuple(self.milestones),
            weight_decay=self.weight_decay,
            max_seconds=self.max_seconds,
            seed=self.seed,
        )
        return {"task": task}

    @torch.no_grad()
    def evaluate_result(self, model, epoch, seconds, loss, status):
        """Error rates as trained and with projected kernels, and the sum of N over all convolutions.

        Also the largest ‖XᵀX - I‖ of any layer, and the loss over the last epoch of training.
        """
        images = self.images()
        found = {"epoch": epoch, "seconds": seconds, "status": status, "train_loss": loss, "data": images.note}
        names = ("value", "accuracy", "accuracy_projected", "penalty", "distance")
        if model is None:
            return found | dict.fromkeys(names, math.nan)
        matrices = [tall(weight).double() for weight in kernels(model)]
        accuracy = accuracy_of(model, images)
        values = (
            1 - accuracy,
            accuracy,
            accuracy_of(projected(model), images),
            sum(float(gs.formulas.penalty(X)) for X in matrices),
            max(float(gs.formulas.distance(X)) for X in matrices),
        )
        return found | dict(zip(names, values, strict=True))

    def get_one_result(self):
        model = self.get_objective()["task"].model()
        return {"model": model, "epoch": 0.0, "seconds": 0.0, "loss": 0.0, "status": "running"}


def accuracy_of(model, images):
    model.eval()
    right = sum(
        int((model(batch).argmax(1) == labels).sum())
        for batch, labels in zip(images.test.split(500), images.test_labels.split(500), strict=True)
    )
    return right / len(images.test)
