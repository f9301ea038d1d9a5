"""The memory of a limited-memory quasi-Newton method (L-BFGS): pairs of steps and changes of the gradient."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glideslope.solve.checkpoint import Resumable
from glideslope.stiefel.geometry import Whole

# Pairs remembered. Twenty take between a tenth fewer and a fifth more evaluations, depending on the problem.
PAIRS = 10
# A pair is left out unless Re<s, y> exceeds this share of ‖s‖ ‖y‖.
LEAST_CURVATURE = 1e-8
# By how much H may grow along a direction in which f bends down.
GROWTH = 10.0


class Pairs(Resumable):
    """An approximation H of the inverse Hessian, from pairs s = X⁺ - X and y = T⁺ - T of tangent gradients T.

    X and T are matrices of one linear space, so pairs of earlier points are used as they are, without transport. At a
    solution the derivative of T is the Riemannian Hessian, and y is its product with s. With S and Y the pairs as
    columns, oldest first, R the upper triangle of SᵀY and D its diagonal, the compact form of Byrd, Nocedal and
    Schnabel is

        H = γ I + S R⁻ᵀ (D + γ YᵀY) R⁻¹ Sᵀ - γ S R⁻ᵀ Yᵀ - γ Y R⁻¹ Sᵀ.

    Memory: 20 n p numbers. A product H T reads them twice; what is left is 10 x 10. Rows on many ranks: inner products
    are summed.

    Args:
        X: A matrix of the shape, type and device of the pairs.
        geometry: Where its rows are.
    """

    kept = ("scale", "_taken", "_vectors", "_SY", "_YY")

    def __init__(self, X: Tensor, geometry: Whole) -> None:
        self._geometry = geometry
        self.scale = 1.0
        """γ, which H is a multiple of where no pair says otherwise."""
        self._taken = 0  # since the last `forget`; the next pair goes to this slot modulo their number
        size = X.numel() * (2 if X.is_complex() else 1)
        self._vectors = torch.zeros((PAIRS, 2, size), dtype=X.real.dtype, device=X.device)
        self._SY, self._YY = (torch.zeros((PAIRS, PAIRS), dtype=torch.float64) for _ in range(2))

    def __len__(self) -> int:
        return min(self._taken, PAIRS)

    def forget(self, scale: float) -> None:
        """Drop all pairs: H = γ I."""
        self._taken, self.scale = 0, scale

    def add(self, s: Tensor, y: Tensor) -> float:
        """Take a pair in the place of the oldest, unless f bends down or hardly at all along it; ‖s‖.

        Without it only γ changes, to ‖s‖²/|<s, y>| and at most ten times what it was.
        """
        s, y = flat(s), flat(y)
        square, curvature, change = self._geometry.total(torch.stack([s @ s, s @ y, y @ y])).tolist()
        if not curvature > LEAST_CURVATURE * math.sqrt(square * change) > 0:
            longest = GROWTH * self.scale
            self.scale = min(square / abs(curvature), longest) if curvature else longest
            return math.sqrt(square)
        if self._taken >= PAIRS:
            for each in (self._SY, self._YY):
                each[:-1, :-1] = each[1:, 1:].clone()
        pair = self._vectors[self._taken % PAIRS]
        pair[0], pair[1] = s, y
        self._taken += 1
        last = len(self) - 1
        with_s, with_y = self._products(y)
        self._SY[: last + 1, last] = with_s
        self._YY[: last + 1, last] = self._YY[last, : last + 1] = with_y
        self.scale = curvature / change
        return math.sqrt(square)

    def times(self, T: Tensor, norm: float) -> tuple[Tensor, float]:
        """H T and Re<T, H T>, given ‖T‖."""
        pairs = len(self)
        if not pairs:
            return T * self.scale, self.scale * norm * norm
        found = self._products(flat(T))
        SY, YY, along_s, along_y = self._SY[:pairs, :pairs], self._YY[:pairs, :pairs], found[0], found[1]
        inside = torch.linalg.solve_triangular(SY, along_s.unsqueeze(1), upper=True).squeeze(1)
        outside = torch.addmv(SY.diagonal() * inside - self.scale * along_y, YY, inside, alpha=self.scale)
        on_s = torch.linalg.solve_triangular(SY.mT, outside.unsqueeze(1), upper=False).squeeze(1)
        weights = torch.stack([on_s, inside * -self.scale])
        slope = self.scale * norm * norm + float(torch.sum(weights * found))
        used = self._vectors[:pairs].flatten(0, 1)
        by_slot = weights.roll(self._taken % pairs, 1).mT.reshape(-1).to(used)
        return shaped(torch.addmv(flat(T), used.mT, by_slot, beta=self.scale), T), slope

    def _products(self, v: Tensor) -> Tensor:
        """Re<s_i, v> and Re<y_i, v> of all pairs, oldest first, shape (2, pairs), in float64 on the host."""
        pairs = len(self)
        found = self._geometry.total(self._vectors[:pairs].flatten(0, 1) @ v).double().cpu()
        return found.view(pairs, 2).mT.roll(-(self._taken % pairs), 1)


def flat(M: Tensor) -> Tensor:
    """The numbers of a matrix as a real vector: real and imaginary parts are numbers of their own."""
    return (torch.view_as_real(M.contiguous()) if M.is_complex() else M).reshape(-1)


def shaped(v: Tensor, like: Tensor) -> Tensor:
    """A real vector as a matrix of the shape and type of another."""
    return torch.view_as_complex(v.view(*like.shape, 2)) if like.is_complex() else v.view(like.shape)
