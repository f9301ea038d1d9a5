"""Measuring a workload: build every method, check its first step, time what is right, count what a step allocates."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import torch

from benchmarks.environment import Environment, installed_version
from benchmarks.steps.memory import Allocations, allocations
from benchmarks.steps.methods import (
    FOUR_PRODUCTS,
    GEOOPT,
    LANDING,
    OWN,
    POGO,
    THREE_PRODUCTS,
    Method,
    Running,
    floor_of,
    nothing,
)
from benchmarks.steps.peers import PEERS
from benchmarks.steps.timing import Budget, Deadline, Samples, Timing, interleave
from benchmarks.steps.workloads import Case, Workload
from glideslope.cli.bench import timed

METHODS: tuple[Method, ...] = (*OWN, *PEERS)
GROWTH_METHODS = (FOUR_PRODUCTS, THREE_PRODUCTS, LANDING, GEOOPT, POGO)
TIMED_SHARE = 1e-4  # the timed learning rate, in units of the checked one
Progress = Callable[[str, int, int], None]


@dataclass
class Outcome:
    """What came of a method: a timing, or a sentence why there is none."""

    timing: Timing | None = None
    problem: str | None = None


@dataclass
class Result:
    """The outcomes of a workload by method, and the allocations of LandingSGD's second and third step.

    Beside them, the bytes of the largest parameter and of all.
    """

    workload: Workload
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    matrix_bytes: int = 0
    all_bytes: int = 0
    allocated: list[Allocations] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """Rounds measured."""
        return max((one.timing.samples for one in self.outcomes.values() if one.timing), default=0)

    @property
    def floor(self) -> str:
        """Name of the bare products."""
        return floor_of(self.workload)

    def median(self, method: str) -> float | None:
        """Median seconds of a method's step, None where there is no timing."""
        outcome = self.outcomes.get(method)
        return outcome.timing.median if outcome and outcome.timing else None

    def ratio(self, method: str, to: str) -> float | None:
        """Median of a method in units of another's."""
        mine, other = self.median(method), self.median(to)
        return None if mine is None or other is None else mine / other

    def as_json(self) -> dict[str, Any]:
        """For json.dump."""
        return {
            "name": self.workload.name,
            "family": self.workload.family,
            "rounds": self.rounds,
            "floor": self.floor,
            "methods": {
                name: {
                    **({"problem": one.problem} if one.problem else {}),
                    **({"seconds": asdict(one.timing)} if one.timing else {}),
                    "to_floor": self.ratio(name, self.floor),
                    "to_landing": self.ratio(name, LANDING),
                }
                for name, one in self.outcomes.items()
            },
            "matrix_bytes": self.matrix_bytes,
            "all_bytes": self.all_bytes,
            "allocated_in_steps_2_and_3": [asdict(one) for one in self.allocated],
        }


@dataclass
class Report:
    """All that a run measured."""

    environment: Environment
    results: list[Result] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Workloads for which no time was left."""
    interrupted: bool = False

    def named(self, workload: str) -> Result | None:
        """The result of a workload."""
        return next((one for one in self.results if one.workload.name == workload), None)


def measure(
    report: Report,
    workloads: Sequence[Workload],
    *,
    dtype: torch.dtype,
    budget: Budget,
    methods: Sequence[Method] = METHODS,
    progress: Progress = lambda text, done, of: None,
) -> None:
    """Measure workloads one after the other into the report; Ctrl-C ends it with what there is."""
    deadline = Deadline(budget.whole)
    for workload in workloads:
        if deadline.is_over:
            report.left_out.append(workload.name)
            continue
        result = Result(workload)
        report.results.append(result)
        try:
            Measurement(result, methods, budget, deadline, progress).run(dtype, report.environment.device)
        except KeyboardInterrupt:
            report.interrupted = True
            return


@dataclass
class Measurement:
    """The measuring of one workload into its result."""

    result: Result
    methods: Sequence[Method]
    budget: Budget
    deadline: Deadline
    progress: Progress

    def run(self, dtype: torch.dtype, device: str) -> None:
        """Check, count allocations, and time; what is known when it is interrupted stays in the result."""
        workload, samples = self.result.workload, dict[str, Samples]()
        case = Case(workload, dtype=dtype, device=device)
        sizes = [X.numel() * X.element_size() for X in case.points]
        self.result.matrix_bytes, self.result.all_bytes = max(sizes), sum(sizes)
        try:
            steps = {name: running.step for name, running in self.checked(case).items()}
            case.forget_references()
            gc.collect()
            if LANDING in steps:
                self.result.allocated = second_and_third_step(self.methods, case)
            on_round = partial(self.progress, f"{workload.name}: rounds")
            if steps:
                interleave(
                    steps, samples, budget=self.budget, deadline=self.deadline, device=case.device, on_round=on_round
                )
        finally:
            for name, taken in samples.items():
                timing = taken.timing()
                self.result.outcomes[name] = Outcome(timing, None if timing else "interrupted")

    def checked(self, case: Case) -> dict[str, Running]:
        """The methods whose first step is right, by name."""
        workload, ready = case.workload, dict[str, Running]()
        chosen = [method for method in self.methods if method.applies(workload)]
        if workload.family == "growth":
            chosen = [method for method in chosen if method.name in GROWTH_METHODS]
        for i, method in enumerate(chosen):
            self.progress(f"{workload.name}: checking {method.name}", i, len(chosen))
            outcome = self.result.outcomes[method.name] = Outcome(problem="interrupted")
            prepared = "skipped: the time is up" if self.deadline.is_over else prepare(method, case, self.budget)
            if isinstance(prepared, str):
                outcome.problem = prepared
            else:
                ready[method.name] = prepared
        return ready


def prepare(method: Method, case: Case, budget: Budget) -> Running | str:
    """The method after its checked step, ready to be timed; or why it is not."""
    workload = case.workload
    if method.requires is not None and installed_version(method.requires) is None:
        return "not installed"
    limit = 1.5 * budget.slowest
    if method.seconds(workload) > limit:
        if not budget.slowest:
            return "skipped: not part of --quick"
        return f"skipped: about {method.seconds(workload):.2g} s a step expected"
    lr = method.checked_lr(case)
    before = [G.clone() for G in case.gradients]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # peers use deprecated names
            running = method.build(case, lr)
            seconds = timed(running.step, 1, case.device)
            complaint = method.complaint(case, running, lr)
    except Exception as error:  # whatever a peer raises is its result
        return f"error: {type(error).__name__}: {' '.join(str(error).split())[:160]}"
    if not all(torch.equal(G, kept) for G, kept in zip(case.gradients, before, strict=True)):
        for G, kept in zip(case.gradients, before, strict=True):
            G.copy_(kept)
        return "wrong: it changed the gradient"
    if complaint is not None:
        return f"wrong: {complaint}"
    if method.seconds is not nothing and seconds > limit:
        return f"skipped: {seconds:.2g} s a step"
    running.set_lr(lr * TIMED_SHARE)
    return running


def second_and_third_step(methods: Sequence[Method], case: Case) -> list[Allocations]:
    """Allocations of the second and the third step of LandingSGD."""
    landing = next(method for method in methods if method.name == LANDING)
    running = landing.build(case, landing.checked_lr(case) * TIMED_SHARE)
    running.step()
    return [allocations(running.step, str(case.device)) for _ in range(2)]
