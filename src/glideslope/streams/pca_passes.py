"""Passes over all data: the leading subspace of an exact decomposition, by Chebyshev polynomials."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glideslope.stiefel.geometry import BLOCK_ROWS, Whole

# Roundings of the largest variance that count as none.
ROUNDINGS = 10


@dataclass
class Refinement:
    """Subspace iteration with momentum: after k passes, X spans T_k((C - c I) / c) X_0, T_k a Chebyshev polynomial.

    T_k is at most 1 in size on [0, 2c] and grows fastest beyond. With 2c the least variance along X, the directions
    left out stay as small as they are, and those asked for grow about as exp(2 k sqrt(variance / 2c - 1)), where plain
    subspace iteration has (variance / 2c)^k. T_{k+1}(t) = 2 t T_k(t) - T_{k-1}(t) needs the last two matrices only.

    Args:
        X: Where to start, orthonormal; overwritten.
        times: C X, by a pass over the data.
        total: Trace of C.
        n_components: Directions asked for; X has some more.
        geometry: Where the rows of X are.
        tolerance: Stop when the relative gradient is below it.
        passes: How many passes at most.
        report: Called before every pass with its number.
    """

    X: Tensor
    times: Callable[[Tensor], Tensor]
    total: float
    n_components: int
    geometry: Whole
    tolerance: float
    passes: int
    report: Callable[[int], None]
    gradient: float = math.inf
    """Root mean square of ‖C v - λ v‖ / λ over the directions v asked for, as it was last seen."""
    _before: Tensor | None = None

    def run(self) -> int:
        """Refine X; how many passes that took.

        Besides X, two matrices of its size are held, and a third while one is made orthonormal: all other products are
        written in place, a block of rows at a time.
        """
        for number in range(1, self.passes + 1):
            self.report(number)
            CX = self.times(self.X)
            variances = self._to_ritz_basis(CX)
            self.gradient = self._relative_gradient(CX, variances)
            self._step(CX, variances)
            del CX
            if self.gradient <= self.tolerance:
                break
        self._before = None
        return number

    def _to_ritz_basis(self, CX: Tensor) -> Tensor:
        """Turn X, C X and the X before to the basis of rising variances along X, which are returned in float64."""
        power = self.geometry.cross(self.X, CX).double()
        variances: Tensor
        variances, rotation = torch.linalg.eigh((power + power.T) / 2)
        for matrix in (self.X, CX, self._before):
            if matrix is not None:
                multiply_(matrix, rotation)
        return variances

    def _relative_gradient(self, CX: Tensor, variances: Tensor) -> float:
        X, p = self.X, self.n_components
        wanted, floor = variances[-p:], self._floor(variances)
        # If no variance is left besides that along X, directions at rounding have no gradient to be relative to.
        nothing_left = self.total - float(variances.sum()) <= floor
        scale = torch.where(wanted > floor, wanted, math.inf if nothing_left else floor)
        squares = torch.zeros_like(wanted)
        for x, cx in zip(torch.split(X[:, -p:], BLOCK_ROWS), torch.split(CX[:, -p:], BLOCK_ROWS), strict=True):
            squares += torch.addcmul(cx, x, wanted.to(X.dtype), value=-1).double().div_(scale).square_().sum(0)
        return math.sqrt(float(self.geometry.total(squares).sum()) / p)

    def _floor(self, variances: Tensor) -> float:
        """The variance that rounding of products with C leaves of zero."""
        limits = torch.finfo(self.X.dtype)
        return max(ROUNDINGS * limits.eps * float(variances.max()), limits.tiny)

    def _step(self, Y: Tensor, variances: Tensor) -> None:
        """The next matrix, made orthonormal, from Y = C X, which is overwritten. X, times the same, is the one before.

        Columns are scaled first: they grow by very different factors, and orthonormalising would cost digits.
        """
        geometry, X = self.geometry, self.X
        centre = max(float(variances[0]), self._floor(variances)) / 2
        Y.div_(centre).sub_(X)
        if self._before is not None:
            Y.mul_(2).sub_(self._before)
            self._before = None
        lengths = geometry.total(torch.linalg.vector_norm(Y, dim=0).square()).sqrt()
        Y /= lengths
        self.X = geometry.orthonormal(Y)
        factor = geometry.cross(self.X, Y).double()
        self._before = multiply_(X.div_(lengths), torch.linalg.inv(factor))


def multiply_(M: Tensor, factor: Tensor) -> Tensor:
    """M times a square matrix, in place, a block of rows at a time."""
    factor = factor.to(M.dtype)
    for block in torch.split(M, BLOCK_ROWS):
        block.copy_(block @ factor)
    return M
