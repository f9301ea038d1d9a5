"""The memory of a limited-memory quasi-Newton method (L-BFGS): pairs of steps and changes of the gradient."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from glideslope.solve.checkpoint import Resumable, State
from glideslope.stiefel.geometry import Whole, scaled_norm

# Pairs remembered. Fourteen take up to a tenth fewer evaluations on some problems, and twice the memory to read.
PAIRS = 7
# A pair is left out unless Re<s, y> exceeds this share of ‖s‖ ‖y‖.
LEAST_CURVATURE = 1e-8
# By how much H may grow along a direction in which f bends down.
GROWTH = 10.0
# What is left of the steepness of a pair after every step.
FADING = 0.99
# The curvature that H₀ assumes is nowhere less than this share of what it owes to the constraint.
LEAST_SHARE = 0.25
# Where the constraint contributes less than this share of the curvature 1/γ, it is left out of account.
LEAST_SPREAD = 0.2
# What is kept of the products of pairs, on the host.
ARRAYS = ("_along", "_R_inverse", "_D")


class Pairs(Resumable):
    """An approximation H of the inverse Hessian, from pairs s = X⁺ - X and y = T⁺ - T of tangent gradients T.

    X and T are matrices of one linear space, so pairs of earlier points are used as they are, without transport. At a
    solution the derivative of T is the Riemannian Hessian, and y is its product with s. With S and Y the pairs as
    columns, oldest first, R the upper triangle of SᵀY, D its diagonal and H₀ what is assumed where no pair says
    otherwise, the compact form of Byrd, Nocedal and Schnabel is

        H = H₀ + S R⁻ᵀ (D + Yᵀ H₀ Y) R⁻¹ Sᵀ - S R⁻ᵀ Yᵀ H₀ - H₀ Y R⁻¹ Sᵀ,

    so with u = R⁻¹ Sᵀ T and r = H₀ (T - Y u) the direction is H T = r + S R⁻ᵀ (D u - Yᵀ r). H₀ is γ I, or a product
    with a p x p matrix from the right, see `first_inverse`: what the Hessian owes to the constraint is known.

    Sᵀy of a new pair is the difference of SᵀT⁺ and SᵀT, which H T needs anyway. A new column of R is one of R⁻¹, and
    R⁻¹ without its first row and column is the inverse for the pairs without the oldest. So a step reads the pairs
    twice; what is left is 8 x 8, in float64 on the host. A pair stays in the slot it was written to: rows and columns
    of R⁻¹ are by slot, not by age, and zero for a slot that is not in use.

    Memory: 16 n p numbers, one pair more than are used, since a pair is judged where it lies. Rows on many ranks:
    inner products are summed.

    Args:
        X: A matrix of the shape, type and device of the pairs.
        geometry: Where its rows are.
    """

    kept = ("scale", "first", "_spare", "_used", "_steepest")

    def __init__(self, X: Tensor, geometry: Whole) -> None:
        self._geometry = geometry
        self.scale = 1.0
        """γ."""
        self.first: Tensor | None = None
        """W for H₀ Z = Z W; None for H₀ = γ I."""
        self._steepest = [0.0, 0.0]  # ‖y‖²/‖s‖² of the pair that β is from, faded, and β
        self._used = 0  # pairs in use
        self._spare = 0  # the slot that the next pair goes to, after it those of the pairs, oldest first
        size = X.numel() * (2 if X.is_complex() else 1)
        self._vectors = torch.zeros((2, PAIRS + 1, size), dtype=X.real.dtype, device=X.device)
        # Views, made once: a step on small matrices takes as long as it has operations.
        self._S, self._Y = self._vectors
        self._S_columns, self._Y_columns = self._S.mT, self._Y.mT
        self._slots = [(pair[0], pair[1], pair, pair.mT) for pair in self._vectors.unbind(1)]
        self._found = self._vectors.new_empty(PAIRS + 2)
        self._found_Y, self._found_rest = self._found[:-1], self._found[-1]
        self._along = np.zeros(PAIRS + 1)  # Re<s, T> by slot, T the last tangent gradient
        self._R_inverse, self._D = np.zeros((PAIRS + 1, PAIRS + 1)), np.zeros(PAIRS + 1)

    def __len__(self) -> int:
        return self._used

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
        self._used, self.scale, self.first, self._steepest = 0, scale, None, [0.0, 0.0]
        self._R_inverse[:], self._D[:] = 0, 0

    def add(self, X: Tensor, T: Tensor, X_new: Tensor, T_new: Tensor, multiplier: Tensor | None = None) -> float:
        """Take the pair of two successive points in the place of the oldest, and return ‖s‖.

        A pair along which f bends down or hardly at all is left out. Then only γ changes, to ‖s‖²/|<s, y>| and at most
        ten times what it was. H₀ takes account of the multiplier Λ = -sym(XᴴG) at the new point, if it is given.
        """
        s, y, pair, transposed = self._slots[self._spare]
        gradient = flat(T_new)
        torch.sub(flat(X_new), flat(X), out=s)
        torch.sub(gradient, flat(T), out=y)
        products = [torch.mv(self._S, gradient), torch.mm(pair, transposed).view(-1)]
        if multiplier is not None:
            mean, spread = mean_and_spread(multiplier)
            if not LEAST_SPREAD < spread * self.scale < math.inf:
                multiplier = None
        if multiplier is not None:
            z = flat(shaped(s, X) @ multiplier)
            products += [torch.mv(pair, z), torch.dot(z, z).view(1)]
        numbers = self._geometry.total(torch.cat(products)).double().cpu().numpy()
        along, before = numbers[: PAIRS + 1], self._along
        square, curvature, _, change, *with_z = numbers[PAIRS + 1 :].tolist()
        self._along = along
        if curvature > LEAST_CURVATURE * math.sqrt(square * change) > 0:
            self._append(along - before, curvature)
            self.scale = curvature / change
        else:
            pair.zero_()
            longest = GROWTH * self.scale
            # In this order a quotient that is not a number is not taken.
            self.scale = min(longest, square / abs(curvature)) if curvature else longest
        self.first = None
        if multiplier is not None and square > 0:
            beta = self._share_of_constraint(square, curvature, change, *with_z)
            self.first = first_inverse(multiplier, mean, spread, with_z[0] / square, beta, self.scale)
        return math.sqrt(square)

    def _share_of_constraint(self, ss: float, sy: float, yy: float, sz: float, yz: float, zz: float) -> float:
        """β in [-1, 1], the least-squares fit of y ≈ c s + β s Λ with c free, from products of s, y and z = s Λ.

        The pair with the largest ‖y‖/‖s‖ decides, until a steeper one comes or it has faded: pairs along which f hardly
        bends say little of the rest of the Hessian.
        """
        steepness, beta = self._steepest
        steepness *= FADING
        under = zz - sz * sz / ss
        if under > 0 and yy / ss >= steepness:
            steepness, beta = yy / ss, min(max((yz - sy * sz / ss) / under, -1.0), 1.0)
        self._steepest = [steepness, beta]
        return beta

    def _append(self, with_s: np.ndarray, curvature: float) -> None:
        """Make the pair in the spare slot the newest, given Sᵀy and sᵀy, and the slot of the oldest the spare one."""
        inverse, new = self._R_inverse, self._spare
        inverse[:, new] = inverse @ with_s / -curvature
        inverse[new, new] = 1 / curvature
        self._D[new] = curvature
        self._spare = spare = (new + 1) % (PAIRS + 1)
        inverse[spare], inverse[:, spare], self._D[spare] = 0, 0, 0
        self._used = min(self._used + 1, PAIRS)

    def descent(self, T: Tensor, norm: float) -> tuple[Tensor, float]:
        """-H T and Re<T, H T>, given ‖T‖; T is the one of the last point added."""
        if not self._used and self.first is None:
            return T * -self.scale, self.scale * norm * norm
        inverse, along = self._R_inverse, self._along
        inside = inverse @ along
        rest = torch.addmv(flat(T), self._Y_columns, self._weights(inside), alpha=-1)
        r = rest * self.scale if self.first is None else flat(shaped(rest, T) @ self.first)
        torch.mv(self._Y, r, out=self._found_Y)
        torch.dot(rest, r, out=self._found_rest)
        found = self._geometry.total(self._found).double().cpu().numpy()
        along_r = found[:-1]
        outside = (inside * self._D - along_r) @ inverse
        slope = float(found[-1] + inside @ along_r + outside @ along)
        return shaped(torch.addmv(r, self._S_columns, self._weights(outside)).neg_(), T), slope

    def _weights(self, by_slot: np.ndarray) -> Tensor:
        return torch.from_numpy(by_slot).to(self._vectors)


def mean_and_spread(multiplier: Tensor) -> tuple[float, float]:
    """λ, the mean of the eigenvalues of Λ, and d = ‖Λ - λ I‖_F."""
    p = multiplier.shape[0]
    mean, norm = float(multiplier.trace().real) / p, scaled_norm(multiplier)
    typical = math.sqrt(p) * abs(mean)
    return mean, math.sqrt(max(norm - typical, 0.0) * (norm + typical))


def first_inverse(
    multiplier: Tensor, mean: float, spread: float, along: float, beta: float, scale: float
) -> Tensor | None:
    """W ≈ (c I + β Λ)⁻¹ by products, for H₀ Z = Z W.

    On the Stiefel manifold the Riemannian Hessian is Z -> P (∇²f[Z] + Z Λ), with Λ = -sym(XᴴG) and P the projection.
    ∇²f is taken for a multiple of the identity, c, such that along the last step the whole is 1/γ; that it contains a
    part of -Z Λ as well, or the contrary, is what β is for. With λ the mean of the eigenvalues of Λ, d = ‖Λ - λ I‖_F
    and μ = c + β λ + |β| d, the matrix E = I - (c I + β Λ)/μ has no negative eigenvalue, and

        W = (I + E) (I + E²) (I + E⁴) / μ = Σ_{k<8} E^k / μ

    is positive definite whatever c is. Where c I + β Λ is singular, W is 8/μ and no more.

    Args:
        multiplier: Λ, p x p.
        mean: λ.
        spread: d.
        along: <s, s Λ>/‖s‖² of the last step s.
        beta: β.
        scale: γ.

    Returns:
        W, or None where |β| d is small against 1/γ, so that W is about γ I.
    """
    spread *= abs(beta)
    if not LEAST_SPREAD < spread * scale < math.inf:
        return None
    top = max(1 / scale - beta * (along - mean), LEAST_SHARE * spread) + spread
    E = multiplier * (-beta / top)
    E.diagonal().add_((beta * mean + spread) / top)
    second = torch.mm(E, E)
    W = torch.addmm(second, E, second).add_(E)
    W.diagonal().add_(1)
    return torch.addmm(W, W, torch.mm(second, second)).div_(top)


def flat(M: Tensor) -> Tensor:
    """The numbers of a matrix as a real vector: real and imaginary parts are numbers of their own."""
    return torch.view_as_real(M.contiguous()).view(-1) if M.is_complex() else M.reshape(-1)


def shaped(v: Tensor, like: Tensor) -> Tensor:
    """A real vector as a matrix of the shape and type of another."""
    return torch.view_as_complex(v.view(*like.shape, 2)) if like.is_complex() else v.view(like.shape)
