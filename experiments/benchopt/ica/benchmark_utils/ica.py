"""Data of the ICA benchmark, its measures, and the loop around `gs.minimize` that its solvers share."""

import functools
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from benchopt import BaseSolver
from benchopt.stopping_criterion import NoCriterion

import glideslope as gs

BAND = (1.0, 40.0)  # Hz, of the EEG


class Mixture(NamedTuple):
    """Rows of data, and what is known of the sources: their mixing matrix, or a signal that one of them should be."""

    data: torch.Tensor
    mixing: torch.Tensor | None
    witness: torch.Tensor | None
    reference: float
    """f at the best point known."""


def with_reference(data, start, *, mixing=None, witness=None):
    """The loss is measured from the minimum that the automatic search finds from the best start known."""
    problem = gs.problems.ICA(data)
    solution = gs.minimize(problem, start, tolerance=1e-10, max_epochs=2000)
    if solution.stop_reason == "interrupted":
        raise KeyboardInterrupt
    return Mixture(data, mixing, witness, solution.value)


@functools.lru_cache(maxsize=16)
def text_mixture(n_samples, n, seed):
    """A = S Bᵀ with Laplace sources of variance 1 and B uniform on the orthogonal group, float64."""
    rng = np.random.default_rng(seed)
    sources = torch.from_numpy(rng.laplace(scale=0.5**0.5, size=(n_samples, n)))
    generator = torch.Generator().manual_seed(seed)
    mixing = gs.random_stiefel(n, n, generator=generator, dtype=torch.float64)
    return with_reference(sources @ mixing.mT, mixing, mixing=mixing)


@functools.lru_cache(maxsize=16)
def published_mixture(n_samples, n, seed):
    """Laplace sources, a Gaussian mixing matrix, then whitening: the model of the authors' published runs."""
    rng = np.random.default_rng(seed)
    sources = torch.from_numpy(rng.laplace(size=(n_samples, n)))
    mixed = sources @ torch.from_numpy(rng.standard_normal((n, n))).mT
    mixed -= mixed.mean(0)
    values, vectors = torch.linalg.eigh(mixed.mT @ mixed / n_samples)
    data = mixed @ (vectors / values.sqrt())
    mixing = torch.linalg.lstsq(sources, data).solution.mT
    return with_reference(data, gs.project(mixing), mixing=mixing)


@functools.lru_cache(maxsize=1)
def eeg_mixture(path, n):
    """The first n principal components of an EEG in the band of 1 to 40 Hz, white; its EOG is the witness."""
    with np.load(path) as file:
        eeg, eog = file["eeg_uV"].astype(np.float64), file["eog_uV"].astype(np.float64)
        rate = float(file["sfreq"]) if "sfreq" in file else 600.0
    eeg, eog = (torch.from_numpy(band_passed(signal, rate)) for signal in (eeg, eog))
    values, vectors = torch.linalg.eigh(eeg @ eeg.mT / eeg.shape[1])
    data = eeg.mT @ (vectors[:, -n:] / values[-n:].sqrt())
    return with_reference(data.contiguous(), torch.eye(n, dtype=torch.float64), witness=eog[0])


def band_passed(signal, rate):
    """The part of a signal, one row per channel, within the band."""
    spectrum = np.fft.rfft(signal - signal.mean(1, keepdims=True), axis=1)
    frequency = np.fft.rfftfreq(signal.shape[1], 1 / rate)
    spectrum[:, (frequency < BAND[0]) | (frequency > BAND[1])] = 0
    return np.fft.irfft(spectrum, signal.shape[1], axis=1)


def missing(path):
    """Why an EEG cannot be read, with what to do; None if it can."""
    if not path:
        return "no EEG given: --eeg FILE.npz, with eeg_uV (channels x samples) and eog_uV (1 x samples) at 600 Hz"
    if not Path(path).is_file():
        return f"there is no file {path}: put an npz with eeg_uV and eog_uV there, or give its place by --eeg"
    return None


def amari_distance(X, mixing):
    """How far Xᵀ B is from a scaled permutation, from 0 to 1: the mean over rows and columns of Σ|.|/max|.| - 1."""
    P = (X.mT @ mixing).abs()
    rows = (P.sum(1) / P.amax(1) - 1).sum()
    columns = (P.sum(0) / P.amax(0) - 1).sum()
    n = len(P)
    return float(rows + columns) / (2 * n * (n - 1))


class Task(NamedTuple):
    """One run: the same for every solver but for its step size."""

    mixture: Mixture
    batch_size: int
    epochs: float
    max_seconds: float | None
    seed: int


def not_evaluated(X):
    """Stands for f and its gradient where nobody reads them; not zero along the manifold, which would mean the end."""
    return X.new_zeros(()), torch.arange(X.numel(), dtype=X.dtype).view(X.shape)


class Observed(gs.problems.ICA):
    """ICA that notes where it was evaluated last: for the history of `minimize`, at the iterate.

    Where the method itself never asks for the full gradient, nothing is computed: the objective evaluates.
    """

    def __init__(self, data, *, needs_full_gradient):
        super().__init__(data)
        self.needs_full_gradient = needs_full_gradient

    def value_and_gradient(self, X):
        self.iterate = X
        return super().value_and_gradient(X) if self.needs_full_gradient else not_evaluated(X)


class Solver(BaseSolver):
    """Callback sampling: the clock of a record is the solver's own and stands still during evaluation."""

    sampling_strategy = "callback"
    stopping_criterion = NoCriterion(strategy="callback")

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
    """`gs.minimize` from the identity: derived classes give its options."""

    options: ClassVar = {}
    parameters: ClassVar = {"step_size": [0.1]}

    def run(self, callback):
        task, data = self.task, self.task.mixture.data
        self.next_record = 0
        full = self.options["gradient"] == "full"
        problem = Observed(data, needs_full_gradient=full or self.options["gradient"] == "svrg")

        def record(found):
            last = found.passes >= task.epochs
            if found.step < self.next_record and not last:
                return False
            # Spaced evenly on a logarithmic axis of time, after the first ones.
            self.next_record = max(found.step + 1, round(found.step * 1.2))
            return not self.observe(callback, problem.iterate, found.passes, found.seconds)

        solution = gs.minimize(
            problem,
            torch.eye(data.shape[1], dtype=data.dtype),
            batch_size=None if full else task.batch_size,
            sampling="shuffle",
            step_size=self.step_size,
            max_epochs=task.epochs,
            max_seconds=task.max_seconds,
            record_every=1 if full else 10,
            seed=task.seed,
            tolerance=0,
            callback=record,
            **self.options,
        )
        if solution.stop_reason == "interrupted":
            raise KeyboardInterrupt  # which `minimize` turned into a result: Benchopt would keep it as finished
        if solution.stop_reason == "diverged":
            self.observe(callback, None, solution.n_passes, solution.seconds, "diverged")
