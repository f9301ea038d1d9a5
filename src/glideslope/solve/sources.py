"""Gradient sources of a finite sum: full, minibatch, SAGA and loopless SVRG.

They ask a problem for Euclidean gradients of terms and combine them; nothing here depends on X being orthonormal.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from glideslope.engine.gradient import Factored, dense
from glideslope.solve.checkpoint import Resumable
from glideslope.solve.problem import Problem, RowSum
from glideslope.variance.saga_and_svrg import mean_of_memory_, update_mean_, variance_reduced

SOURCES = ("full", "minibatch", "saga", "svrg")
SAMPLING = ("iid", "shuffle")
# Passes after which SAGA's mean gradient is recomputed from its memory, so that rounding does not add up.
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
            if self.sampling == "iid":
                self._drawn = torch.randint(self.n_slots, (1024,), generator=self.generator)
            else:
                self._drawn = self._permutation(self.n_slots)
        slot, self._drawn = int(self._drawn[0]), self._drawn[1:]
        return slot

    def _share(self, slot: int) -> float:
        """N_s / N, the share of a slot of all terms."""
        return len(self._slots[slot]) / self.problem.n_terms


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
        return self.problem.batch_gradient(X, index.to(X.device))


class SagaSource(Source):
    """Section 3.3: `variance_reduced` with a memory Φ of every slot, started by one pass at the first iterate.

    For terms φ(a_i X) the memory is the N x p derivatives of φ; otherwise one n x p gradient per slot.
    """

    kept = (*Source.kept, "memory", "mean", "_since_mean")

    def start(self, X: Tensor) -> None:
        """Fill the memory at X."""
        problem = self.problem
        self.terms_used += problem.n_terms
        if isinstance(problem, RowSum):
            self.memory = torch.empty((problem.n_terms, X.shape[1]), dtype=X.dtype, device=X.device)
            for where, _, Y in problem.products(X):
                self.memory[where] = problem.scores(Y, where)
        else:
            self.memory = torch.stack([dense(problem.batch_gradient(X, index.to(X.device))) for index in self._slots])
        self.mean = torch.empty_like(X)
        self._recompute_mean()

    def renew(self, X: Tensor) -> None:
        """Fill a memory of gradients anew; derivatives of φ have no weights of columns and stay."""
        if not isinstance(self.problem, RowSum):
            self.start(X)

    def _recompute_mean(self) -> None:
        self._since_mean = 0
        if isinstance(self.problem, RowSum):
            rows, share = self.problem.rows.blocks(), 1 / self.problem.n_terms
            factors = ((block.to(self.mean.device), self.memory[where]) for where, block in rows)
            mean_of_memory_(self.mean, ((share, both) for both in factors))
        else:
            mean_of_memory_(self.mean, ((self._share(slot), self.memory[slot]) for slot in range(self.n_slots)))

    def gradient(self, X: Tensor) -> Tensor:
        """The variance-reduced gradient of the next slot, whose memory becomes its gradient at X."""
        slot = self._next_slot()
        self.terms_used += len(self._slots[slot])
        if self._since_mean >= PASSES_BETWEEN_MEANS * self.n_slots:
            self._recompute_mean()
        self._since_mean += 1
        change, share = self._remember(X, slot)
        estimate = variance_reduced(self.mean, change, weight=self.n_slots * share)
        update_mean_(self.mean, change, share=share)
        return self.problem.weigh(estimate) if isinstance(self.problem, RowSum) else estimate

    def _remember(self, X: Tensor, slot: int) -> tuple[Tensor, float]:
        """Replace the memory of a slot; by how much its gradient changes, and its share in the mean.

        Of terms φ(a_i X) it is the sum of their gradients, and the share is that of one term.
        """
        problem, index = self.problem, self._slots[slot].to(X.device)
        if isinstance(problem, RowSum):
            A, _, fresh = problem.batch_scores(X, index)
            change = A.mH @ (fresh - self.memory.index_select(0, index))
            self.memory.index_copy_(0, index, fresh)
            return change, 1 / problem.n_terms
        fresh = dense(problem.batch_gradient(X, index))
        change = fresh - self.memory[slot]
        self.memory[slot] = fresh
        return change, self._share(slot)


class SvrgSource(Source):
    """Loopless SVRG: `variance_reduced` with an anchor Z, which X replaces with probability 1/S in every step."""

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
        index = self._slots[slot].to(X.device)
        self.terms_used += 2 * len(index)
        problem, share = self.problem, self._share(slot)
        if isinstance(problem, RowSum):
            A, _, fresh = problem.batch_scores(X, index)
            at_anchor = problem.scores(problem.product(A, self.anchor), index)
            change, share = A.mH @ problem.weigh(fresh - at_anchor), 1 / problem.n_terms
        else:
            change = dense(problem.batch_gradient(X, index)) - dense(problem.batch_gradient(self.anchor, index))
        return variance_reduced(self.anchor_gradient, change, weight=self.n_slots * share, out=change)


def make_source(kind: str, problem: Problem, **options: Any) -> Source:
    """The gradient source of a name."""
    kinds: dict[str, type[Source]] = {"full": Full, "minibatch": Minibatch, "saga": SagaSource, "svrg": SvrgSource}
    return kinds[kind](problem, **options)
