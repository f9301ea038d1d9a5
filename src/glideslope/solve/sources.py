"""Gradient sources of a finite sum: full, minibatch, SAGA and loopless SVRG. They know nothing of the manifold."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from glideslope.engine.gradient import Factored, dense
from glideslope.solve.problem import Problem, RowSum
from glideslope.solve.resume import Resumable

SOURCES = ("full", "minibatch", "saga", "svrg")
SAMPLING = ("iid", "shuffle")
# SAGA's mean gradient is recomputed from its memory after so many passes, so that roundings do not add up.
PASSES_BETWEEN_MEANS = 10


class Source(Resumable):
    """Base of the gradient sources.

    Args:
        problem: The sum.
        batch_size: Terms per step; the last of the fixed batches may have fewer.
        sampling: "iid" draws uniformly with replacement; "shuffle" visits all terms in a new order in every pass.
        seed: Of the draws.
    """

    batches_are_fixed = True
    kept: tuple[str, ...] = ("generator", "terms_used", "_drawn")

    def __init__(self, problem: Problem, batch_size: int, sampling: str, seed: int) -> None:
        self.problem, self.batch_size, self.sampling = problem, batch_size, sampling
        self.generator = torch.Generator().manual_seed(seed)
        self.n_slots = -(-problem.n_terms // batch_size)
        self.terms_used = 0
        self._slots: list[Tensor] = []
        if self.batches_are_fixed:
            self._slots = list(torch.split(self._permutation(problem.n_terms), batch_size))
        self._drawn = torch.empty(0, dtype=torch.int64)

    def start(self, X: Tensor) -> None:
        """Prepare at the first iterate."""

    def renew(self, X: Tensor) -> None:
        """Replace gradients kept of what is no longer f."""

    def gradient(self, X: Tensor) -> Tensor | Factored:
        """An estimate of the gradient at X, without bias for iid sampling."""
        raise NotImplementedError

    def _permutation(self, length: int) -> Tensor:
        return torch.randperm(length, generator=self.generator)

    def _next_slot(self) -> int:
        """The next slot of the sampling, of which many are drawn at a time."""
        if not len(self._drawn):
            iid = self.sampling == "iid"
            drawn = torch.randint(self.n_slots, (1024,), generator=self.generator) if iid else None
            self._drawn = self._permutation(self.n_slots) if drawn is None else drawn
        slot, self._drawn = int(self._drawn[0]), self._drawn[1:]
        return slot

    def _weight(self, slot: int) -> float:
        """S N_s / N: what makes a uniformly drawn one of S slots with N_s terms an estimate without bias."""
        return self.n_slots * len(self._slots[slot]) / self.problem.n_terms


class Full(Source):
    """The gradient of all terms; its value comes with it."""

    batches_are_fixed = False
    last_value: Tensor

    def gradient(self, X: Tensor) -> Tensor:
        """The gradient at X."""
        self.terms_used += self.problem.n_terms
        self.last_value, G = self.problem.value_and_gradient(X)
        return G


class Minibatch(Source):
    """The mean gradient of a batch of terms, eq. (20)."""

    batches_are_fixed = False

    def _next_batch(self) -> Tensor:
        """The terms of the next batch."""
        if self.sampling == "iid":
            return torch.randint(self.problem.n_terms, (self.batch_size,), generator=self.generator)
        if not len(self._drawn):
            self._drawn = self._permutation(self.problem.n_terms)
        index, self._drawn = self._drawn[: self.batch_size], self._drawn[self.batch_size :]
        return index

    def gradient(self, X: Tensor) -> Tensor | Factored:
        """The mean gradient of the next batch."""
        index = self._next_batch()
        self.terms_used += len(index)
        return self.problem.batch_gradient(X, on(X, index))


class SagaSource(Source):
    """Section 3.3: g_s(X) - Φ^s + mean(Φ), the memory Φ started by one pass at the first iterate.

    For terms φ(a_i X) the memory is the N x p derivatives of φ; otherwise one n x p gradient per slot.
    """

    kept = (*Source.kept, "memory", "mean", "_since_mean")

    def start(self, X: Tensor) -> None:
        """Fill the memory at X."""
        problem = self.problem
        self.terms_used += problem.n_terms
        self._since_mean = 0
        if isinstance(problem, RowSum):
            self.memory = torch.empty((problem.n_terms, X.shape[1]), dtype=X.dtype, device=X.device)
            for where, block in problem.rows.blocks():
                self.memory[where] = problem.scores(problem.geometry.product(block.to(X.device), X), where)
            self._recompute_mean(X)
            return
        self.memory = torch.stack([dense(problem.batch_gradient(X, on(X, index))) for index in self._slots])
        self._recompute_mean(X)

    def renew(self, X: Tensor) -> None:
        """Fill a memory of gradients anew; derivatives of φ have no weights of columns and stay."""
        if not isinstance(self.problem, RowSum):
            self.start(X)

    def _recompute_mean(self, X: Tensor) -> None:
        if isinstance(self.problem, RowSum):
            self.mean = torch.zeros_like(X)
            for where, block in self.problem.rows.blocks():
                self.mean.addmm_(block.to(X.device).mH, self.memory[where])
            self.mean /= self.problem.n_terms
        else:
            weights = [self._weight(slot) / self.n_slots for slot in range(self.n_slots)]
            shares = torch.tensor(weights, dtype=X.dtype, device=X.device)
            self.mean = (self.memory * shares.reshape(-1, 1, 1)).sum(0)

    def gradient(self, X: Tensor) -> Tensor:
        """The variance-reduced gradient of the next slot, whose memory becomes its gradient at X."""
        slot = self._next_slot()
        index = on(X, self._slots[slot])
        self.terms_used += len(index)
        self._since_mean += 1
        if self._since_mean > PASSES_BETWEEN_MEANS * self.n_slots:
            self._recompute_mean(X)
            self._since_mean = 1
        problem = self.problem
        if not isinstance(problem, RowSum):
            fresh = dense(problem.batch_gradient(X, index))
            change = fresh - self.memory[slot]
            self.memory[slot] = fresh
            result = torch.add(self.mean, change, alpha=self._weight(slot))
            self.mean.add_(change, alpha=self._weight(slot) / self.n_slots)
            return result
        A, _, fresh = problem.batch_scores(X, index)
        change = A.mH @ (fresh - self.memory.index_select(0, index))
        self.memory.index_copy_(0, index, fresh)
        result = torch.add(self.mean, change, alpha=self.n_slots / problem.n_terms)
        self.mean.add_(change, alpha=1 / problem.n_terms)
        return problem.weigh(result)


class SvrgSource(Source):
    """Loopless SVRG: g_s(X) - g_s(Z) + ∇f(Z), the anchor Z replaced by X with probability 1/S in every step."""

    kept = (*Source.kept, "anchor", "anchor_gradient")

    def start(self, X: Tensor) -> None:
        """Anchor at X: one pass over the data."""
        self.terms_used += self.problem.n_terms
        self.anchor = X.clone()
        self.anchor_gradient = self.problem.gradient(self.anchor).clone()

    def renew(self, X: Tensor) -> None:
        """A new anchor."""
        self.start(X)

    def gradient(self, X: Tensor) -> Tensor:
        """The variance-reduced gradient of the next slot."""
        if float(torch.rand((), generator=self.generator)) * self.n_slots < 1:
            self.start(X)
        slot = self._next_slot()
        index = on(X, self._slots[slot])
        self.terms_used += 2 * len(index)
        problem = self.problem
        if not isinstance(problem, RowSum):
            change = dense(problem.batch_gradient(X, index)) - dense(problem.batch_gradient(self.anchor, index))
            return torch.add(self.anchor_gradient, change, alpha=self._weight(slot))
        A, _, fresh = problem.batch_scores(X, index)
        change = problem.weigh(fresh - problem.scores(problem.geometry.product(A, self.anchor), index))
        return torch.addmm(self.anchor_gradient, A.mH, change, alpha=self.n_slots / problem.n_terms)


def on(X: Tensor, index: Tensor) -> Tensor:
    """An index on the device of X."""
    return index if X.device.type == "cpu" else index.to(X.device)


def make_source(kind: str, problem: Problem, **options: Any) -> Source:
    """The gradient source of a name."""
    kinds: dict[str, type[Source]] = {"full": Full, "minibatch": Minibatch, "saga": SagaSource, "svrg": SvrgSource}
    return kinds[kind](problem, **options)
