"""Norms, products and steps of X in a run, for a matrix in one place and for one whose rows are on many ranks."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor

from glideslope.engine.gradient import Factored, dense
from glideslope.engine.production import take_step
from glideslope.engine.products import Workspace
from glideslope.engine.row_blocks import Summed, riemannian_rows, run_together, step_of_rows
from glideslope.engine.rule import StepOutcome, StepRule
from glideslope.formulas.field import riemannian_gradient
from glideslope.formulas.merit import merit, merit_of
from glideslope.formulas.normal import inverse_square_root
from glideslope.formulas.orthogonality import distance, frobenius, subtract_identity_
from glideslope.ranks.dtensors import Groups
from glideslope.ranks.sums import summed

Result = TypeVar("Result")

# Random rows are drawn in blocks of this size, each from its own seed, and so do not depend on the number of ranks.
ROWS_PER_SEED = 1024
# Rows that are converted to float64 at a time.
BLOCK_ROWS = 1024


def scaled_norm(M: Tensor) -> float:
    """‖M‖_F, also where the squares of its entries overflow or vanish in its type."""
    if M.is_complex():  # as real numbers: torch's norm of complex ones takes a root for each
        M = torch.view_as_real(M.resolve_conj()).flatten(-2)
    norm, limits = float(frobenius(M)), torch.finfo(M.dtype)
    if math.sqrt(limits.tiny) / limits.eps < norm < math.inf or M.numel() == 0:
        return norm
    largest = float(M.abs().max())
    return largest * float(frobenius(M / largest)) if 0 < largest < math.inf else largest


class Whole:
    """A matrix in one place."""

    def gram(self, X: Tensor) -> Tensor:
        """X^H X."""
        return X.mH @ X

    def cross(self, X: Tensor, G: Tensor) -> Tensor:
        """X^H G."""
        return X.mH @ G

    def distance(self, X: Tensor) -> float:
        """‖X^H X - I‖_F."""
        return float(distance(X))

    def tangent(self, X: Tensor, G: Tensor, metric: str) -> Tensor:
        """The Riemannian gradient."""
        return riemannian_gradient(X, G, metric=metric)

    def norm(self, M: Tensor) -> float:
        """‖M‖_F."""
        return scaled_norm(M)

    def inner(self, left: Tensor, right: Tensor) -> float:
        """Re<left, right>."""
        return float(torch.sum((left.conj() * right).real))

    def merit(self, X: Tensor, value: Tensor, G: Tensor, mu: float) -> float:
        """The merit function (16)."""
        return float(merit(X, value, G, mu=mu))

    def product(self, A: Tensor, X: Tensor) -> Tensor:
        """A X."""
        return A @ X

    def any(self, flag: bool) -> bool:
        """Whether a flag is up, here or on any other rank."""
        return flag

    def total(self, terms: Tensor) -> Tensor:
        """The sum over the ranks."""
        return terms

    def held(self, n: int) -> slice:
        """Which of n rows are here."""
        return slice(0, n)

    def step(
        self, X: Tensor, G: Tensor | Factored, step_size: float, rule: StepRule, *, out: Tensor, workspace: Workspace
    ) -> StepOutcome:
        """A landing step, written to `out`, which may be X."""
        return take_step(X, G, step_size, rule, out=out, workspace=workspace)

    def orthonormal(self, X: Tensor) -> Tensor:
        """This rank's rows of the nearest orthonormal matrix, through p x p matrices in float64.

        Rows are converted in blocks: besides the result there is no second matrix of that size.
        """
        X = X.clone()
        wide = torch.complex128 if X.is_complex() else torch.float64
        for _ in range(4):  # two are enough for a matrix of full rank
            gram = X.new_zeros((X.shape[1],) * 2, dtype=wide)
            for block in torch.split(X, BLOCK_ROWS):
                gram.addmm_(block.mH.to(wide), block.to(wide))
            gram = self.total(gram)
            close = float(frobenius(subtract_identity_(gram.clone()))) < 0.5
            if close:
                factor = inverse_square_root(gram)
            else:  # to be repeated, as squaring the condition loses digits
                eigenvalues, vectors = torch.linalg.eigh(gram)
                eigenvalues = eigenvalues.clamp(min=float(eigenvalues[-1]) * torch.finfo(eigenvalues.dtype).eps)
                factor = (vectors * eigenvalues.rsqrt()) @ vectors.mH
            for block in torch.split(X, BLOCK_ROWS):
                block.copy_(block.to(wide) @ factor)
            if close:
                break
        return X

    def gaussian(self, n: int, p: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """The rows that are here of a random n x p matrix."""
        return torch.randn((n, p), generator=generator, dtype=dtype)

    def largest(self, M: Tensor) -> Tensor:
        """The entry of largest size in each column, shape (p,)."""
        return M.gather(0, M.abs().argmax(0, keepdim=True)).squeeze(0)


class InRows(Whole):
    """A matrix whose rows are on many ranks, all of which call the same methods in the same order.

    Args:
        groups: The ranks that have rows.
        rows: n, the rows of all ranks.
    """

    def __init__(self, groups: Groups, rows: int) -> None:
        self.groups, self.rows = groups, rows

    def run(self, step: Summed[Result]) -> Result:
        """Run one step of formulas in blocks of rows."""
        return run_together([step], lambda asked: {0: summed(asked[0], self.groups)})[0]

    def gram(self, X: Tensor) -> Tensor:
        """X^H X."""
        return self.cross(X, X)

    def cross(self, X: Tensor, G: Tensor) -> Tensor:
        """X^H G."""
        return self.product(X.mH, G)

    def distance(self, X: Tensor) -> float:
        """‖X^H X - I‖_F."""
        return float(frobenius(subtract_identity_(self.gram(X))))

    def tangent(self, X: Tensor, G: Tensor, metric: str) -> Tensor:
        """This rank's rows of the Riemannian gradient."""
        return self.run(riemannian_rows(X, G, metric, rows=self.rows))

    def norm(self, M: Tensor) -> float:
        """‖M‖_F, from the norms of all ranks: their squares might overflow."""
        (group,) = self.groups
        norms = torch.zeros(torch.distributed.get_world_size(group), dtype=torch.float64, device=M.device)
        norms[torch.distributed.get_rank(group)] = scaled_norm(M)
        return math.hypot(*self.total(norms).tolist())

    def inner(self, left: Tensor, right: Tensor) -> float:
        """Re<left, right>."""
        return float(summed([torch.sum((left.conj() * right).real).double()], self.groups)[0])

    def merit(self, X: Tensor, value: Tensor, G: Tensor, mu: float) -> float:
        """The merit function (16)."""
        gram, cross = summed([X.mH @ X, X.mH @ G], self.groups)
        return float(merit_of(subtract_identity_(gram), cross, value, mu))

    def product(self, A: Tensor, X: Tensor) -> Tensor:
        """A X, for the columns of A that go with the rows of X."""
        return summed([A @ X], self.groups)[0]

    def any(self, flag: bool) -> bool:
        """Whether a flag is up, here or on any other rank."""
        return bool(summed([torch.tensor(float(flag))], self.groups)[0] > 0)

    def total(self, terms: Tensor) -> Tensor:
        """The sum over the ranks."""
        return summed([terms], self.groups)[0]

    def held(self, n: int) -> slice:
        """Which of n rows are here."""
        (group,) = self.groups
        size = -(-n // torch.distributed.get_world_size(group))
        rank = torch.distributed.get_rank(group)
        return slice(min(rank * size, n), min((rank + 1) * size, n))

    def step(
        self, X: Tensor, G: Tensor | Factored, step_size: float, rule: StepRule, *, out: Tensor, workspace: Workspace
    ) -> StepOutcome:
        """A landing step of this rank's rows, written to `out`, which may be X."""
        return self.run(step_of_rows(X, dense(G), step_size, rule, rows=self.rows, out=out))

    def gaussian(self, n: int, p: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """This rank's rows of a random n x p matrix, which is the same for any number of ranks."""
        seed = int(torch.randint(2**31, (), generator=generator))
        return gaussian_rows(self.held(n), p, seed, dtype)

    def largest(self, M: Tensor) -> Tensor:
        """The entry of largest size in each column, on any rank."""
        (group,) = self.groups
        every = M.new_zeros(torch.distributed.get_world_size(group), M.shape[1])
        if len(M):
            every[torch.distributed.get_rank(group)] = super().largest(M)
        return super().largest(self.total(every))


def gaussian_rows(held: slice, p: int, seed: int, dtype: torch.dtype) -> Tensor:
    """Rows of a Gaussian matrix that depend on their positions and the seed alone."""
    start, stop, blocks = held.start, held.stop, []
    for block in range(start // ROWS_PER_SEED, -(-stop // ROWS_PER_SEED)):
        generator = torch.Generator().manual_seed(seed * 1_000_003 + block)
        rows = torch.randn(ROWS_PER_SEED, p, generator=generator, dtype=dtype)
        first = block * ROWS_PER_SEED
        blocks.append(rows[max(start - first, 0) : stop - first])
    return torch.cat(blocks) if blocks else torch.empty(0, p, dtype=dtype)
