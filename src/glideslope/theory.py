"""The constants μ, ν, ρ, L_g, η* of the propositions and the step sizes they allow (sections 2.2 and 3)."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from glideslope.formulas.arguments import check_positive, check_radius, check_whole_number
from glideslope.formulas.safeguard import safeguard_lower_bound


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Bounds on f over the safe region (12); for a sum they must hold for every term f_i.

    Args:
        smoothness: L, the Lipschitz constant of ∇f.
        gradient_bound: L' >= ‖∇f(X)‖_F; > 0.
        symmetric_bound: s >= ‖sym(X^H ∇f(X))‖_F.
        hessian_lipschitz: Lipschitz constant of the Hessian of f; 0 for quadratics.

    Examples:
        >>> gs.theory.Constants(smoothness=1.0, gradient_bound=2.0, symmetric_bound=2.0).hessian_lipschitz
        0.0
    """

    smoothness: float
    gradient_bound: float
    symmetric_bound: float
    hessian_lipschitz: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            number = getattr(self, field.name)
            if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < math.inf:
                raise ValueError(f"{field.name} must be a finite number >= 0; got {number!r}")
        check_positive(gradient_bound=self.gradient_bound)


def quadratic_constants(M: Tensor, linear: Tensor | None = None, *, columns: int, safe_radius: float) -> Constants:
    """Constants of f(X) = ½ Re<X, M X> + Re<B, X> on n x p matrices X of the safe region (12).

    L = ‖M‖_2, L' = sqrt(1+ε) m + ‖B‖_F and s = (1+ε) m + sqrt(1+ε) ‖B‖_F, where m is the 2-norm of the p
    largest absolute eigenvalues of M. PCA is M = -A^H A / N; Procrustes, ½ ‖A X - C‖_F², is M = A^H A and
    B = -A^H C. Cost O(n³).

    Args:
        M: Hermitian matrix, shape (n, n).
        linear: The matrix B, shape (n, p); zero if None.
        columns: p, with n >= p >= 1.
        safe_radius: Radius ε in (0, 1) of the safe region.

    Examples:
        >>> gs.theory.quadratic_constants(torch.eye(4), columns=2, safe_radius=0.5).smoothness
        1.0
    """
    check_radius(safe_radius)
    if M.ndim != 2 or M.shape[0] != M.shape[1] or not (M.is_floating_point() or M.is_complex()):
        raise ValueError(
            f"M must be one real or complex matrix of shape (n, n); got {M.dtype} of shape {tuple(M.shape)}"
        )
    check_whole_number("columns", columns, least=1, most=M.shape[0], most_is="the rows of M")
    if linear is not None and linear.shape != (M.shape[0], columns):
        raise ValueError(f"linear must have shape {(M.shape[0], columns)}; got {tuple(linear.shape)}")
    if not torch.allclose(M, M.mH, rtol=0, atol=math.sqrt(torch.finfo(M.dtype).eps) * float(M.abs().max())):
        raise ValueError("M must be Hermitian; got a matrix that differs from M.mH. Pass (M + M.mH) / 2")
    eigenvalues = torch.linalg.eigvalsh(M).abs().topk(columns).values
    largest = float(torch.linalg.vector_norm(eigenvalues))
    linear_norm = 0.0 if linear is None else float(torch.linalg.vector_norm(linear))
    stretch = math.sqrt(1 + safe_radius)
    gradient_bound = stretch * largest + linear_norm
    return Constants(
        smoothness=float(eigenvalues[0]),
        gradient_bound=gradient_bound,
        symmetric_bound=stretch * gradient_bound,
    )


