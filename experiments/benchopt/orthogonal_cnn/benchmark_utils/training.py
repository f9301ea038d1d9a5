"""The training loop that all solvers share; a solver says which optimizer, and may change the model before."""

import contextlib
import math
import time
from typing import ClassVar, NamedTuple

import torch
from benchopt import BaseSolver
from benchopt.stopping_criterion import NoCriterion
from torch import nn

import glideslope as gs
from benchmark_utils.evaluation import measure
from benchmark_utils.images import Images
from benchmark_utils.networks import build
from benchmark_utils.run_checkpoint import RunCheckpoint


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
    device: str = "cpu"
    precision: str = "float32"
    compiled: bool = False

    def model(self):
        """The network with orthonormal kernels, the start of all methods; on the CPU, so that it is the same on all."""
        _, channels, side, _ = self.images.train.shape
        model = build(self.network, channels, side, self.width, self.seed)
        gs.orthogonalize_(model, nn.Conv2d)
        return model

    def step_size_at(self, first, epoch):
        """A tenth after every milestone."""
        return first * 0.1 ** sum(epoch >= milestone for milestone in self.milestones)

    def identity(self):
        """What decides the run, as values of JSON."""
        data = {"data": self.images.note, "n_train": len(self.images.train), "n_test": len(self.images.test)}
        return {**self._asdict(), "images": data}


class Trainer(BaseSolver):
    """Callback sampling, once before the first epoch and after each; the clock stands still during evaluation.

    After every epoch a checkpoint is written, see RunCheckpoint. A run that finds one hands over the records in it and
    goes on behind them.
    """

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

    def get_result(self):
        return {"record": self.record}

    def run(self, callback):
        task = self.task
        images = task.images.to(task.device)
        model = self.adapt(task.model()).to(task.device)
        optimizer = self.optimizer(model, self.step_size, task.weight_decay)
        generator = torch.Generator().manual_seed(task.seed)
        checkpoint = RunCheckpoint({"method": self.name, "step_size": self.step_size, **task.identity()})
        kept = checkpoint.read()
        if kept is None:
            kept = {"records": [record_of(model, images, 0.0, 0.0, math.nan, "running")], "finished": False}
        elif not kept["finished"]:
            model.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
            generator.set_state(kept["generator"])
        network = torch.compile(model, dynamic=False) if task.compiled else model
        records, finished = kept["records"], kept["finished"]
        for record in records:
            self.hand_over(callback, record)
        while not finished:
            epoch, seconds = int(records[-1]["epoch"]), records[-1]["seconds"]
            for group in optimizer.param_groups:
                group["lr"] = task.step_size_at(self.step_size, epoch)
            left = math.inf if task.max_seconds is None else task.max_seconds - seconds
            draws = images.draw(generator)
            took, loss, share, status = train_epoch(
                network, optimizer, images, draws, task.batch_size, left, task.precision
            )
            finished = status != "running" or epoch + 1 >= task.epochs
            found = None if status == "diverged" else model
            records.append(record_of(found, images, epoch + share, seconds + took, loss, status, last=finished))
            state = {"records": records, "finished": finished}
            if not finished:
                state |= {
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "generator": generator.get_state(),
                }
            checkpoint.write(state)
            self.hand_over(callback, records[-1])

    def step_seconds(self):
        """Train without end, and yield the seconds of every step once the device has done it."""
        task = self.task
        images = task.images.to(task.device)
        model = self.adapt(task.model()).to(task.device)
        optimizer = self.optimizer(model, self.step_size, task.weight_decay)
        draws = images.draw(torch.Generator().manual_seed(task.seed))
        model.train()
        while True:
            started = time.perf_counter()
            for batch, labels in images.batches(draws, task.batch_size):
                float(train_step(model, optimizer, batch, labels, task.precision))
                yield time.perf_counter() - started
                started = time.perf_counter()

    def hand_over(self, callback, record):
        """Give a record to Benchopt."""
        self.record = record
        callback()


def record_of(model, images, epoch, seconds, loss, status, *, last=False):
    """What is recorded after an epoch, or before the first; with projected kernels at the end of a run only."""
    found = {"epoch": float(epoch), "seconds": seconds, "status": status, "train_loss": loss, "data": images.note}
    return found | measure(model, images, with_projected=last)


def train_epoch(model, optimizer, images, draws, batch_size, seconds, precision="float32"):
    """Train for one pass over the images, or for some seconds: time, mean loss, share of the pass, how it ended."""
    started = time.perf_counter()
    total, seen, status = train_steps(model, optimizer, images, draws, batch_size, started + seconds, precision)
    mean = float(total) / seen  # here the host waits for a device, once
    took = time.perf_counter() - started
    if not math.isfinite(mean):
        mean, status = math.nan, "diverged"
    return took, mean, seen / len(images.train), status


def train_steps(model, optimizer, images, draws, batch_size, deadline, precision="float32"):
    """The steps of a pass until the deadline: sum of the losses, number of images, "running" or "out of time".

    No step waits for a value on a device. On the CPU the steps end where the loss is no longer finite.
    """
    model.train()
    device = images.train.device
    total, seen = torch.zeros((), device=device), 0
    for batch, labels in images.batches(draws, batch_size):
        total += train_step(model, optimizer, batch, labels, precision) * len(labels)
        seen += len(labels)
        if device.type == "cpu" and not math.isfinite(float(total)):
            break
        if time.perf_counter() >= deadline:
            return total, seen, "out of time"
    return total, seen, "running"


def train_step(model, optimizer, batch, labels, precision="float32"):
    """One step on a batch; the loss before it, on the device.

    Parameters, their gradients, the loss and the step are float32. With the precision "bfloat16" autocast computes the
    convolutions and the linear layer in it, forward and backward.
    """
    optimizer.zero_grad()
    with autocast(batch.device.type, precision):
        scores = model(batch)
    loss = nn.functional.cross_entropy(scores.float(), labels)
    loss.backward()
    optimizer.step()
    return loss.detach()


def autocast(device, precision):
    """The context in which a network computes its scores."""
    if precision == "float32":
        return contextlib.nullcontext()
    return torch.autocast(device, getattr(torch, precision))


class Orthogonal(Trainer):
    """An optimizer of glideslope: derived classes give its class and options."""

    kind: ClassVar = gs.LandingSGD
    options: ClassVar = {}

    def optimizer(self, model, step_size, weight_decay):
        return self.kind(gs.param_groups(model), lr=step_size, weight_decay=weight_decay, **self.options)
