"""LandingSGD and LandingAdam: the paper's landing step behind the interface of torch.optim."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from glideslope.engine.row_blocks import Summed
from glideslope.engine.rule import StepOutcome
from glideslope.optim.base import COUNTERS, Group, StiefelOptimizer
from glideslope.optim.bucket import Bucket
from glideslope.optim.diagnostics import STEPS_BETWEEN_LOOKS, counted_recently, warn_of_shortening, warn_of_skipping
from glideslope.optim.momentum_and_adam import (
    Estimate,
    Momentum,
    Products,
    adam_moments,
    finite_part,
    keep_tangent_momentum,
    momentum_direction,
)
from glideslope.optim.options import check_adam_options, check_learning_rate, check_sgd_options, learning_rate, rule_of
from glideslope.optim.scaled_steps import adam_radial, fixed_scale_of, in_units, move_scale, of_moved, to_units_
from glideslope.optim.sharded_bucket import Sharded
from glideslope.optim.torch_steps import adamw_step, sgd_step
from glideslope.ranks.sums import run_in_bundles
from glideslope.stiefel.scales import Scale


class LandingOptimizer(StiefelOptimizer):
    """Steps of `glideslope.formulas.landing_step` along whatever gradient estimate a subclass makes."""

    takes_sharded = True
    _told: frozenset[str] = frozenset()
    """Of which kinds of trouble a warning was given."""

    def _region_is_spectral(self, group: Group) -> bool:
        return rule_of(group).is_spectral

    def _step_bucket(self, bucket: Bucket, given: list[Tensor], group: Group) -> None:
        X, G = self._begin(bucket, given, group)
        if group["scale"] == 1:
            known = self._needed(bucket, X, G, group)
            count(bucket, bucket.step(X, self._estimate(bucket, X, G, known, group)))
        else:
            self._step_scaled(bucket, X, G, group)
        self._tell_of_trouble(bucket, group)

    def _step_scaled(self, bucket: Bucket, X: Tensor, G: Tensor, group: Group) -> None:
        sizes = bucket.norm_and_slope(X, G) if group["scale"] == "free" else None
        radial = to_units_(bucket, X, group, sizes)
        try:
            known = self._needed(bucket, X, G, group)
            estimate = in_units(self._estimate(bucket, X, G, known, group), bucket.sigma)
            self._end(bucket, bucket.step(X, estimate), radial, group)
        finally:
            bucket.multiply_(X)

    def _step_sharded(self, buckets: list[tuple[Sharded, list[Tensor], Group]]) -> None:
        run_in_bundles([bucket for bucket, _, _ in buckets], lambda _, i: self._sharded_step(*buckets[i]))

    def _sharded_step(self, bucket: Sharded, given: list[Tensor], group: Group) -> Summed[None]:
        X, G = self._begin(bucket, given, group)
        sizes = (yield from bucket.norm_and_slope(X, G)) if group["scale"] == "free" else None
        radial = to_units_(bucket, X, group, sizes)
        try:
            asked = self._needed(bucket, X, G, group)
            known = None if asked is None else (yield from asked)
            estimate = in_units(self._estimate(bucket, X, G, known, group), bucket.sigma)
            self._end(bucket, (yield from bucket.step(X, estimate)), radial, group)
        finally:
            bucket.multiply_(X)
        bucket.write()

    def _begin(self, bucket: Bucket, given: list[Tensor], group: Group) -> tuple[Tensor, Tensor]:
        """Points and gradients."""
        X, G = bucket.points(), bucket.gradients(given)
        G = -G if group["maximize"] else G
        bucket.rule = rule_of(group, bucket.rule, fixed_scale_of(bucket, group) or 1.0)
        return X, G

    def _end(self, bucket: Bucket, outcome: StepOutcome, radial: Tensor | None, group: Group) -> None:
        count(bucket, outcome)
        if radial is not None:
            move_scale(bucket, self._scale_change(bucket, of_moved(radial, outcome), group))

    def _tell_of_trouble(self, bucket: Bucket, group: Group) -> None:
        """Warn once if most of a hundred steps of a matrix were shortened, once if most were skipped.

        On the CPU, where looking costs nothing.
        """
        if len(self._told) == 2 or bucket.device.type != "cpu" or torch.compiler.is_compiling():
            return
        shortened, skipped = counted_recently(bucket)
        if 2 * max(shortened, skipped) <= STEPS_BETWEEN_LOOKS:
            return
        who, name = type(self).__name__, next(name for name, param in self._named(group) if param is bucket.params[0])
        if 2 * shortened > STEPS_BETWEEN_LOOKS and "shortened" not in self._told:
            self._told |= {"shortened"}
            warn_of_shortening(who, name, bucket.matrix_shape, shortened, bucket.rule.lands)
        if 2 * skipped > STEPS_BETWEEN_LOOKS and "skipped" not in self._told:
            self._told |= {"skipped"}
            warn_of_skipping(who, name, skipped)

    def _needed(self, bucket: Bucket, X: Tensor, G: Tensor, group: Group) -> Any:
        """Products or norms that the estimate needs, by a method of the bucket, which may sum over ranks; or None."""
        return None

    @abstractmethod
    def _estimate(self, bucket: Bucket, X: Tensor, G: Tensor, known: Any, group: Group) -> Estimate:
        """The gradient estimate and how to step along it; `known` is what is `_needed`."""

    def _scale_change(self, bucket: Bucket, radial: Tensor, group: Group) -> Tensor:
        """By how much free scales σ decrease, from the radial part of the gradient: NaN stays NaN."""
        raise NotImplementedError


def count(bucket: Bucket, outcome: StepOutcome) -> None:
    """Add what a step did to the counters of its matrices."""
    for name in COUNTERS:
        counted = getattr(outcome, name)
        if counted is False and name in bucket.states[0]:
            continue
        counter = bucket.numbers(name, torch.int64)
        if counted is not False:
            counter.add_(counted)


class LandingSGD(LandingOptimizer):
    r"""Landing SGD, eq. (20): X <- X - min(lr, η(X)) (grad + λ X (X^H X - I)), with momentum on the gradient.

    Constrained matrices stay in the safe region for any finite gradient and learning rate. Free parameters
    (groups with orthogonal=False) follow torch.optim.SGD. Weight decay has no effect on a constrained matrix, whose
    norm is fixed.

    Args:
        params: The model, its parameters, named parameters or groups. Marked ones are constrained; if none is marked,
            tensors of 2 dimensions are matrices, of 3 batches of them.
        lr: Learning rate, a number or a tensor.
        momentum: Momentum factor. The buffer loses its normal part in every step: that of a gradient does not
            vanish at a solution. One product more.
        dampening: Dampening of the momentum.
        weight_decay: L2 penalty of the free parameters and of free scales.
        nesterov: Nesterov's momentum.
        attraction: Weight λ > 0 of the pull towards the manifold. "auto" is 1/(2 lr): every whole step contains one
            Newton-Schulz step, so the distance shrinks with lr² and a schedule that ends near zero ends orthonormal.
        safe_radius: Radius ε in (0, 1) of the safe region ‖X^H X - I‖ <= ε: Frobenius norm for the paper's step,
            spectral norm for "newton-schulz", "polar" and "exact"; at most 0.9 for "polar".
        safeguard: "lemma", "exact" or None.
        metric: "euclidean", or "canonical", the paper's, half as long outside of span(X).
        normal_step: "landing", the paper's, with the fewest products; "newton-schulz" or "polar" end every step on the
            manifold, up to O(lr⁴) or exactly.
        scale: σ > 0 of the constraint X^H X = σ² I: a number, "modular" for sqrt(out/in), or "free". The step is that
            of X/σ with lr/σ, so lr means what it means for X: X - lr (G - X sym(X^H G)/σ²). A free σ starts as
            ‖X‖_F/√p and moves by the radial part of the gradient, -lr Re<G, X>/(pσ), without momentum, by a factor of
            2 a step at most; weight decay acts on it.
        maximize: Maximise instead of minimise.
        foreach: Step matrices of equal shape as one batch: True, False, or None to decide by size.

    Examples:
        >>> X = torch.nn.Parameter(gs.random_stiefel(20, 3))
        >>> optimizer = gs.LandingSGD([X], lr=0.1, momentum=0.9)
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
        attraction: float | str = "auto",
        safe_radius: float = 0.5,
        safeguard: str | None = "lemma",
        metric: str = "euclidean",
        normal_step: str = "landing",
        scale: Scale = 1.0,
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
                "attraction": attraction,
                "safe_radius": safe_radius,
                "safeguard": safeguard,
                "metric": metric,
                "normal_step": normal_step,
                "scale": scale,
                "maximize": maximize,
                "foreach": foreach,
            },
        )

    def _check_options(self, group: Group) -> None:
        check_learning_rate(group)
        check_sgd_options(group)
        rule_of(group)

    def _needed(self, bucket: Bucket, X: Tensor, G: Tensor, group: Group) -> Any:
        if not group["momentum"]:  # products and sums of what is not finite are not finite either
            return None
        return bucket.products(X, *momentum_direction(bucket, G, Momentum.of(group)))

    def _estimate(self, bucket: Bucket, X: Tensor, G: Tensor, known: Products | None, group: Group) -> Estimate:
        if known is None:
            return Estimate(G, learning_rate(group))
        keep_tangent_momentum(bucket, X, known, Momentum.of(group))
        return Estimate(known.D, learning_rate(group), known.active, known)

    def _scale_change(self, bucket: Bucket, radial: Tensor, group: Group) -> Tensor:
        change: Tensor = (radial + group["weight_decay"] * bucket.sigma) * learning_rate(group)
        return change

    def _step_free(self, params: list[Tensor], grads: list[Tensor], group: Group) -> None:
        sgd_step(params, grads, [self.state[param] for param in params], group)


