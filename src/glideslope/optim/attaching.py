"""attach_landing: any torch optimizer proposes an update, and a landing step takes its tangent part."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import MethodType
from typing import Any, TypeVar

import torch

from glideslope.optim.base import Group
from glideslope.optim.bucket import outside_inference_mode
from glideslope.optim.proposed_updates import ProposalLanding
from glideslope.stiefel.scales import Scale

AnyOptimizer = TypeVar("AnyOptimizer", bound=torch.optim.Optimizer)


@dataclass
class StepProgress:
    """How far a step of the optimizer has come. (Apart from it: the compiler keeps track of plain objects only.)"""

    called: bool = False
    begun: bool = False
    landed: bool = False
    depth: int = 0
    """How many steps are running: two in one that calls the step of its superclass."""


class Landing(ProposalLanding):
    """The landing part of an optimizer with `attach_landing`: its constrained parameters, diagnostics and `detach()`.

    The optimizer gets two step hooks and, as attributes of the instance, a `step` that undoes what fails and a
    `__getstate__` that refuses copies. Its class stays as it is.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, params: Any, defaults: Group) -> None:
        super().__init__(params, defaults)
        stepped = {param for group in optimizer.param_groups for param in group["params"]}
        for group in self.param_groups:
            for name, param in self._named(group):
                if group["orthogonal"] and param not in stepped:
                    raise ValueError(
                        f"attach_landing: {name!r} of shape {tuple(param.shape)} is not a parameter of the optimizer; "
                        f"pass parameters that it steps"
                    )
        self._optimizer = optimizer
        self._progress = StepProgress()
        self._attach()

    @property
    def _line_for_a_model(self) -> str:
        return "gs.attach_landing(optimizer, model)"

    def _attach(self) -> None:
        host = self._optimizer
        self._pre_hook = host.register_step_pre_hook(self._before_step)
        self._post_hook = host.register_step_post_hook(self._after_step)
        self._attributes = {"landing": self, "step": self._step_of(host), "__getstate__": refuse_copies}
        self._replaced = {name: vars(host)[name] for name in self._attributes if name in vars(host)}
        vars(host).update(self._attributes)
        self._attached = True

    def detach(self) -> None:
        """Take landing off; the optimizer is then what it was. A second time does nothing."""
        self._attached = False
        self._pre_hook.remove()
        self._post_hook.remove()
        own = vars(self._optimizer)
        for name, attribute in self._attributes.items():
            if own.get(name) is not attribute:
                continue  # a scheduler wrapped our step meanwhile; from now on that only passes calls on
            if name in self._replaced:
                own[name] = self._replaced[name]
            else:
                del own[name]

    def _step_of(self, host: torch.optim.Optimizer) -> MethodType:
        """The optimizer's step, bound as schedulers expect; if it raises, constrained parameters are as before."""
        step: Any = host.step

        @functools.wraps(getattr(step, "__func__", step))
        def landed_step(_: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
            return self._run(step, args, kwargs) if self._attached else step(*args, **kwargs)

        return MethodType(landed_step, host)

    @outside_inference_mode
    def _run(self, step: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._put_hooks_innermost()
        progress = self._progress
        progress.called, progress.begun, progress.landed, progress.depth = True, False, False, 0
        try:
            result = step(*args, **kwargs)
            if not progress.begun:
                raise RuntimeError(
                    f"attach_landing: the step of this {type(self._optimizer).__name__} ran none of torch's step "
                    "hooks, so that nothing could be landed; what replaced optimizer.step has to call the former step"
                )
            if not progress.landed:  # a step inside raised, and the one around it went on
                self.land()
        except BaseException:
            if progress.begun:
                self.undo()
            raise
        finally:
            progress.called = False
        return result

    def _put_hooks_innermost(self) -> None:
        """Other hooks see the gradients of the caller and landed parameters, whenever they were registered."""
        if torch.compiler.is_compiling():
            return
        before, after = self._optimizer._optimizer_step_pre_hooks, self._optimizer._optimizer_step_post_hooks
        before[self._pre_hook.id] = before.pop(self._pre_hook.id)
        for other in [key for key in after if key != self._post_hook.id]:
            after[other] = after.pop(other)

    def _before_step(self, host: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._progress.called:
            raise RuntimeError(
                "attach_landing: the step of this optimizer was called around the attached one, by its class or by a "
                "method that was stored before attaching; call optimizer.step()"
            )
        self._progress.depth += 1
        if self._progress.begun:
            return None
        self.remember()
        self._progress.begun = True
        self.lend()
        # A step's arguments begin with the optimizer itself, then its closure.
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            return None
        others = {name: value for name, value in kwargs.items() if name != "closure"}
        return (args[0], self._lending(closure), *args[2:]), others

    def _lending(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """The closure, which computes gradients of the caller, of which the optimizer sees the tangent parts."""
        calls = 0

        def lending_closure() -> Any:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise RuntimeError(
                    f"attach_landing: {type(self._optimizer).__name__} called its closure a second time in one step, "
                    "at a point that is not orthonormal. Attach to an optimizer that evaluates the loss once a step, "
                    "or use gs.LandingSGD or gs.LandingAdam"
                )
            self.take_back()
            loss = closure()
            self.lend()
            return loss

        return lending_closure

    def _after_step(self, *_: Any) -> None:
        self._progress.depth -= 1
        if self._progress.depth == 0:
            self.land()
            self._progress.landed = True


def refuse_copies() -> Any:
    """Stand in for `__getstate__`, which copy, deepcopy and pickle all call."""
    raise TypeError(
        "an optimizer with landing attached cannot be copied or pickled: the copy would step without landing. Save its "
        "state_dict(), or optimizer.landing.detach(), copy, and attach to both"
    )


def attach_landing(
    optimizer: AnyOptimizer,
    params: Any,
    *,
    attraction: float | str = "auto",
    safe_radius: float = 0.5,
    safeguard: str | None = "lemma",
    metric: str = "euclidean",
    normal_step: str = "newton-schulz",
    scale: Scale = 1.0,
    foreach: bool | None = None,
) -> AnyOptimizer:
    r"""Make any torch optimizer keep `params` orthonormal: its proposed update D becomes a landing step.

    During its step the optimizer sees the gradient without its normal part. Afterwards the parameters go back,
    and take the landing step of size 1 along D instead, with T(D) the tangent part of D: X - T(D), then one
    Newton-Schulz step; with normal_step="landing" X - min(1, η(X)) (T(D) + λ X (X^H X - I)). Returns the same
    optimizer; `optimizer.landing` has `diagnostics()` and `detach()`.

    Args:
        optimizer: Any torch.optim.Optimizer that steps `params` and evaluates a closure at most once in a step, so
            not LBFGS.
        params: The model, its parameters, named parameters, or groups with a `view` (as from gs.param_groups). Free
            ones are left to the optimizer, whether it has them or not.
        attraction: For normal_step="landing": weight λ > 0 of the pull towards the manifold per step. "auto" is ½, one
            Newton-Schulz step; more would cap every update at 1/(2λ) of its length.
        safe_radius: Radius ε in (0, 1) of the safe region.
        safeguard: "lemma", "exact" or None.
        metric: "euclidean", the tangent part as it is, or "canonical", half of it outside of span(X).
        normal_step: "newton-schulz", "polar" or "landing".
        scale: σ of the constraint X^H X = σ² I, a number or "modular", sqrt(out/in): X/σ takes the step along D/σ.
        foreach: Step matrices of equal shape as one batch: True, False, or None to decide by size.

    Examples:
        >>> X = torch.nn.Parameter(gs.random_stiefel(20, 3))
        >>> optimizer = gs.attach_landing(torch.optim.AdamW([X], lr=1e-2), [X])
        >>> (X.sum() ** 2).backward(); optimizer.step()
    """
    if getattr(optimizer, "landing", None) is not None:
        raise ValueError(
            "attach_landing: this optimizer has landing attached already; optimizer.landing.detach() first"
        )
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError(
            f"attach_landing: {type(optimizer).__name__} evaluates the loss several times in a step, at points that "
            "are not orthonormal, and its curvature estimates do not hold where a landing step leads to; use "
            "gs.LandingSGD or gs.LandingAdam, or attach to an optimizer that evaluates the loss once"
        )
    options = {
        "attraction": attraction,
        "safe_radius": safe_radius,
        "safeguard": safeguard,
        "metric": metric,
        "normal_step": normal_step,
        "scale": scale,
        "foreach": foreach,
    }
    Landing(optimizer, params, options)
    return optimizer
