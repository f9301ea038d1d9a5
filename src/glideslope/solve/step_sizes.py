"""Step sizes of `minimize`: numbers, functions, bounds of the propositions, schedules; automatic ones of estimates."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from glideslope.engine.gradient import Factored, dense
from glideslope.engine.rule import PAPER_OPTIONS, StepRule
from glideslope.formulas.arguments import check_option, check_positive
from glideslope.formulas.penalty import penalised_gradient
from glideslope.solve.checkpoint import State
from glideslope.solve.methods import Method
from glideslope.solve.problem import Problem
from glideslope.stiefel.geometry import Whole
from glideslope.theory import Theory

SCHEDULES = ("constant", "1/sqrt", "1/sqrt(K)")

StepSize = float | str | Callable[[int], float]


def step_size_of(
    step_size: StepSize,
    schedule: str | None,
    problem: Problem,
    *,
    method: str,
    gradient: str,
    n_slots: int,
    n_steps: int,
    rule: StepRule,
) -> Callable[[int], float]:
    """The step size of step k = 0, 1, ...

    Args:
        step_size: A number, a function of k, or "theory".
        schedule: What multiplies a number: "constant" 1, "1/sqrt" 1/sqrt(1+k), "1/sqrt(K)" 1/sqrt(1+K).
        problem: Whose constants "theory" needs.
        method: The method, which must be "landing" for "theory".
        gradient: The gradient source.
        n_slots: Number of batches.
        n_steps: K, the number of steps to come.
        rule: The options of a landing step; "theory" needs the paper's field, with any λ and ε.
    """
    if callable(step_size):
        if schedule is not None:
            raise ValueError("give a function as step_size or a schedule, not both")
        return checked(step_size)
    if step_size == "theory":
        step_size = theory_step(problem, method, gradient, n_slots, rule)
        if schedule is None and gradient == "minibatch":
            schedule = "1/sqrt"
    elif isinstance(step_size, str):
        hint = ". A schedule goes with a number: step_size=0.1, schedule='1/sqrt'" if "sqrt" in step_size else ""
        raise ValueError(
            f"step_size must be a number > 0, a function of the step, 'theory' or 'auto'; got {step_size!r}{hint}"
        )
    check_positive(step_size=step_size)
    schedule = "constant" if schedule is None else schedule
    check_option("schedule", schedule, SCHEDULES)
    initial = float(step_size)
    if schedule == "1/sqrt":
        return lambda k: initial / math.sqrt(1 + k)
    fixed = initial / math.sqrt(1 + n_steps) if schedule == "1/sqrt(K)" else initial
    return lambda k: fixed


def checked(function: Callable[[int], float]) -> Callable[[int], float]:
    """A function of the step whose results are refused unless finite and >= 0."""

    def step_size_at(k: int) -> float:
        result = float(function(k))
        if not 0 <= result < math.inf:
            raise ValueError(f"step_size(k) must be finite and >= 0; got {result} for k = {k}")
        return result

    return step_size_at


def theory_step(problem: Problem, method: str, gradient: str, n_slots: int, rule: StepRule) -> float:
    """The step the propositions allow for landing with this gradient source."""
    if method != "landing" or gradient == "svrg":
        raise ValueError(
            "step_size='theory' knows landing with gradient='full', 'minibatch' or 'saga'; "
            f"got method={method!r}, gradient={gradient!r}. Give a number"
        )
    for name in ("metric", "normal_step"):
        if getattr(rule, name) != PAPER_OPTIONS[name]:
            raise ValueError(
                f"step_size='theory' needs {name}={PAPER_OPTIONS[name]!r}, which the propositions are about; got "
                f"{getattr(rule, name)!r}. Pass **gs.PAPER_OPTIONS, or a number as step_size"
            )
    if isinstance(rule.attraction, str):
        raise ValueError(
            f"step_size='theory' needs a number as attraction; got {rule.attraction!r}. Pass **gs.PAPER_OPTIONS"
        )
    constants = problem.constants(rule.safe_radius, each_term=gradient != "full")
    if constants is None:
        raise ValueError(f"step_size='theory' needs constants that {type(problem).__name__} does not know")
    theory = Theory(constants=constants, attraction=rule.attraction, safe_radius=rule.safe_radius)
    return theory.saga_step(max(n_slots, 5)) if gradient == "saga" else theory.gradient_descent_step


# θ, γ and τ of each gradient source, see `Automatic`; benchmarks/automatic_steps compares with searched step sizes.
AIMS = {"minibatch": (0.0, 0.3, 30.0), "saga": (0.1, 0.1, math.inf), "svrg": (0.1, 0.1, math.inf)}
# ‖X⁺ - X‖ of the first step is this times √p. It soon grows.
FIRST_MOVE = 0.01
# Passes in which the estimates must become smaller by a factor of 0.7, or θ grows by 1.5, up to a half.
PASSES_TO_PROGRESS, LESS, MORE, LARGEST_AIM = 10, 0.7, 1.5, 0.5


class Automatic(Method):
    r"""Steps of a method along estimates of the gradient, their size η found from the angle of successive moves.

    After every step, η ← η exp(γ (cos(D, D⁻) - θ)) with D = X⁺ - X and D⁻ the move before. For an estimate ĝ without
    bias, E<ĝ⁺, ĝ> = ‖∇f‖² - η E<ĝ, H ĝ>, H the curvature: it vanishes at the step that lowers f most, which is
    about 1/‖H‖ while the signal prevails, and falls with its share. The noise of SAGA and SVRG comes from their own
    former steps, and θ > 0 keeps it below the signal; where the estimates do not become smaller, θ grows. The noise of
    minibatches stays, so η has to vanish: it is divided by 1 + t/τ, t the moves with cos < 0 so far (Kesten's rule),
    and γ by the root of that.
    A step that the safeguard shortens counts as cos = -1. No gradients besides those of the steps; two matrices of
    memory; f times a constant gives the same iterates.

    Args:
        mover: The method.
        X: First iterate.
        geometry: Where its rows are.
        gradient: The gradient source.
        n_slots: Steps of one pass.
        metric: "canonical" or "euclidean".
        penalty_weight: λ of method="penalty".
    """

    kept = ("step_size", "aim", "_last", "_last_square", "_turns", "_seen_shortened", "_sizes", "_n_sizes", "_smallest")

    def __init__(
        self,
        mover: Method,
        X: Tensor,
        geometry: Whole,
        gradient: str,
        n_slots: int,
        metric: str,
        penalty_weight: float | None,
    ) -> None:
        self.mover, self.geometry, self.metric, self.penalty_weight = mover, geometry, metric, penalty_weight
        self.aim, self.gain, self.patience = AIMS[gradient]
        self.steps_to_progress = PASSES_TO_PROGRESS * n_slots
        self.step_size = 0.0
        self._before, self._last = torch.empty_like(X), torch.zeros_like(X)
        self._last_square, self._turns, self._seen_shortened = 0.0, 0, 0
        self._sizes, self._n_sizes, self._smallest = 0.0, 0, math.inf

    @property
    def shortened(self) -> int:
        """How many steps the safeguard shortened."""
        return self.mover.shortened

    def state(self) -> State:
        """The step size, the last move, and the state of the method."""
        return {**super().state(), "mover": self.mover.state()}

    def resume_at(self, X: Tensor, state: State) -> None:
        """Take over a state, at the iterate it was saved with."""
        self.mover.resume_at(X, state.pop("mover"))
        super().resume_at(X, state)

    def step_size_at(self, k: int) -> float:
        """The step size of the next step; 0 before the first one that has a gradient."""
        return self.step_size

    def step(self, X: Tensor, G: Tensor | Factored, step_size: float) -> Tensor:
        """A step of the method, and the size of the next one."""
        self.step_size = step_size or self._first(X, G)
        if self.step_size == 0:
            return X
        self._before.copy_(X)
        X = self.mover.step(X, G, self.step_size)
        move = torch.sub(X, self._before, out=self._before)
        square, along = self.geometry.inner(move, move), self.geometry.inner(move, self._last)
        if square == 0:  # a gradient of zero, or one that was not finite and skipped
            return X
        cosine = along / math.sqrt(square * self._last_square) if self._last_square > 0 else self.aim
        if self.shortened > self._seen_shortened or not math.isfinite(cosine):
            cosine = -1.0
        self._judge(math.sqrt(square) / self.step_size)
        late = 1 + self._turns / self.patience
        self._turns += cosine < 0
        growth = math.exp(self.gain / math.sqrt(late) * (min(cosine, 1.0) - self.aim))
        size = self.step_size * growth * late / (1 + self._turns / self.patience)
        self.step_size = min(max(size, 1e-300), 1e300)
        self._before, self._last, self._last_square = self._last, move, square
        self._seen_shortened = self.shortened
        return X

    def _judge(self, size: float) -> None:
        """Aim higher where the mean size of the estimates has not fallen for a number of passes."""
        self._sizes, self._n_sizes = self._sizes + size, self._n_sizes + 1
        if self._n_sizes == self.steps_to_progress:
            mean = self._sizes / self._n_sizes
            if mean > LESS * self._smallest:
                self.aim = min(MORE * self.aim, LARGEST_AIM)
            self._sizes, self._n_sizes, self._smallest = 0.0, 0, min(self._smallest, mean)

    def _first(self, X: Tensor, G: Tensor | Factored) -> float:
        """The size of a first, short step; 0 without a gradient that says anything."""
        if self.penalty_weight is None:
            slope = self.geometry.tangent(X, dense(G), self.metric)
        else:
            slope = penalised_gradient(X, dense(G), penalty_weight=self.penalty_weight)
        norm = self.geometry.norm(slope)
        return FIRST_MOVE * math.sqrt(X.shape[1]) / norm if 0 < norm < math.inf else 0.0
