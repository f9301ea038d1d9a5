"""RiemannianSGD, the paper's baseline, (3) and (9): the Riemannian gradient and a retraction in every step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from glideslope.engine.products import Pair
from glideslope.engine.rounding import zero_where_not_finite_
from glideslope.formulas.arguments import METRICS, check_option, check_radius
from glideslope.formulas.field import metric_of_shape, riemannian_gradient, tangent_part
from glideslope.formulas.orthogonality import frobenius, per_matrix
from glideslope.formulas.retraction import RETRACTIONS, retract
from glideslope.optim.base import Group, StiefelOptimizer
from glideslope.optim.bucket import Bucket
from glideslope.optim.momentum_and_adam import Momentum, Products, keep_tangent_momentum, momentum_direction
from glideslope.optim.options import check_learning_rate, check_sgd_options, learning_rate
from glideslope.optim.torch_steps import sgd_step

# Beyond this length the Cayley and exponential retractions lose orthonormality in float32; both only wind around.
LONGEST_STEP = 20.0


class RiemannianSGD(StiefelOptimizer):
    r"""Riemannian SGD, eq. (9) and, with the full gradient, (3): X <- R(X, -lr grad f(X)).

    Momentum is that of LandingSGD: the buffer holds tangent matrices.

    Args:
        params: The model, its parameters, named parameters or groups, as for LandingSGD.
        lr: Learning rate, a number or a tensor.
        momentum: Momentum factor. The buffer loses its normal part in every step.
        dampening: Dampening of the momentum.
        weight_decay: L2 penalty of the free parameters; no effect on a constrained matrix.
        nesterov: Nesterov's momentum.
        retraction: "qr", "polar", "cayley" or "exponential".
        metric: "euclidean", or "canonical", eq. (5).
        safe_radius: How far from orthonormal a matrix may start; the first steps mend it.
        maximize: Maximise instead of minimise.
        foreach: Step matrices of equal shape as one batch: True, False, or None to decide by size.

    Examples:
        >>> X = torch.nn.Parameter(gs.random_stiefel(20, 3))
        >>> optimizer = gs.RiemannianSGD([X], lr=0.1, retraction="polar")
        >>> (X.sum() ** 2).backward(); optimizer.step()
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        retraction: str = "qr",
        metric: str = "euclidean",
        safe_radius: float = 0.5,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "momentum": momentum,
                "dampening": dampening,
                "weight_decay": weight_decay,
                "nesterov": nesterov,
                "retraction": retraction,
                "metric": metric,
                "safe_radius": safe_radius,
                "maximize": maximize,
                "foreach": foreach,
            },
        )

    def _check_options(self, group: Group) -> None:
        check_learning_rate(group)
        check_sgd_options(group)
        check_option("retraction", group["retraction"], tuple(RETRACTIONS))
        check_option("metric", group["metric"], METRICS)
        check_radius(group["safe_radius"])

    def _step_bucket(self, bucket: Bucket, given: list[Tensor], group: Group) -> None:
        X, G = bucket.points(), bucket.gradients(given)
        G = -G if group["maximize"] else G
        momentum = Momentum.of(group)
        estimate, active = momentum_direction(bucket, G, momentum)
        if momentum.momentum:
            S, C = X.mH @ X, X.mH @ estimate
            keep_tangent_momentum(bucket, X, Products(estimate, active, Pair(S, C), square=False), momentum)
            T = tangent_part(X, estimate, S, C, metric_of_shape(group["metric"], *X.shape[-2:]))
        else:
            T = riemannian_gradient(X, estimate, metric=group["metric"])
        Z = T * -learning_rate(group)
        if group["retraction"] in ("cayley", "exponential"):
            length = frobenius(Z)
            Z = Z * per_matrix(LONGEST_STEP / length.clamp(min=LONGEST_STEP))
            bucket.numbers("shortened", torch.int64).add_(length > LONGEST_STEP)
        start = zero_where_not_finite_(X.clone())
        retracted = retract(start, zero_where_not_finite_(Z.clone()), kind=group["retraction"])
        finite = torch.isfinite((X + Z + retracted).sum(dim=(-2, -1)))
        moves = active & finite
        bucket.numbers("skipped", torch.int64).add_(moves.logical_not())
        X.copy_(torch.where(per_matrix(moves), retracted, X))

    def _step_free(self, params: list[Tensor], grads: list[Tensor], group: Group) -> None:
        sgd_step(params, grads, [self.state[param] for param in params], group)
