"""Gradient estimates of the optimizers: heavy-ball momentum and Adam's moments.

Both remember tangent matrices only: what they accumulate has lost its normal part, G - X sym(X^H G), at the X where the
gradient was taken. A matrix whose gradient is not finite keeps its moments and is reported as inactive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from glideslope.engine.gradient import add_product_
from glideslope.engine.products import Pair, is_on_host
from glideslope.engine.rounding import overflow_free_norm, zero_where_not_finite_
from glideslope.formulas.arguments import REAL_TYPE
from glideslope.formulas.field import sym
from glideslope.formulas.orthogonality import frobenius, per_matrix

if TYPE_CHECKING:
    from glideslope.optim.bucket import Bucket

# X sym(X^H D) is a normal part for X near the manifold. A matrix whose columns are longer than this, in root mean
# square, as after a bad load, keeps its momentum as it is until it is back.
LONGEST_COLUMN = 2.0


class Products(NamedTuple):
    """A direction D at X, and their products over all rows of the matrices."""

    D: Tensor
    active: Tensor
    """Which matrices may move."""
    pair: Pair
    """Of X and D; of the square form only if the matrices are in one place."""
    square: bool
    """Whether the step has a square form."""
    in_rows: bool = False
    """Whether X and D are rows of matrices that are on many ranks."""


class Estimate(NamedTuple):
    """A gradient estimate, the step size along it, and which matrices may move (None for all)."""

    G: Tensor
    step_size: float | Tensor
    active: Tensor | None = None
    products: Products | None = None
    """Of X and G, where the estimate needed them already."""


class Momentum(NamedTuple):
    """The options of torch.optim.SGD's momentum."""

    momentum: float
    dampening: float
    nesterov: bool

    @property
    def share(self) -> float:
        """The part of a direction that goes into the buffer."""
        return 1 / (1 + self.momentum) if self.nesterov else 1.0

    @classmethod
    def of(cls, group: dict[str, Any]) -> Momentum:
        """The options of a group."""
        return cls(group["momentum"], group["dampening"], group["nesterov"])


def momentum_direction(bucket: Bucket, G: Tensor, options: Momentum) -> tuple[Tensor, Tensor]:
    """The direction D of torch.optim.SGD from the gradient G and the buffer B, and which matrices are active.

    D = m B + G; with dampening m B + (1 - dampening) G after the first step; with Nesterov's momentum
    G + m (m B + G). The buffer is not changed. A matrix is inactive where D is not finite or close to overflow.
    """
    momentum, dampening, nesterov = options
    memory = bucket.workspace.memory("estimate", G, *G.shape[-2:])
    direction = torch.empty_like(G) if memory is None else memory
    if not momentum:
        direction.copy_(G)
    elif dampening:
        steps = bucket.numbers("steps", torch.int64)
        gain = torch.where(steps == 0, 1.0, 1.0 - dampening).to(REAL_TYPE[G.dtype])
        direction.copy_(bucket.buffer("momentum_buffer")).mul_(momentum).addcmul_(G, per_matrix(gain))
    elif nesterov:
        direction.copy_(G).mul_(1 + momentum).add_(bucket.buffer("momentum_buffer"), alpha=momentum**2)
    else:
        direction.copy_(G).add_(bucket.buffer("momentum_buffer"), alpha=momentum)
    return direction, overflow_free_norm(direction) < torch.finfo(G.dtype).max / (8 + 8 * G.shape[-1])


