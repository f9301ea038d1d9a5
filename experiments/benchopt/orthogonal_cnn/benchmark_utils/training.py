"""The training loop that all solvers share; a solver says which optimizer, and may change the model before."""

import copy
import math
import time
from typing import ClassVar, NamedTuple

import torch
from benchopt import BaseSolver
from benchopt.stopping_criterion import NoCriterion
from torch import nn

import glideslope as gs
from benchmark_utils.images import Images
from benchmark_utils.networks import build


class Task(NamedTuple):
    """One training: the same for every solver but for its step size."""

    images: Images
    network: str
    width: int
    batch_size: int
    epochs: float
    milestones: tuple
    weight_decay: float
    max_seconds: float | None
    seed: int

    def model(self):
        """The network with orthonormal kernels, the start of all methods."""
        _, channels, side, _ = self.images.train.shape
        model = build(self.network, channels, side, self.width, self.seed)
        gs.orthogonalize_(model, nn.Conv2d)
        return model

    def step_size_at(self, first, epoch):
        """A tenth after every milestone."""
        return first * 0.1 ** sum(epoch >= milestone for milestone in self.milestones)


class Trainer(BaseSolver):
    """Callback sampling, once before the first epoch and after each; the clock stands still during evaluation."""

    sampling_strategy = "callback"
    stopping_criterion = NoCriterion(strategy="callback")
    parameters: ClassVar = {"step_size": [0.1]}

    def set_objective(self, task):
        self.task = task

    def get_next(self, stop_val):
        return stop_val + 1

    def adapt(self, model):
        """What a method does to the model before training."""
        return model

    def optimizer(self, model, step_size, weight_decay):
        raise NotImplementedError

    def observe(self, callback, model, epoch, seconds, loss, status="running"):
        """Hand a record to Benchopt; False where the run is to end."""
        self.result = {"model": model, "epoch": epoch, "seconds": seconds, "loss": loss, "status": status}
        return callback()

    def get_result(self):
        return self.result

    def run(self, callback):
        task, images = self.task, self.task.images
        model = self.adapt(task.model())
        optimizer = self.optimizer(model, self.step_size, task.weight_decay)
        generator = torch.Generator().manual_seed(task.seed)
        seconds, epoch = 0.0, 0
        self.observe(callback, model, 0.0, 0.0, math.nan)
        while epoch < task.epochs:
            for group in optimizer.param_groups:
                group["lr"] = task.step_size_at(self.step_size, epoch)
            order, total, seen = torch.randperm(len(images.train), generator=generator), 0.0, 0
            model.train()
            for index in order.split(task.batch_size):
                started = time.perf_counter()
                batch = images.augmented(index, generator)
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(batch), images.train_labels[index])
                loss.backward()
                optimizer.step()
                seconds += time.perf_counter() - started
                total, seen = total + loss.item() * len(index), seen + len(index)
                if not math.isfinite(total):
                    self.observe(callback, None, epoch + seen / len(order), seconds, math.nan, "diverged")
                    return
                if task.max_seconds is not None and seconds >= task.max_seconds:
                    self.observe(callback, model, epoch + seen / len(order), seconds, total / seen, "out of time")
                    return
            epoch += 1
            if not self.observe(callback, model, float(epoch), seconds, total / seen):
                return


class Orthogonal(Trainer):
    """An optimizer of glideslope: derived classes give its class and options."""

    kind: ClassVar = gs.LandingSGD
    options: ClassVar = {}

    def optimizer(self, model, step_size, weight_decay):
        return self.kind(gs.param_groups(model), lr=step_size, weight_decay=weight_decay, **self.options)


def projected(model):
    """A copy whose kernels are the nearest orthonormal ones; a parametrized model is orthonormal as it is."""
    if any(hasattr(module, "flat_kernel") for module in model.modules()):
        return model
    model = copy.deepcopy(model)
    gs.orthogonalize_(model, nn.Conv2d)
    return model
