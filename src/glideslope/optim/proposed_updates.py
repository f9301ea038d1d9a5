"""Landing along updates that another optimizer proposes: what it is shown, and where its update leads to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from glideslope.engine.rounding import zero_where_not_finite_
from glideslope.engine.row_blocks import Summed
from glideslope.formulas.orthogonality import per_matrix
from glideslope.optim.base import Group
from glideslope.optim.bucket import Bucket
from glideslope.optim.landing import LandingOptimizer
from glideslope.optim.momentum_and_adam import Estimate
from glideslope.optim.options import rule_of
from glideslope.optim.sharded_bucket import Sharded
from glideslope.ranks.agreement import check_fingerprint
from glideslope.ranks.dtensors import local_part
from glideslope.ranks.sums import run_in_bundles
from glideslope.stiefel.scales import divided_by_scale, fixed_scale


class ProposalLanding(LandingOptimizer):
    """Landing steps along proposals: `remember`, `lend`, let the other optimizer move, then `land` or `undo`."""

    def __init__(self, params: Any, defaults: Group) -> None:
        self._before: dict[Tensor, Tensor] = {}
        self._proposed: dict[Tensor, Tensor] = {}
        self._lent: dict[Tensor, tuple[Tensor, Tensor, Tensor]] = {}
        super().__init__(params, {**defaults, "maximize": False})

    @torch.no_grad()
    def remember(self) -> None:
        """Keep the points that the constrained parameters are at."""
        for param in self._constrained():
            if param not in self._before:
                self._before[param] = torch.empty_like(param)
                self._proposed[param] = torch.empty_like(param)
        points, before, _ = self._local_parts()
        torch._foreach_copy_(before, points)

    @torch.no_grad()
    def lend(self) -> None:
        """Replace the gradients of constrained parameters by their tangent parts, until `take_back`."""
        self._check_gradients([[param.grad for param in group["params"]] for group in self.param_groups])
        sharded: list[tuple[Sharded, Group]] = []
        for index, group in enumerate(self.param_groups):
            params = [param for param in group["params"] if param.grad is not None] if group["orthogonal"] else []
            for bucket in self._buckets(index, group, params) if params else []:
                if isinstance(bucket, Sharded):
                    sharded.append((bucket, group))
                else:
                    self._lend(bucket, *self._tangent_gradients(bucket, group))
        if self._has_sharded:
            check_fingerprint(type(self).__name__, self.param_groups, super()._gradients_of)
            run_in_bundles([bucket for bucket, _ in sharded], lambda _, i: self._lend_sharded(*sharded[i]))

    def take_back(self) -> None:
        """Make the gradients those of the caller again."""
        for param, (given, _, _) in self._lent.items():
            param.grad = given
        self._lent.clear()

    @torch.no_grad()
    def undo(self) -> None:
        """Put the constrained parameters back where they were remembered, and their gradients to the caller's."""
        points, before, _ = self._local_parts()
        torch._foreach_copy_(points, before)
        self.take_back()

    @torch.no_grad()
    def land(self) -> None:
        """Step along what has been proposed since `remember`, from there."""
        points, before, proposed = self._local_parts()
        torch._foreach_copy_(proposed, before)
        torch._foreach_sub_(proposed, points)
        torch._foreach_copy_(points, before)
        self._step_groups()
        self.take_back()

    def _check_options(self, group: Group) -> None:
        if group["scale"] == "free":
            raise ValueError(
                'attach_landing: scale="free" needs the radial part of the gradient, which an attached optimizer does '
                'not see; use LandingSGD or LandingAdam, or scale="modular" or a number'
            )
        rule_of(group)

    def _constrained(self) -> list[Tensor]:
        return [param for group in self.param_groups if group["orthogonal"] for param in group["params"]]

    def _local_parts(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """This rank's parts of the constrained parameters, of their points before the step, and of their proposals."""
        points = self._constrained()
        before, proposed = ([table[param] for param in points] for table in (self._before, self._proposed))
        if self._has_sharded:
            points, before, proposed = (list(map(local_part, tensors)) for tensors in (points, before, proposed))
        return points, before, proposed

    def _tangent_gradients(self, bucket: Bucket, group: Group) -> Any:
        """The gradients without their normal parts, which per-entry scaling would mix in, and which are finite."""
        X = bucket.matrices_of([param.detach() for param in bucket.params])
        X = divided_by_scale(X, fixed_scale(group["scale"], tuple(bucket.params[0].shape), bucket.view))
        G = bucket.matrices_of([param.grad for param in bucket.params if param.grad is not None]).clone()
        finite = torch.isfinite(G.sum(dim=(-2, -1)))
        return bucket.tangent(X, zero_where_not_finite_(G), finite)

    def _lend(self, bucket: Bucket, tangent: Tensor, finite: Tensor) -> None:
        """Let the optimizer see tangent gradients: zero for one that is not finite, so that its moments survive it."""
        lent = bucket.tensors_of(torch.where(per_matrix(finite), tangent, 0))
        parts = finite.view(len(lent), -1).unbind(0)
        for param, tensor, part in zip(bucket.params, lent, parts, strict=True):
            assert param.grad is not None
            self._lent[param] = (param.grad, tensor, part)
            param.grad = tensor

    def _lend_sharded(self, bucket: Sharded, group: Group) -> Summed[None]:
        self._lend(bucket, *(yield from self._tangent_gradients(bucket, group)))

    def _gradients_of(self, params: Sequence[Tensor]) -> list[Tensor | None]:
        return [None if param.grad is None else self._proposed.get(param) for param in params]

    def _estimate(self, bucket: Bucket, X: Tensor, G: Tensor, known: None, group: Group) -> Estimate:
        if not all(param in self._lent for param in bucket.params):
            return Estimate(G, 1.0)
        finite = torch.cat([self._lent[param][2] for param in bucket.params])
        return Estimate(G, 1.0, finite if G.ndim == 3 else finite.squeeze(0))

    def _step_free(self, params: list[Tensor], grads: list[Tensor], group: Group) -> None:
        pass
