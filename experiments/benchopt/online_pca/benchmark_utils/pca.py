"""Data of the PCA benchmark, made when a run needs them, and the loop around `gs.minimize` that its solvers share."""

import functools
import math
from typing import ClassVar, NamedTuple

import torch
from benchopt import BaseSolver
from benchopt.stopping_criterion import NoCriterion

import glideslope as gs


class Samples(NamedTuple):
    """Rows of data with what the evaluation needs of them, in float64."""

    data: torch.Tensor
    covariance: torch.Tensor
    optimum: float
    """-½ times the sum of the p largest eigenvalues: f at the solution."""


def with_covariance(data, p):
    n = data.shape[1]
    covariance = torch.zeros(n, n, dtype=torch.float64)
    for block in data.split(1000):
        wide = block.double()
        covariance.addmm_(wide.mT, wide, alpha=1 / len(data))
    optimum = -float(torch.linalg.eigvalsh(covariance)[-p:].sum()) / 2
    return Samples(data, covariance, optimum)


@functools.lru_cache(maxsize=1)
def text_samples(n_samples, n, p, seed, noise=0.1):
    """Rows from N(0, U Uᵀ + 0.1 I) with U uniform on the Stiefel manifold: the model of the text, float32."""
    generator = torch.Generator().manual_seed(seed)
    U = gs.random_stiefel(n, p, generator=generator)
    data = torch.randn(n_samples, p, generator=generator) @ U.mT
    for block in data.split(1000):
        block.add_(torch.randn(block.shape, generator=generator), alpha=noise**0.5)
    return with_covariance(data, p)


@functools.lru_cache(maxsize=1)
def published_samples(n_samples, n, p, seed, noise=0.1):
    """U diag(linspace(1, ½)) Vᵀ with standardised columns, and noise: the model of the authors' published runs."""
    generator = torch.Generator().manual_seed(seed)
    U = gs.random_stiefel(n_samples, p, generator=generator)
    V = gs.random_stiefel(n, p, generator=generator)
    data = (U * torch.linspace(1, 0.5, p)) @ V.mT
    data.sub_(data.mean(0)).div_(data.std(0))
    for block in data.split(1000):
        block.add_(torch.randn(block.shape, generator=generator), alpha=noise)
    return with_covariance(data, p)


class Task(NamedTuple):
    """One run: the same for every solver but for its step size."""

    samples: Samples
    X0: torch.Tensor
    batch_size: int
    epochs: float
    milestones: tuple
    max_seconds: float | None
    records_per_epoch: int
    seed: int

    @property
    def steps_per_epoch(self):
        return math.ceil(len(self.samples.data) / self.batch_size)

    @property
    def record_every(self):
        return math.ceil(self.steps_per_epoch / self.records_per_epoch)

    def step_size_at(self, first):
        """The step size of step k: `first`, a tenth of it after every milestone, in epochs."""
        return lambda k: first * 0.1 ** sum(k >= epoch * self.steps_per_epoch for epoch in self.milestones)


class Observed(gs.problems.PCA):
    """PCA whose evaluation for the history of `minimize` only notes the iterate; the objective evaluates it.

    With minibatches `minimize` steps by `batch_gradient`, which is the library's. It calls `value_and_gradient` for
    its history alone, outside its clock: a pass over the data that is not needed here.
    """

    def value_and_gradient(self, X):
        self.iterate = X
        # Not zero along the manifold, which would mean the end.
        return X.new_zeros(()), torch.arange(X.numel(), dtype=X.dtype).view(X.shape)


class Solver(BaseSolver):
    """Callback sampling: the clock of a record is the solver's own and stands still during evaluation."""

    sampling_strategy = "callback"
    stopping_criterion = NoCriterion(strategy="callback")
    parameters: ClassVar = {"step_size": [0.1]}

    def set_objective(self, task):
        self.task = task

    def get_next(self, stop_val):
        return stop_val + 1

    def observe(self, callback, X, epoch, seconds, status="running"):
        """Hand a record to Benchopt; False where the run is to end."""
        self.result = {"X": X, "epoch": epoch, "seconds": seconds, "status": status}
        return callback()

    def get_result(self):
        return self.result


class Minimizer(Solver):
    """`gs.minimize` with minibatches: derived classes give its options."""

    options: ClassVar = {}

    def run(self, callback):
        task = self.task
        problem = Observed(task.samples.data, task.X0.shape[1])
        solution = gs.minimize(
            problem,
            task.X0,
            gradient="minibatch",
            sampling="shuffle",
            batch_size=task.batch_size,
            step_size=task.step_size_at(self.step_size),
            max_epochs=task.epochs,
            max_seconds=task.max_seconds,
            record_every=task.record_every,
            seed=task.seed,
            tolerance=0,
            callback=lambda record: not self.observe(callback, problem.iterate, record.passes, record.seconds),
            **self.options,
        )
        if solution.stop_reason == "interrupted":
            raise KeyboardInterrupt  # which `minimize` turned into a result: Benchopt would keep it as finished
        if solution.stop_reason == "diverged":
            self.observe(callback, None, solution.n_passes, solution.seconds, "diverged")
