"""The memory of a limited-memory quasi-Newton method (L-BFGS): pairs of steps and changes of the gradient."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from glideslope.solve.checkpoint import Resumable, State
from glideslope.stiefel.geometry import Whole

# Pairs remembered. Twenty take between a tenth fewer and a fifth more evaluations, depending on the problem.
PAIRS = 10
# A pair is left out unless Re<s, y> exceeds this share of ‖s‖ ‖y‖.
LEAST_CURVATURE = 1e-8
# By how much H may grow along a direction in which f bends down.
GROWTH = 10.0
# What is kept of the products of pairs, on the host.
ARRAYS = ("_along", "_R_inverse", "_YY", "_D")


class Pairs(Resumable):
    """An approximation H of the inverse Hessian, from pairs s = X⁺ - X and y = T⁺ - T of tangent gradients T.

    X and T are matrices of one linear space, so pairs of earlier points are used as they are, without transport. At a
    solution the derivative of T is the Riemannian Hessian, and y is its product with s. With S and Y the pairs as
    columns, oldest first, R the upper triangle of SᵀY and D its diagonal, the compact form of Byrd, Nocedal and
    Schnabel is

        H = γ I + S R⁻ᵀ (D + γ YᵀY) R⁻¹ Sᵀ - γ S R⁻ᵀ Yᵀ - γ Y R⁻¹ Sᵀ.

    Sᵀy and Yᵀy of a new pair are differences of SᵀT⁺ and SᵀT, YᵀT⁺ and YᵀT, which H T needs anyway. A new column of R
    is one of R⁻¹, and R⁻¹ without its first row and column is the inverse for the pairs without the oldest. So a step
    reads the pairs twice; what is left is 10 x 10, in float64 on the host.

    Memory: 22 n p numbers, one pair more than are used, since a pair is judged where it lies. Rows on many ranks:
    inner products are summed.

    Args:
        X: A matrix of the shape, type and device of the pairs.
        geometry: Where its rows are.
    """

    kept = ("scale", "_spare", "_order")

    def __init__(self, X: Tensor, geometry: Whole) -> None:
        self._geometry = geometry
        self.scale = 1.0
        """γ, which H is a multiple of where no pair says otherwise."""
        self._order: list[int] = []  # slots of the pairs, oldest first
        self._spare = 0  # the slot that the next pair goes to
        size = X.numel() * (2 if X.is_complex() else 1)
        self._vectors = torch.zeros((2 * (PAIRS + 1), size), dtype=X.real.dtype, device=X.device)
        # Views, made once: a step on small matrices takes as long as it has operations.
        self._slots = [(pair[0], pair[1], pair, pair.mT) for pair in self._vectors.view(PAIRS + 1, 2, size)]
        self._columns = self._vectors.mT
        self._along = np.zeros((PAIRS + 1, 2))  # Re<s, T>, Re<y, T> by slot, T the last tangent gradient
        self._R_inverse, self._YY, self._D = np.zeros((PAIRS, PAIRS)), np.zeros((PAIRS, PAIRS)), np.zeros(PAIRS)

    def __len__(self) -> int:
        return len(self._order)

    def state(self) -> State:
        """The pairs and their products."""
        arrays = {name: torch.from_numpy(getattr(self, name)) for name in ARRAYS}
        return {**super().state(), "vectors": self._vectors, "arrays": arrays}

    def resume(self, state: State, device: torch.device) -> None:
        """Take over a state."""
        self._vectors.copy_(state.pop("vectors"))
        for name, array in state.pop("arrays").items():
            setattr(self, name, array.cpu().numpy())
        super().resume(state, device)

    def forget(self, scale: float) -> None:
        """Drop all pairs: H = γ I."""
        self._order, self.scale = [], scale

    def add(self, X: Tensor, T: Tensor, X_new: Tensor, T_new: Tensor) -> float:
        """Take the pair of two successive points in the place of the oldest, and return ‖s‖.

        A pair along which f bends down or hardly at all is left out. Then only γ changes, to ‖s‖²/|<s, y>| and at most
        ten times what it was.
        """
        s, y, pair, transposed = self._slots[self._spare]
        gradient = flat(T_new)
        torch.sub(flat(X_new), flat(X), out=s)
        torch.sub(gradient, flat(T), out=y)
        found = torch.cat([torch.mv(self._vectors, gradient), torch.mm(pair, transposed).view(-1)])
        numbers = self._geometry.total(found).double().cpu().numpy()
        square, curvature, _, change = numbers[-4:].tolist()
        along, before = numbers[:-4].reshape(-1, 2), self._along
        self._along = along
        if not curvature > LEAST_CURVATURE * math.sqrt(square * change) > 0:
            pair.zero_()
            longest = GROWTH * self.scale
            self.scale = min(square / abs(curvature), longest) if curvature else longest
            return math.sqrt(square)
        with_s, with_y = (along[self._order] - before[self._order]).T
        self._append(with_s, with_y, curvature, change)
        self.scale = curvature / change
        return math.sqrt(square)

    def _append(self, with_s: np.ndarray, with_y: np.ndarray, curvature: float, change: float) -> None:
        """Make the pair in the spare slot the newest, given Sᵀy, Yᵀy, sᵀy and yᵀy."""
        inverse, YY, D = self._R_inverse, self._YY, self._D
        if len(self) == PAIRS:
            for each in (inverse, YY):
                each[:-1, :-1] = each[1:, 1:]
            D[:-1] = D[1:]
            with_s, with_y = with_s[1:], with_y[1:]
            del self._order[0]
        last = len(self)
        inverse[:last, last] = inverse[:last, :last] @ with_s / -curvature
        inverse[last, last] = 1 / curvature
        YY[:last, last] = YY[last, :last] = with_y
        YY[last, last], D[last] = change, curvature
        self._order.append(self._spare)
        self._spare = (self._spare + 1) % (PAIRS + 1)

    def descent(self, T: Tensor, norm: float) -> tuple[Tensor, float]:
        """-H T and Re<T, H T>, given ‖T‖; T is the one of the last point added."""
        pairs = len(self)
        slope = self.scale * norm * norm
        if not pairs:
            return T * -self.scale, slope
        along = self._along[self._order]
        along_s, along_y = along[:, 0], along[:, 1]
        inverse = self._R_inverse[:pairs, :pairs]
        inside = inverse @ along_s
        outside = self._D[:pairs] * inside + self.scale * (self._YY[:pairs, :pairs] @ inside - along_y)
        weights = np.zeros((PAIRS + 1, 2))
        weights[self._order, 0] = on_s = outside @ -inverse
        weights[self._order, 1] = on_y = self.scale * inside
        slope -= float(on_s @ along_s + on_y @ along_y)
        by_slot = torch.from_numpy(weights.reshape(-1)).to(self._vectors)
        return shaped(torch.addmv(flat(T), self._columns, by_slot, beta=-self.scale), T), slope


def flat(M: Tensor) -> Tensor:
    """The numbers of a matrix as a real vector: real and imaginary parts are numbers of their own."""
    return torch.view_as_real(M.contiguous()).view(-1) if M.is_complex() else M.reshape(-1)


def shaped(v: Tensor, like: Tensor) -> Tensor:
    """A real vector as a matrix of the shape and type of another."""
    return torch.view_as_complex(v.view(*like.shape, 2)) if like.is_complex() else v.view(like.shape)
