"""Scales of a step: of X = σ Y the landing step moves Y, and where σ is free, the radial part of the gradient moves σ.

X - lr (G - X sym(X^H G)/σ²) is the step of Y along G with step size lr/σ. In the metric of matrices ‖σ' Y‖_F = |σ'| √p,
so a gradient step on X changes σ by -lr Re<G, Y>/p. A free σ is ‖X‖_F/√p at the first step and state from then on: the
safe region and the pull are those of Y = X/σ for one σ, and the second order of a tangent step, which makes X longer,
is taken back by the normal part and does not add up in σ.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from glideslope.engine.rule import StepOutcome
from glideslope.formulas.arguments import REAL_TYPE
from glideslope.optim.bucket import Bucket
from glideslope.optim.momentum_and_adam import Estimate
from glideslope.stiefel.scales import fixed_scale

Group = dict[str, Any]

# State entries of one number per matrix.
RADIAL_STATE = ("scale", "radial_moment", "root_radial_moment")
# The most that σ may change in one step.
LARGEST_FACTOR = 2.0


def fixed_scale_of(bucket: Bucket, group: Group) -> float | None:
    """σ of the matrices of a bucket, None if it is free."""
    return 1.0 if group["scale"] == 1 else fixed_scale(group["scale"], tuple(bucket.params[0].shape), bucket.view)


def to_units_(bucket: Bucket, X: Tensor, group: Group, sizes: tuple[Tensor, Tensor] | None) -> Tensor | None:
    """Divide X by σ, until the bucket's `multiply_`; of a free scale the radial part of the gradient.

    Args:
        bucket: Whose points.
        X: The points.
        group: Their options.
        sizes: Of a free scale ‖X‖_F and Re<G, X>.
    """
    sigma, radial = (fixed_scale_of(bucket, group) or 1.0, None) if sizes is None else free_scale(bucket, *sizes)
    bucket.divide_(X, sigma)
    return radial


def in_units(estimate: Estimate, sigma: float | Tensor) -> Estimate:
    """The estimate with its step size for X/σ, which moves by 1/σ of what X does."""
    if isinstance(sigma, Tensor) or sigma != 1:
        return estimate._replace(step_size=estimate.step_size / sigma)
    return estimate


def free_scale(bucket: Bucket, norm: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """σ of each matrix, and the radial part Re<G, Y>/p of its gradient, from ‖X‖_F and Re<G, X>.

    In the safe region |‖X‖²/(pσ²) - 1| <= ε < 1. A matrix well beyond that was changed from outside, and σ follows.
    """
    p, known = bucket.matrix_shape[-1], bucket.numbers("scale", REAL_TYPE[bucket.dtype])
    own = norm / p**0.5
    own = torch.where(torch.isfinite(own) & (own > 0), own, 1.0)
    unchanged = ((own / known).square() - 1).abs() <= (1 + bucket.rule.safe_radius) / 2
    sigma = known.copy_(torch.where(unchanged, known, own)).clone()
    return sigma, slope / sigma / p


def move_scale(bucket: Bucket, change: Tensor) -> None:
    """σ <- σ - change, by a factor of 2 at most; a matrix whose change is NaN keeps its σ.

    Also σ stays between the roots of the smallest and the largest number of the parameter's type, or comes back there.
    """
    sigma, limits = bucket.sigma, torch.finfo(bucket.params[0].dtype)
    assert isinstance(sigma, Tensor)
    least = torch.minimum(sigma, (sigma / LARGEST_FACTOR).clamp(min=limits.tiny**0.5))
    most = torch.maximum(sigma, (sigma * LARGEST_FACTOR).clamp(max=limits.max**0.5))
    bucket.sigma = torch.where(torch.isnan(change), sigma, torch.clamp(sigma - change, least, most))
    bucket.numbers("scale", sigma.dtype).copy_(bucket.sigma)


def of_moved(radial: Tensor, outcome: StepOutcome) -> Tensor:
    """The radial part, NaN for matrices that were skipped or recovered."""
    return radial.masked_fill(torch.as_tensor(outcome.skipped | outcome.recovered, device=radial.device), torch.nan)


def adam_radial(bucket: Bucket, radial: Tensor, *, betas: tuple[float, float], eps: float) -> Tensor:
    """Adam's direction for σ as a scalar parameter: of size one, from moments of its own; NaN where there is none.

    Not with the second moment of the matrix: that vanishes where X is a solution for this σ, and σ would jump.
    """
    real = radial.dtype
    first, root = (bucket.numbers(name, real) for name in RADIAL_STATE[1:])
    finite = torch.isfinite(radial)
    first.copy_(torch.where(finite, torch.lerp(radial, first, betas[0]), first))
    size = radial.abs() * (1 - betas[1]) ** 0.5
    root.copy_(torch.where(finite, torch.hypot(root * betas[1] ** 0.5, size), root))
    age = bucket.numbers("steps", torch.int64).clamp(min=1).to(real)
    correction = (1 - betas[1] ** age).sqrt()
    direction = first / (1 - betas[0] ** age) * correction / (root + eps * correction)
    return direction.masked_fill(finite.logical_not(), torch.nan)
