"""attach_landing: any torch optimizer proposes an update, and a landing step takes its tangent part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from glideslope.formulas.field import without_normal_part
from glideslope.formulas.orthogonality import per_matrix
from glideslope.formulas.rounding import zero_where_not_finite_
from glideslope.formulas.row_blocks import Summed, tangent_rows
from glideslope.optim.base import Group
from glideslope.optim.bucket import Bucket, Stack
from glideslope.optim.landing import Estimate, LandingOptimizer, RowEstimate, rule_of, run_in_bundles
from glideslope.optim.ranks import check_fingerprint
from glideslope.optim.sharded import Sharded
from glideslope.stiefel.sharding import local_part
from glideslope.stiefel.views import as_matrices, copy_matrices_

AnyOptimizer = TypeVar("AnyOptimizer", bound=torch.optim.Optimizer)


class Landing(LandingOptimizer):
    """The landing part of an optimizer with `attach_landing`: its hooks, constrained parameters and diagnostics."""

    def __init__(self, optimizer: torch.optim.Optimizer, params: Any, defaults: Group) -> None:
        self._before: dict[Tensor, Tensor] = {}
        self._proposed: dict[Tensor, Tensor] = {}
        self._lent: dict[Tensor, tuple[Tensor, Tensor, Tensor]] = {}
        super().__init__(params, {**defaults, "maximize": False})
        stepped = {param for group in optimizer.param_groups for param in group["params"]}
        for group in self.param_groups:
            for name, param in self._named(group):
                if param not in stepped:
                    raise ValueError(
                        f"attach_landing: {name!r} of shape {tuple(param.shape)} is not a parameter of the optimizer; "
                        f"pass parameters that it steps"
                    )
        self._optimizer = optimizer
        self._handles = [
            optimizer.register_step_pre_hook(self._before_step),
            optimizer.register_step_post_hook(lambda *_: self._land()),
        ]

    def detach(self) -> None:
        """Take the hooks off; the optimizer is then what it was."""
        for handle in self._handles:
            handle.remove()
        self._optimizer.landing = None  # type: ignore[attr-defined]
        self._optimizer.__class__ = type(self._optimizer).__mro__[2]

    def _check_options(self, group: Group) -> None:
        rule_of(group)

    def _constrained(self) -> list[Tensor]:
        return [param for group in self.param_groups if group["orthogonal"] for param in group["params"]]

    def _before_step(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for param in self._constrained():
            if param not in self._before:
                self._before[param] = torch.empty_like(param)
                self._proposed[param] = torch.empty_like(param)
        with torch.no_grad():
            points, before, _ = self._local_parts()
            torch._foreach_copy_(before, points)
        self._lend()
        # A step's arguments begin with the optimizer itself, then its closure.
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            return None

        def lending_closure() -> Any:
            self._take_back()
            loss = closure()
            self._lend()
            return loss

        return (args[0], lending_closure, *args[2:]), {k: v for k, v in kwargs.items() if k != "closure"}

    def _local_parts(self) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """What this rank has of the constrained parameters, of their points before the step, and of their proposals."""
        points = self._constrained()
        before, proposed = ([table[param] for param in points] for table in (self._before, self._proposed))
        if self._has_sharded:
            points, before, proposed = (list(map(local_part, tensors)) for tensors in (points, before, proposed))
        return points, before, proposed

    @torch.no_grad()
    def _lend(self) -> None:
        sharded: list[Sharded] = []
        for index, group in enumerate(self.param_groups):
            params = [param for param in group["params"] if param.grad is not None] if group["orthogonal"] else []
            for bucket in self._buckets(index, group, params) if params else []:
                if isinstance(bucket, Sharded):
                    sharded.append(Sharded(bucket.param, group["view"], {}))
                elif isinstance(bucket, Stack):
                    self._lend_tangent_gradients(bucket)
                else:
                    self._lend_tangent_gradient(bucket.params[0], group["view"])
        if self._has_sharded:
            check_fingerprint(type(self).__name__, self.param_groups, super()._gradients_of)
            run_in_bundles(sharded, lambda bucket, _: self._lend_sharded(bucket))

    def _take_back(self) -> None:
        for param, (given, _, _) in self._lent.items():
            param.grad = given
        self._lent.clear()

    @torch.no_grad()
    def undo(self) -> None:
        """Put parameters and gradients back as they were before a step that did not finish."""
        for param in self._constrained():
            if param in self._before:
                param.copy_(self._before[param])
        self._take_back()

    def _lend_tangent_gradient(self, param: Tensor, view: str) -> None:
        """Let the optimizer see the gradient without its normal part, which per-entry scaling would mix in.

        A matrix whose gradient is not finite is shown zero, so that the optimizer's moments survive it.
        """
        assert param.grad is not None
        X = as_matrices(param.detach(), view, strides_of=param)
        tangent, finite = finite_tangent_part(X, as_matrices(param.grad, view, strides_of=param).clone())
        lent = copy_matrices_(torch.empty_like(param), tangent, view)
        self._lent[param] = (param.grad, lent, finite)
        param.grad = lent

    def _lend_tangent_gradients(self, bucket: Stack) -> None:
        """The same for parameters that are stepped as one stack."""
        grads = [param.grad for param in bucket.params if param.grad is not None]
        X, G = (bucket.matrices(torch.stack(some).to(bucket.dtype).contiguous()) for some in (bucket.params, grads))
        tangent, finite = finite_tangent_part(X, G)
        lent = bucket.stacked(tangent).to(bucket.params[0].dtype).unbind(0)
        parts = finite.view(len(grads), -1).unbind(0)
        for param, given, tensor, part in zip(bucket.params, grads, lent, parts, strict=True):
            self._lent[param] = (given, tensor, part)
            param.grad = tensor

    def _lend_sharded(self, bucket: Sharded) -> Summed[None]:
        """The same for a parameter that is spread over ranks."""
        param, layout = bucket.param, bucket.layout
        given = layout.local(param.detach())
        assert param.grad is not None
        X, G = layout.matrices(given.to(bucket.dtype)), bucket.gradients([param.grad])
        finite = torch.isfinite(G.sum(dim=(-2, -1)))
        clean = zero_where_not_finite_(G.clone())
        tangent, inactive = yield from tangent_rows(X, clean, finite.logical_not().to(clean.dtype))
        finite = inactive == 0
        lent = layout.returned(layout.from_matrices(tangent * per_matrix(finite), given).to(param.dtype))
        self._lent[param] = (param.grad, lent, finite)
        param.grad = lent

    @torch.no_grad()
    def _land(self) -> None:
        points, before, proposed = self._local_parts()
        torch._foreach_copy_(proposed, before)
        torch._foreach_sub_(proposed, points)
        torch._foreach_copy_(points, before)
        self.step()
        self._take_back()

    def _gradients_of(self, params: Sequence[Tensor]) -> list[Tensor | None]:
        return [None if param.grad is None else self._proposed.get(param) for param in params]

    def _estimate(self, bucket: Bucket, X: Tensor, G: Tensor, group: Group) -> Estimate:
        if not all(param in self._lent for param in bucket.params):
            return Estimate(G, 1.0)
        finite = torch.cat([self._lent[param][2].reshape(-1) for param in bucket.params])
        return Estimate(G, 1.0, finite if G.ndim == 3 else finite.squeeze(0))

    def _sharded_estimate(self, bucket: Sharded, X: Tensor, G: Tensor, group: Group) -> Summed[RowEstimate]:
        yield from ()
        return RowEstimate(G, 1.0, self._lent[bucket.param][2] if bucket.param in self._lent else None)

    def _step_free(self, params: list[Tensor], grads: list[Tensor], group: Group) -> None:
        pass


def finite_tangent_part(X: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """G without its normal part, zero for a matrix that is not finite, and which ones are; G may be written."""
    finite = torch.isfinite(G.sum(dim=(-2, -1)))
    return without_normal_part(X, zero_where_not_finite_(G) * per_matrix(finite)), finite


class Attached:
    """What an optimizer with landing attached adds to its own class."""

    landing: Landing

    def step(self, *args: Any, **kwargs: Any) -> Any:
        """The optimizer's step; if it raises, the constrained parameters and their gradients are as before."""
        try:
            return super().step(*args, **kwargs)  # type: ignore[misc]
        except BaseException:
            self.landing.undo()
            raise

    step.hooked = True  # type: ignore[attr-defined] # the step it calls runs torch's hooks; once is enough

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "an optimizer with landing attached cannot be copied or pickled, since torch drops its hooks; save its "
            "state_dict(), or copy before attach_landing and attach to the copy"
        )


