"""What a run needs of the geometry, for a matrix in one place and for one whose rows are on many ranks."""

from __future__ import annotations

import math
from typing import TypeVar

import torch
from torch import Tensor

from glideslope.formulas.field import riemannian_gradient
from glideslope.formulas.merit import merit, merit_of
from glideslope.formulas.orthogonality import distance, frobenius, subtract_identity_
from glideslope.formulas.row_blocks import Summed, riemannian_rows, run_together, squared_norm
from glideslope.stiefel.sharding import Groups, summed

Result = TypeVar("Result")


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
        return float(frobenius(M))

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
        return self.run(riemannian_rows(X, G, metric))

    def norm(self, M: Tensor) -> float:
        """‖M‖_F."""
        return math.sqrt(float(summed([squared_norm(M)], self.groups)[0]))

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