def keep_momentum(bucket: Bucket, direction: Tensor, active: Tensor, options: Momentum) -> Tensor | None:
    """Store the buffer B <- m B + G that belongs to a direction, for the active matrices.

    Returns:
        The mask of these matrices, to broadcast over their entries; None where it is known that all are active.
    """
    everything = is_on_host(active) and bool(active.all() if active.ndim else active)
    moving = None if everything else per_matrix(active)
    if not options.momentum:
        return moving
    if options.dampening:
        bucket.numbers("steps", torch.int64).add_(active)
    buffer = bucket.buffer("momentum_buffer")
    # With Nesterov's momentum D = (1 + m) G + m² B, so m B + G = B + (D - B) / (1 + m).
    if moving is None:
        buffer.lerp_(direction, options.share) if options.nesterov else buffer.copy_(direction)
    elif options.nesterov:
        buffer.copy_(torch.where(moving, torch.lerp(buffer, direction, options.share), buffer))
    elif torch.compiler.is_compiling():
        buffer.copy_(torch.where(moving, direction, buffer))
    else:
        torch.where(moving, direction, buffer, out=buffer)
    return moving


def keep_tangent_momentum(bucket: Bucket, X: Tensor, products: Products, options: Momentum) -> None:
    """`keep_momentum` less the normal part X sym(C), C = X^H D, of the direction D at this X. One product.

    A gradient's normal part does not vanish at a constrained solution. A buffer that kept it would hold several times
    a large normal matrix, whose tangent part at the next X drives the iterate away. In the square form the normal part
    is sym(D X^H) X; for some of the rows only, that is ½ (D S + X C^H) with S = X^H X.
    """
    direction, active, (S, C, _), square, in_rows = products
    near = frobenius(S) <= LONGEST_COLUMN**2 * X.shape[-1] ** 0.5
    moving = keep_momentum(bucket, direction, active & near, options)
    buffer, share = bucket.buffer("momentum_buffer"), options.share
    if moving is not None:
        C = torch.where(moving, C, 0)
    if not square:
        add_product_(buffer, X, sym(C), alpha=-share)
    elif not in_rows:
        add_product_(buffer, sym(C), X, alpha=-share)
    else:
        add_product_(buffer, direction, S if moving is None else torch.where(moving, S, 0), alpha=-share / 2)
        add_product_(buffer, X, C.mH, alpha=-share / 2)


def adam_moments(
    bucket: Bucket, tangent: Tensor, active: Tensor, norm: Tensor, *, betas: tuple[float, float], eps: float
) -> tuple[Tensor, Tensor]:
    """Adam's direction with one second moment per matrix, the mean square of its entries, and what is active.

    The direction has entries of size one, as Adam's, divided by √n: columns of size one.

    Args:
        bucket: Whose moments.
        tangent: The gradient without its normal part, which does not vanish at a constrained optimum; overwritten.
        active: Which matrices may change.
        norm: ‖tangent‖_F of each matrix, over all of its rows.
        betas: Decay of the moments.
        eps: Added to the root of the second moment.
    """
    (n, p), real = bucket.matrix_shape[-2:], REAL_TYPE[tangent.dtype]
    size = norm / (n * p) ** 0.5
    active = active & torch.isfinite(size)
    gain = active.to(real)
    steps = bucket.numbers("steps", torch.int64).add_(active)
    first = bucket.buffer("first_moment")
    # Kept as its root, because the square of a large gradient overflows.
    root = bucket.numbers("root_second_moment", real)
    first.mul_(per_matrix(1 - gain * (1 - betas[0]))).addcmul_(tangent, per_matrix(gain * (1 - betas[0])))
    root.copy_(torch.where(active, torch.hypot(root * betas[1] ** 0.5, size * (1 - betas[1]) ** 0.5), root))
    age = steps.clamp(min=1).to(real)
    correction = (1 - betas[1] ** age).sqrt() / (1 - betas[0] ** age)
    scale = correction / (root + eps * (1 - betas[1] ** age).sqrt()) / n**0.5
    return tangent.copy_(first).mul_(per_matrix(scale)), active


def finite_part(bucket: Bucket, G: Tensor) -> tuple[Tensor, Tensor]:
    """A copy of G with zeros for what is not finite, and which matrices were finite throughout."""
    active = torch.isfinite(overflow_free_norm(G))
    memory = bucket.workspace.memory("estimate", G, *G.shape[-2:])
    clean = G.clone() if memory is None else memory.copy_(G)
    return zero_where_not_finite_(clean), active