def attach_landing(
    optimizer: AnyOptimizer,
    params: Any,
    *,
    attraction: float = 0.5,
    safe_radius: float = 0.5,
    safeguard: str | None = "lemma",
    metric: str = "euclidean",
    normal_step: str = "landing",
    foreach: bool | None = None,
) -> AnyOptimizer:
    r"""Make any torch optimizer keep `params` orthonormal: its proposed update D becomes a landing step.

    During its step the optimizer sees the gradient without its normal part. Afterwards the parameters go back,
    and take X - min(1, η(X)) (T(D) + λ X (X^H X - I)) instead, with T(D) the tangent part of D. Returns the same
    optimizer; `optimizer.landing` has `diagnostics()` and `detach()`.

    Args:
        optimizer: Any torch.optim.Optimizer that steps `params`.
        params: Parameters, named parameters, or groups with a `view` (as from gs.param_groups; free ones are
            left to the optimizer).
        attraction: Weight λ > 0 of the pull towards the manifold per step; ½ is one Newton-Schulz step, and
            more would cap every update at 1/(2λ) of its length.
        safe_radius: Radius ε in (0, 1) of the safe region.
        safeguard: "lemma", "exact" or None.
        metric: "euclidean", the tangent part as it is, or "canonical", half of it outside of span(X).
        normal_step: "landing", "newton-schulz" or "polar".
        foreach: Step matrices of equal shape as one batch: True, False, or None to decide by size.
    """
    if getattr(optimizer, "landing", None) is not None:
        raise ValueError(
            "attach_landing: this optimizer has landing attached already; optimizer.landing.detach() first"
        )
    options = {
        "attraction": attraction,
        "safe_radius": safe_radius,
        "safeguard": safeguard,
        "metric": metric,
        "normal_step": normal_step,
        "foreach": foreach,
    }
    optimizer.landing = Landing(optimizer, params, options)  # type: ignore[attr-defined]
    kind = type(optimizer)
    optimizer.__class__ = type(kind.__name__, (Attached, kind), {"__module__": kind.__module__})
    return optimizer
