"""Passes over all data from where a stream ended: the subspace of an exact decomposition, by Chebyshev polynomials."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glideslope.solve.problems.pca import PCA
from glideslope.solve.rows import Rows
from glideslope.streams.pca_stream import Subspace

# Roundings of the largest variance that count as none.
ROUNDINGS = 10


@dataclass
class Refinement:
    """Subspace iteration with momentum: after k passes, X spans T_k((C - c I) / c) X_0, T_k a Chebyshev polynomial.

    T_k is at most 1 in size on [0, 2c] and grows fastest beyond. With 2c the least variance along X, the directions
    left out stay as small as they are, and those asked for grow about as exp(2 k sqrt(variance / 2c - 1)), where plain
    subspace iteration has (variance / 2c)^k. T_{k+1}(t) = 2 t T_k(t) - T_{k-1}(t) needs the last two matrices only.

    Args:
        stream: Where to start, and what to change.
        rows: The data.
        tolerance: Stop when the relative gradient is below it.
        passes: How many passes at most.
        report: Called before every pass with its number.
    """

    stream: Subspace
    rows: Rows
    tolerance: float
    passes: int
    report: Callable[[int], None]
    gradient: float = math.inf
    """Root mean square of ‖C v - λ v‖ / λ over the directions v asked for, as it was last seen."""

    def run(self) -> int:
        """Refine the subspace; how many passes that took."""
        stream, before = self.stream, None
        assert stream.X is not None
        problem = PCA(self.rows.centred(stream.moments.mean), stream.X.shape[1])
        for number in range(1, self.passes + 1):
            self.report(number)
            _, G = problem.value_and_gradient(stream.X)
            X, CX, variances, rotation = self._ritz(stream.X, G.neg_())
            self.gradient = self._relative_gradient(X, CX, variances)
            before = self._step(X, CX, variances, None if before is None else before @ rotation)
            if self.gradient <= self.tolerance:
                return number
        return self.passes

    def _ritz(self, X: Tensor, CX: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """X and C X in the basis of rising variances along X, with the variances (float64) and the rotation."""
        power = self.stream.geometry.cross(X, CX).double()
        variances, rotation = torch.linalg.eigh((power + power.T) / 2)
        rotation = rotation.to(X.dtype)
        return X @ rotation, CX @ rotation, variances, rotation

    def _relative_gradient(self, X: Tensor, CX: Tensor, variances: Tensor) -> float:
        p = self.stream.n_components
        wanted, floor = variances[-p:], self._floor(variances)
        total = float(self.stream.geometry.total(self.stream.moments.covariance().sum()))
        # If no variance is left besides that along X, directions at rounding have no gradient to be relative to.
        nothing_left = total - float(variances.sum()) <= floor
        scale = torch.where(wanted > floor, wanted, math.inf if nothing_left else floor).to(X.dtype)
        residual = torch.addcmul(CX[:, -p:], X[:, -p:], variances[-p:].to(X.dtype), value=-1)
        return self.stream.geometry.norm(residual.div_(scale)) / math.sqrt(p)

    def _floor(self, variances: Tensor) -> float:
        """The variance that rounding of products with C leaves of zero."""
        limits = torch.finfo(self.stream.dtype)
        return max(ROUNDINGS * limits.eps * float(variances.max()), limits.tiny)

    def _step(self, X: Tensor, CX: Tensor, variances: Tensor, before: Tensor | None) -> Tensor:
        """The next matrix, made orthonormal, which the stream gets; the present one, multiplied by the same factor.

        Columns are scaled first: they grow by very different factors, and orthonormalising would cost digits.
        """
        geometry = self.stream.geometry
        centre = max(float(variances[0]), self._floor(variances)) / 2
        Y = CX.div_(centre).sub_(X)
        if before is not None:
            Y = Y.mul_(2).sub_(before)
        lengths = geometry.total(torch.linalg.vector_norm(Y, dim=0).square()).sqrt()
        Y /= lengths
        after = geometry.orthonormal(Y)
        factor = geometry.cross(after, Y).double()
        self.stream.X = after
        inverse: Tensor = torch.linalg.inv(factor)
        return (X / lengths) @ inverse.to(X.dtype)
