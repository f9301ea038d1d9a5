"""Step sizes of `minimize`: a number, a function of the step, or the bounds of the propositions; and schedules."""

from __future__ import annotations

import math
from collections.abc import Callable

from glideslope.engine.rule import PAPER_OPTIONS, StepRule
from glideslope.formulas.arguments import check_option, check_positive
from glideslope.solve.problem import Problem
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
