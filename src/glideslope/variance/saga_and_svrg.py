"""The arithmetic of SAGA and SVRG, section 3.3: the estimate of the gradient, and the mean of what SAGA remembers.

f = Σ_j s_j f_j is a sum over slots, s_j the share of slot j of all terms. The gradients are Euclidean: the landing
field is linear in them, so the field of the estimate is the paper's direction.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

Factors = tuple[Tensor, Tensor]


def variance_reduced(mean: Tensor, change: Tensor, *, weight: float = 1.0, out: Tensor | None = None) -> Tensor:
    """Φ̄ + w_i (∇f_i(X) - Φ_i), the SAGA direction of section 3.3, and SVRG's.

    SAGA: Φ_i is the gradient last seen in slot i, and Φ̄ = Σ_j s_j Φ_j. SVRG: Φ_i = ∇f_i(Z) at an anchor Z, and
    Φ̄ = ∇f(Z). With slots drawn uniformly and w_i = slots · s_i, 1 for equal slots, the expectation is ∇f(X).

    Args:
        mean: Φ̄, any shape.
        change: ∇f_i(X) - Φ_i, same shape.
        weight: w_i.
        out: Where to write the result; may be `change`.
    """
    return torch.add(mean, change, alpha=weight, out=out)


def update_mean_(mean: Tensor, change: Tensor, *, share: float) -> Tensor:
    """Φ̄ + s_i (Φ_i⁺ - Φ_i) in place: SAGA's mean after slot i has been given a new gradient Φ_i⁺.

    Args:
        mean: Φ̄, any shape.
        change: Φ_i⁺ - Φ_i, same shape.
        share: s_i.
    """
    return mean.add_(change, alpha=share)


def mean_of_memory_(mean: Tensor, memory: Iterable[tuple[float, Tensor | Factors]]) -> Tensor:
    """Σ_j s_j Φ_j, written to `mean`: at the start, and from time to time so that rounding does not add up.

    Args:
        mean: Overwritten.
        memory: Pairs of s_j and Φ_j, of the same shape and possibly a narrower type; or s_j and the factors A, W of
            Φ_j = A^H W.
    """
    mean.zero_()
    for share, gradient in memory:
        if isinstance(gradient, Tensor):
            mean.add_(gradient, alpha=share)
        else:
            A, W = gradient
            mean.addmm_(A.mH, W, alpha=share)
    return mean
