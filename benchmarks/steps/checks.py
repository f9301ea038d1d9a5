"""Is the result right? A method's first step from X along G is compared with its definition before it is timed.

Errors are per matrix. A check returns None, or one sentence that says what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benchmarks.steps.workloads import Case

HALF = torch.bfloat16


def movement(dtype: torch.dtype) -> float:
    """Learning rate of the checked step, whose gradient has norm one: far above rounding, far below curvature."""
    return 0.3 if dtype == HALF else 1e-2


def rounding(case: Case) -> float:
    """What rounding may add to an entry of size one."""
    return torch.finfo(case.dtype).eps * (1 if case.dtype == HALF else 16)


def is_close(case: Case, got: Sequence[Tensor], expected: Sequence[Tensor], slack: Callable[[Tensor], Tensor]) -> str:
    """An empty string if ‖got - expected‖ is below slack(‖expected - X‖) and rounding, else by how much it is not."""
    worst = 0.0
    for result, reference, X in zip(case.exact(got), expected, case.start, strict=True):
        allowed = slack(norm(reference - X)) + rounding(case) * norm(X)
        worst = max(worst, (norm(result - reference) / allowed).nan_to_num(nan=torch.inf).max().item())
    return "" if worst <= 1 else f"{worst:.3g} times the tolerance away from its definition"


def equals(case: Case, got: Sequence[Tensor], expected: Sequence[Tensor]) -> str | None:
    """Compare with the literal definition: 0.5 % of the step, and rounding."""
    return is_close(case, got, expected, lambda length: 5e-3 * length) or None


def retracts(case: Case, got: Sequence[Tensor], expected: Sequence[Tensor]) -> str | None:
    """Compare a retraction with X - lr T: orthonormal to rounding, and equal up to 2 ‖lr T‖²."""
    return is_orthonormal(case, got) or is_close(case, got, expected, lambda length: 2 * length.square()) or None


def is_orthonormal(case: Case, got: Sequence[Tensor]) -> str | None:
    """‖X^H X - I‖ against the rounding of p columns."""
    for result in case.exact(got):
        p = result.shape[-1]
        identity = torch.eye(p, dtype=result.dtype, device=result.device)
        distance = norm(result.mH @ result - identity).nan_to_num(nan=torch.inf).max().item()
        if distance > 2 * rounding(case) * p**0.5:
            return f"at distance {distance:.2g} from orthonormal"
    return None


def euclidean_step(case: Case, lr: float) -> list[Tensor]:
    """X - lr G."""
    return [X - lr * G for X, G in zip(case.start, case.slope, strict=True)]


def adamw_direction(X: Tensor, H: Tensor, weight_decay: float = 0.01, eps: float = 1e-8) -> Tensor:
    """AdamW's first update divided by lr: H / (|H| + eps) + decay X, for real and imaginary parts apart."""
    parts = torch.view_as_real(H) if H.is_complex() else H
    scaled = parts / (parts.abs() + eps)
    return (torch.view_as_complex(scaled) if H.is_complex() else scaled) + weight_decay * X


def adamw_step(case: Case, lr: float) -> list[Tensor]:
    """The first step of torch.optim.AdamW."""
    return [X - lr * adamw_direction(X, G) for X, G in zip(case.start, case.slope, strict=True)]


def canonical(X: Tensor, G: Tensor) -> Tensor:
    """skew(G X^H) X = ½ (G X^H X - X G^H X)."""
    return (G @ (X.mH @ X) - X @ (G.mH @ X)) / 2


def euclidean(X: Tensor, G: Tensor) -> Tensor:
    """G - X sym(X^H G)."""
    C = X.mH @ G
    return G - X @ (C + C.mH) / 2


def normal(X: Tensor) -> Tensor:
    """X (X^H X - I)."""
    return X @ (X.mH @ X) - X


def tangent_step(case: Case, lr: float) -> list[Tensor]:
    """X - lr (G - X sym(X^H G)), which retractions follow."""
    return [X - lr * euclidean(X, G) for X, G in zip(case.start, case.slope, strict=True)]


def landing_step(case: Case, lr: float) -> list[Tensor]:
    """X - lr (G - X sym(X^H G)) - ½ X (X^H X - I)."""
    return [M - normal(X) / 2 for M, X in zip(case.expected(tangent_step, lr), case.start, strict=True)]


def newton_schulz_step(case: Case, lr: float) -> list[Tensor]:
    """M (1.5 I - ½ M^H M) with M = X - lr (G - X sym(X^H G))."""
    return [M - normal(M) / 2 for M in case.expected(tangent_step, lr)]


def pogo_step(case: Case, lr: float) -> list[Tensor]:
    """POGO's: M (1.5 I - ½ M^H M) with M = X - lr skew(G X^H) X, in the canonical metric."""
    moved = [X - lr * canonical(X, G) for X, G in zip(case.start, case.slope, strict=True)]
    return [M - normal(M) / 2 for M in moved]


def landing_adam_step(case: Case, lr: float) -> list[Tensor]:
    """The first step of LandingAdam: H = G - X sym(X^H G) in units of its root mean square, then Newton-Schulz."""
    steps = []
    for X, G in zip(case.start, case.slope, strict=True):
        n, p = X.shape[-2:]
        H = euclidean(X, G)
        root_mean_square = norm(H)[..., None, None] / (n * p) ** 0.5
        M = X - lr * euclidean(X, H / root_mean_square)
        steps.append(M - normal(M) / 2)
    return steps


def attached_step(case: Case, lr: float) -> list[Tensor]:
    """AdamW's first update of the tangent gradient, made tangent, then Newton-Schulz."""
    steps = []
    for X, G in zip(case.start, case.slope, strict=True):
        M = X - euclidean(X, lr * adamw_direction(X, euclidean(X, G)))
        steps.append(M - normal(M) / 2)
    return steps


def four_products(case: Case, _: float) -> list[Tensor]:
    """X (X^H G) + G (X^H X)."""
    return [X @ (X.mH @ G) + G @ (X.mH @ X) for X, G in zip(case.start, case.slope, strict=True)]


def three_products(case: Case, _: float) -> list[Tensor]:
    """(G X^H) X."""
    return [(G @ X.mH) @ X for X, G in zip(case.start, case.slope, strict=True)]


def norm(M: Tensor) -> Tensor:
    """Frobenius norms of a batch."""
    norms: Tensor = torch.linalg.matrix_norm(M)
    return norms
