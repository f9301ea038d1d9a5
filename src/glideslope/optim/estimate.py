"""Gradient sources of the optimizers: heavy-ball momentum and Adam's moments. They know nothing of the manifold.

A matrix whose gradient is not finite keeps its moments and is reported as inactive.
"""

from __future__ import annotations

import torch
from torch import Tensor

from glideslope.formulas.arguments import REAL_TYPE
from glideslope.formulas.field import without_normal_part
from glideslope.formulas.orthogonality import frobenius, per_matrix
from glideslope.formulas.rounding import zero_where_not_finite_
from glideslope.optim.bucket import Bucket


def heavy_ball(
    bucket: Bucket, G: Tensor, *, momentum: float, dampening: float, nesterov: bool
) -> tuple[Tensor, Tensor]:
    """Momentum of torch.optim.SGD on the Euclidean gradient: the estimate, and which matrices are active."""
    clean, active = finite_part(bucket, G)
    return add_momentum(bucket, clean, active, momentum=momentum, dampening=dampening, nesterov=nesterov), active


def add_momentum(
    bucket: Bucket, clean: Tensor, active: Tensor, *, momentum: float, dampening: float, nesterov: bool
) -> Tensor:
    """The estimate of `heavy_ball` from a gradient without what is not finite, which may be written."""
    if not momentum:
        return clean
    buffer = bucket.buffer("momentum_buffer")
    gain = active.to(REAL_TYPE[clean.dtype])
    decay = 1 - gain * (1 - momentum)
    if dampening:
        steps = bucket.numbers("steps", torch.int64)
        gain = torch.where(steps == 0, gain, gain * (1 - dampening))
        steps.add_(active)
    buffer.mul_(per_matrix(decay)).addcmul_(clean, per_matrix(gain))
    return clean.add_(buffer, alpha=momentum) if nesterov else buffer


def adam_moments(
    bucket: Bucket, X: Tensor, G: Tensor, *, betas: tuple[float, float], eps: float
) -> tuple[Tensor, Tensor]:
    """Adam's direction with one second moment per matrix, the mean square of its entries.

    The moments are of the gradient without its normal part, which does not vanish at a constrained optimum. The
    direction has entries of size one, as Adam's, divided by √n: columns of size one.
    """
    clean, active = finite_part(bucket, G)
    clean.copy_(without_normal_part(X, clean))
    return update_moments(bucket, clean, active, frobenius(clean).square(), G.shape[-2], betas=betas, eps=eps)


def update_moments(
    bucket: Bucket,
    clean: Tensor,
    active: Tensor,
    square: Tensor,
    n: int,
    *,
    betas: tuple[float, float],
    eps: float,
) -> tuple[Tensor, Tensor]:
    """The direction of `adam_moments` from a gradient without its normal part, which is overwritten.

    Args:
        bucket: Whose moments.
        clean: The gradients, or some of their rows.
        active: Which matrices may change.
        square: ‖clean‖_F² of each matrix, over all of its rows.
        n: The number of all rows.
        betas: Decay of the moments.
        eps: Added to the root of the second moment.
    """
    real = REAL_TYPE[clean.dtype]
    mean_square = square / (n * clean.shape[-1])
    active = active & torch.isfinite(mean_square)
    gain = active.to(real)
    steps = bucket.numbers("steps", torch.int64).add_(active)
    first = bucket.buffer("first_moment")
    second = bucket.numbers("second_moment", real)
    first.mul_(per_matrix(1 - gain * (1 - betas[0]))).addcmul_(clean, per_matrix(gain * (1 - betas[0])))
    second.copy_(torch.where(active, second * betas[1] + mean_square * (1 - betas[1]), second))
    age = steps.clamp(min=1).to(real)
    correction = (1 - betas[1] ** age).sqrt() / (1 - betas[0] ** age)
    scale = correction / (second.sqrt() + eps * (1 - betas[1] ** age).sqrt()) / n**0.5
    return clean.copy_(first).mul_(per_matrix(scale)), active


def finite_part(bucket: Bucket, G: Tensor) -> tuple[Tensor, Tensor]:
    """A copy of G with zeros for what is not finite, and which matrices were finite throughout."""
    active = torch.isfinite(G.sum(dim=(-2, -1)))
    memory = bucket.workspace.memory("estimate", G, *G.shape[-2:])
    clean = G.clone() if memory is None else memory.copy_(G)
    return zero_where_not_finite_(clean), active