@dataclass(frozen=True, kw_only=True)
class Theory:
    """The quantities of sections 2.2 and 3 for one function, attraction and safe region.

    Args:
        constants: Bounds on f, or on every term f_i of a sum.
        attraction: Weight λ > 0 of the pull towards the manifold.
        safe_radius: Radius ε of the safe region, 0 < ε < 3/4 as Prop. "Merit function bound" asks.

    Examples:
        >>> constants = gs.theory.quadratic_constants(torch.eye(4), columns=2, safe_radius=0.5)
        >>> gs.theory.Theory(constants=constants, attraction=1.0, safe_radius=0.5).gradient_descent_step > 0
        True
    """

    constants: Constants
    attraction: float = 1.0
    safe_radius: float = 0.5

    def __post_init__(self) -> None:
        check_positive(attraction=self.attraction)
        check_radius(self.safe_radius)
        if self.safe_radius >= 0.75:
            raise ValueError(f"safe_radius must be < 3/4 for the merit function bound; got {self.safe_radius!r}")

    @property
    def mu(self) -> float:
        """μ = 2/(3-4ε) (L(1-ε) + 3s + max(L, L')² (1+ε)²/(λ(1-ε))), Prop. "Merit function bound"."""
        constants, radius = self.constants, self.safe_radius
        largest = max(constants.smoothness, constants.gradient_bound)
        cross = (largest * (1 + radius)) ** 2 / (self.attraction * (1 - radius))
        return 2 / (3 - 4 * radius) * (constants.smoothness * (1 - radius) + 3 * constants.symmetric_bound + cross)

    @property
    def nu(self) -> float:
        """ν = λ μ in <∇L(X), Λ(X)> >= ½ ‖grad f(X)‖² + ν N(X), Prop. "Merit function bound"."""
        return self.attraction * self.mu

    @property
    def rho(self) -> float:
        """ρ = min(½, ν/(4λ²(1+ε))) in <Λ(X), ∇L(X)> >= ρ ‖Λ(X)‖², corollary of "Merit function bound"."""
        return min(0.5, self.nu / (4 * self.attraction**2 * (1 + self.safe_radius)))

    @property
    def penalty_smoothness(self) -> float:
        """Smoothness 2 + 3ε of the penalty (11), Prop. "Smoothness of the merit function"."""
        return 2 + 3 * self.safe_radius

    @property
    def merit_smoothness(self) -> float:
        """L_g = 3(1+ε) L + 2 sqrt(1+ε) L' + s + ½ ε sqrt(1+ε) L_3 + μ (2+3ε), L_3 = hessian_lipschitz.

        Prop. "Smoothness of the merit function".
        """
        # ∇(f+h) = G - ½ H[XΔ] - ½ GΔ - X sym(X^H G), H the Hessian, by Lemma "Jacobian of Φ(X)". Derivatives
        # along a unit E: H[E] <= L; ½ H[XΔ]' <= ½ L (2+3ε) + ½ L_3 ε sqrt(1+ε);
        # ½ (GΔ)' <= ½ L ε + sqrt(1+ε) L'; E sym(X^H G) <= s;
        # X sym(E^H G + X^H H[E]) <= sqrt(1+ε) L' + (1+ε) L.
        constants, radius = self.constants, self.safe_radius
        stretch = math.sqrt(1 + radius)
        return (
            3 * (1 + radius) * constants.smoothness
            + 2 * stretch * constants.gradient_bound
            + constants.symmetric_bound
            + radius * stretch * constants.hessian_lipschitz / 2
            + self.mu * self.penalty_smoothness
        )

    @property
    def field_bound(self) -> float:
        """ã = (1+ε) L' >= ‖skew(∇f(X) X^H) X‖_F, Lemma "A lower-bound on the step-size safeguard"."""
        return (1 + self.safe_radius) * self.constants.gradient_bound

    @property
    def safeguard_step(self) -> float:
        """η*(ã, ε, λ), below every safeguard (14) of landing gradient descent and SGD."""
        return self._safeguard(self.field_bound)

    @property
    def gradient_descent_step(self) -> float:
        """Step min(1/(2 L_g), ν/(4λ² L_g (1+ε)), η*) = min(ρ/L_g, η*) of landing gradient descent (19)."""
        return min(self.rho / self.merit_smoothness, self.safeguard_step)

    def decreasing_step(self, iteration: int) -> float:
        """Landing SGD (20) with decreasing steps: η_k = η_0 / sqrt(1+k), η_0 the gradient descent step.

        Args:
            iteration: k = 0, 1, ...
        """
        check_whole_number("iteration", iteration, least=0)
        return self.gradient_descent_step / math.sqrt(1 + iteration)

    def fixed_step(self, iterations: int) -> float:
        """Landing SGD (20) with a fixed step: η = η_0 / sqrt(1+K), η_0 the gradient descent step.

        Args:
            iterations: K, the number of iterations to come.
        """
        check_whole_number("iterations", iterations, least=1)
        return self.gradient_descent_step / math.sqrt(1 + iterations)

    def saga_bounds(self, number_of_terms: int) -> tuple[float, float, float, float]:
        """η*, ρ/L_g, 1/(sqrt(8N) (1+ε) L) and (ρ / (8N (4N+2) L_g L² (1+ε)²))^{1/3}, section 3.3.

        η* is that of ã = 3(1+ε)L': fresh gradient, memory and mean memory add (1+ε)L' each. The third bound
        has 1+ε outside the root, as ‖skew(D X^H) X‖² <= (1+ε)² ‖D‖² needs; the paper has it inside.

        Args:
            number_of_terms: N > 4. The memory must start from the gradients at X_0.
        """
        check_whole_number("number_of_terms", number_of_terms, least=5)
        terms = number_of_terms
        smoothness, rho = self.merit_smoothness, self.rho
        drift = (1 + self.safe_radius) * self.constants.smoothness
        return (
            self._safeguard(3 * self.field_bound),
            rho / smoothness,
            1 / (math.sqrt(8 * terms) * drift) if drift else math.inf,
            (rho / (8 * terms * (4 * terms + 2) * smoothness * drift**2)) ** (1 / 3) if drift else math.inf,
        )

    def saga_step(self, number_of_terms: int) -> float:
        """Largest step of landing SAGA, section 3.3: the smallest of `saga_bounds`.

        Args:
            number_of_terms: N > 4. The memory must start from the gradients at X_0.
        """
        return min(self.saga_bounds(number_of_terms))

    def _safeguard(self, field_bound: float) -> float:
        return safeguard_lower_bound(field_bound, attraction=self.attraction, safe_radius=self.safe_radius)
