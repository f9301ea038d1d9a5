"""Steps of `minimize` from a gradient: landing, retraction or penalty, each in place on one matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from glideslope.engine.gradient import Factored, dense
from glideslope.engine.low_rank import TrackedLanding, pays
from glideslope.engine.products import Workspace
from glideslope.engine.rule import StepRule
from glideslope.formulas.field import riemannian_gradient
from glideslope.formulas.retraction import retract
from glideslope.formulas.step import penalty_step
from glideslope.solve.checkpoint import Resumable, State
from glideslope.stiefel.geometry import InRows, Whole

METHODS = ("landing", "riemannian", "penalty")


class Method(Resumable):
    """Base of the methods: a step in place, and counts of what happened."""

    kept: tuple[str, ...] = ("_shortened",)

    def __init__(self, X: Tensor) -> None:
        self._shortened = torch.zeros((), dtype=torch.int64, device=X.device)

    def step(self, X: Tensor, G: Tensor | Factored, step_size: float) -> Tensor:
        """The next iterate: X moved in place, or other memory that takes turns with it."""
        raise NotImplementedError

    def resume_at(self, X: Tensor, state: State) -> None:
        """Take over a state, at the iterate it was saved with."""
        self.resume(state, X.device)

    @property
    def shortened(self) -> int:
        """How many steps the safeguard shortened."""
        return int(self._shortened)


class LandingMethod(Method):
    """X - min(η, η(X)) F, eqs. (19) and (20), with the safeguard; factors of a gradient are not multiplied out.

    Args:
        X: The first iterate.
        rule: The step's options.
        geometry: Where the rows of X are.
    """

    def __init__(self, X: Tensor, rule: StepRule, geometry: Whole) -> None:
        super().__init__(X)
        self.rule, self.geometry = rule, geometry
        self._workspace = Workspace()
        self._tracked: TrackedLanding | None = None

    def state(self) -> State:
        """The counts, and what is known of the Gram matrix."""
        tracked = None if self._tracked is None else self._tracked.state()
        return super().state() if tracked is None else {**super().state(), "tracked": tracked}

    def resume_at(self, X: Tensor, state: State) -> None:
        """Take over a state, at the iterate it was saved with."""
        tracked = state.pop("tracked", None)
        super().resume_at(X, state)
        if tracked is not None:
            self._tracked = TrackedLanding(X, self.rule)
            self._tracked.resume(X, tracked)

    def step(self, X: Tensor, G: Tensor | Factored, step_size: float) -> Tensor:
        """A landing step. With b rows and b >= n the gradient itself is cheaper than its factors."""
        if isinstance(G, Factored) and not isinstance(self.geometry, InRows):
            if len(G.W) >= X.shape[0]:
                G = G.dense()
            elif pays(G, X, self.rule):
                self._tracked = self._tracked or TrackedLanding(X, self.rule)
                moved = self._tracked.step(X, G, step_size)
                if moved is not None:
                    self._shortened += moved[1]
                    return moved[0]
        outcome = self.geometry.step(X, G, step_size, self.rule, out=X, workspace=self._workspace)
        self._shortened += outcome.shortened
        return X


class Riemannian(Method):
    """R(X, -η grad f(X)), eqs. (3) and (9).

    Args:
        X: The first iterate.
        retraction: "qr", "polar", "cayley" or "exponential".
        metric: "canonical" or "euclidean".
    """

    def __init__(self, X: Tensor, retraction: str, metric: str) -> None:
        super().__init__(X)
        self.retraction, self.metric = retraction, metric

    def step(self, X: Tensor, G: Tensor | Factored, step_size: float) -> Tensor:
        """A step along the Riemannian gradient and back onto the manifold."""
        T = riemannian_gradient(X, dense(G), metric=self.metric)
        return X.copy_(retracted(X, T.mul_(-step_size), self.retraction))


def retracted(X: Tensor, Z: Tensor, kind: str) -> Tensor:
    """`retract`, with NaN where a decomposition refuses what is not finite, so that a run ends with a reason."""
    try:
        return retract(X, Z, kind=kind)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
        return torch.full_like(X, float("nan"))


class Penalty(Method):
    """X - η (G + λ X (X^H X - I)), section 3.4.

    Args:
        X: The first iterate.
        weight: λ > 0.
    """

    def __init__(self, X: Tensor, weight: float) -> None:
        super().__init__(X)
        self.weight = weight

    def step(self, X: Tensor, G: Tensor | Factored, step_size: float) -> Tensor:
        """A plain step on f + λ N."""
        return X.copy_(penalty_step(X, dense(G), step_size=step_size, penalty_weight=self.weight))


def make_method(kind: str, X: Tensor, rule: StepRule, geometry: Whole, retraction: str, weight: float | None) -> Method:
    """The method of a name, for a first iterate X."""
    if kind == "riemannian":
        return Riemannian(X, retraction, rule.metric)
    if kind == "penalty":
        assert weight is not None
        return Penalty(X, weight)
    return LandingMethod(X, rule, geometry)