class LandingAdam(LandingOptimizer):
    r"""Landing along Adam's direction, with one second moment per constrained matrix.

    The moments are of the gradient without its normal part, G - X sym(X^H G). The direction M / √v has entries of
    size one, so lr means what it means for Adam: a column turns by about lr √n a step in the Euclidean metric, half
    of that in the canonical one. Free parameters (orthogonal=False) follow torch.optim.AdamW.

    Args:
        params: The model, its parameters, named parameters or groups. Marked ones are constrained; if none is marked,
            tensors of 2 dimensions are matrices, of 3 batches of them.
        lr: Learning rate, a number or a tensor.
        betas: Decay of the first and second moment.
        eps: Added to the root of the second moment.
        weight_decay: Decoupled weight decay of the free parameters and of free scales.
        attraction: For normal_step="landing", as in LandingSGD.
        safe_radius: Radius ε in (0, 1) of the safe region ‖X^H X - I‖ <= ε: Frobenius norm for the paper's step,
            spectral norm for "newton-schulz", "polar" and "exact"; at most 0.9 for "polar".
        safeguard: "lemma", "exact" or None.
        metric: "euclidean", or "canonical", the paper's, half as long outside of span(X).
        normal_step: "newton-schulz", "polar" or "landing". Adam's steps are long in all directions at once: the
            Frobenius ball of "landing" would shorten those of large matrices.
        scale: As in LandingSGD. Entries of X move by lr, whatever σ. A free σ moves as a scalar parameter of AdamW
            does: by about lr a step, with moments and decoupled weight decay of its own.
        maximize: Maximise instead of minimise.
        foreach: Step matrices of equal shape as one batch: True, False, or None to decide by size.

    Examples:
        >>> X = torch.nn.Parameter(gs.random_stiefel(20, 3))
        >>> optimizer = gs.LandingAdam([X], lr=1e-2)
        >>> (X.sum() ** 2).backward(); optimizer.step()
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        *,
        attraction: float | str = "auto",
        safe_radius: float = 0.5,
        safeguard: str | None = "lemma",
        metric: str = "euclidean",
        normal_step: str = "newton-schulz",
        scale: Scale = 1.0,
        maximize: bool = False,
        foreach: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "betas": betas,
                "eps": eps,
                "weight_decay": weight_decay,
                "attraction": attraction,
                "safe_radius": safe_radius,
                "safeguard": safeguard,
                "metric": metric,
                "normal_step": normal_step,
                "scale": scale,
                "maximize": maximize,
                "foreach": foreach,
            },
        )

    def _check_options(self, group: Group) -> None:
        check_learning_rate(group)
        check_adam_options(group)
        rule_of(group)

    def _needed(self, bucket: Bucket, X: Tensor, G: Tensor, group: Group) -> Any:
        return bucket.tangent_and_norm(X, *finite_part(bucket, G))

    def _estimate(self, bucket: Bucket, X: Tensor, G: Tensor, known: Any, group: Group) -> Estimate:
        estimate, active = adam_moments(bucket, *known, betas=group["betas"], eps=group["eps"])
        return Estimate(estimate, learning_rate(group) * bucket.matrix_shape[-2] ** 0.5, active)

    def _scale_change(self, bucket: Bucket, radial: Tensor, group: Group) -> Tensor:
        direction = adam_radial(bucket, radial, betas=group["betas"], eps=group["eps"])
        change: Tensor = (direction + group["weight_decay"] * bucket.sigma) * learning_rate(group)
        return change

    def _step_free(self, params: list[Tensor], grads: list[Tensor], group: Group) -> None:
        adamw_step(params, grads, [self.state[param] for param in params], group)
