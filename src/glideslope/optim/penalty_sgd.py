"""PenaltySGD, the baseline of section 3.4: plain SGD on f + λ N, which does not enforce the constraint."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from glideslope.formulas.arguments import check_positive
from glideslope.formulas.orthogonality import per_matrix
from glideslope.formulas.penalty import penalised_gradient
from glideslope.optim.base import Group, StiefelOptimizer
from glideslope.optim.bucket import Bucket
from glideslope.optim.momentum_and_adam import Momentum, keep_momentum, momentum_direction
from glideslope.optim.options import check_learning_rate, check_sgd_options, learning_rate
from glideslope.optim.torch_steps import sgd_step


class PenaltySGD(StiefelOptimizer):
    r"""SGD on the penalised function f(X) + λ N(X), N(X) = ¼ ‖X^H X - I‖_F², section 3.4.

    Nothing keeps the matrices near orthonormal but the penalty: there is no safe region and no guarantee.

    Args:
        params: The model, its parameters, named parameters or groups, as for LandingSGD.
        lr: Learning rate, a number or a tensor.
        momentum: Momentum factor of the penalised gradient.
        dampening: Dampening of the momentum.
        weight_decay: L2 penalty of all parameters.
        nesterov: Nesterov's momentum.
        penalty_weight: Weight λ > 0 of the penalty N.
        maximize: Maximise f; the penalty is still kept small.
        foreach: Step matrices of equal shape as one batch: True, False, or None to decide by size.

    Examples:
        >>> X = torch.nn.Parameter(gs.random_stiefel(20, 3))
        >>> optimizer = gs.PenaltySGD([X], lr=0.01, penalty_weight=10.0)
        >>> (X.sum() ** 2).backward(); optimizer.step()
    """

    keeps_safe = False

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        penalty_weight: float = 1.0,
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
                "penalty_weight": penalty_weight,
                "maximize": maximize,
                "foreach": foreach,
            },
        )

    def _check_options(self, group: Group) -> None:
        check_learning_rate(group)
        check_sgd_options(group)
        check_positive(penalty_weight=group["penalty_weight"])

    def _step_bucket(self, bucket: Bucket, given: list[Tensor], group: Group) -> None:
        X, G = bucket.points(), bucket.gradients(given)
        G = -G if group["maximize"] else G
        G = penalised_gradient(X, G, penalty_weight=group["penalty_weight"])
        if group["weight_decay"]:
            G = G + group["weight_decay"] * X
        momentum = Momentum.of(group)
        estimate, active = momentum_direction(bucket, G, momentum)
        keep_momentum(bucket, estimate, active, momentum)
        moved = X - estimate * learning_rate(group)
        moves = active & torch.isfinite(moved.sum(dim=(-2, -1)))
        bucket.numbers("skipped", torch.int64).add_(moves.logical_not())
        X.copy_(torch.where(per_matrix(moves), moved, X))

    def _step_free(self, params: list[Tensor], grads: list[Tensor], group: Group) -> None:
        sgd_step(params, grads, [self.state[param] for param in params], group)
