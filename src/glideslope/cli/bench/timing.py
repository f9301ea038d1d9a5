"""Interleaved timing: in every round each method takes one sample, so that all see the same moods of the machine."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import quantiles

import torch

Step = Callable[[], object]
SHORTEST_SAMPLE = 2e-3  # seconds; shorter steps are repeated in a sample
LONG_STEP = 0.5  # seconds; after its checked step such a one is warm enough by one more


@dataclass(frozen=True)
class Budget:
    """How long to measure.

    Args:
        rounds: At most this many rounds of a workload.
        fewest: At least this many, however long they take.
        seconds: In between, as many as fit into this time.
        slowest: A costly method whose step takes longer (seconds) is skipped, unless a target asks for it.
        whole: Seconds for all workloads together; then no further method is tried.
    """

    rounds: int = 50
    fewest: int = 5
    seconds: float = 40.0
    slowest: float = 2.0
    whole: float = math.inf

    @classmethod
    def of(cls, *, rounds: int | None, quick: bool) -> Budget:
        """The whole or the quick budget; `rounds` caps both the most and the fewest."""
        usual = cls(10, 3, 2.0, 0.0, 40.0) if quick else cls()
        if rounds is None:
            return usual
        return replace(usual, rounds=rounds, fewest=min(rounds, usual.fewest))


class Deadline:
    """When a run has to be over, counted from now."""

    def __init__(self, seconds: float) -> None:
        self.end = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.monotonic() > self.end


@dataclass(frozen=True)
class Timing:
    """Seconds of one step: median and quartiles over the samples of all rounds."""

    median: float
    lower: float
    upper: float
    samples: int
    repetitions: int


@dataclass
class Samples:
    """Seconds of a step, one entry a round, and how many steps were in each."""

    seconds: list[float]
    repetitions: int

    def timing(self) -> Timing | None:
        """Median and quartiles, None without samples."""
        if not self.seconds:
            return None
        points = self.seconds * 2 if len(self.seconds) == 1 else self.seconds
        lower, median, upper = quantiles(points, n=4, method="inclusive")
        return Timing(median, lower, upper, len(self.seconds), self.repetitions)


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Collect now, and not again until the end."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def timed(step: Step, repetitions: int, device: torch.device) -> float:
    """Seconds of one of so many steps in a row; waits for a GPU before and after."""
    waits = device.type == "cuda"
    if waits:
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    for _ in range(repetitions):
        step()
    if waits:
        torch.cuda.synchronize(device)
    return (time.perf_counter() - begin) / repetitions


def interleave(
    steps: Mapping[str, Step],
    into: dict[str, Samples],
    *,
    budget: Budget,
    deadline: Deadline,
    device: torch.device,
    on_round: Callable[[int, int], None],
) -> None:
    """Fill `into` with samples of every step, round by round, so that an interrupted run keeps what it has.

    The order is rotated by one every round, and reversed in every other, so that no method always follows the same.
    """
    with without_garbage_collection():
        for name, step in steps.items():
            once = timed(step, 1, device)
            if once < LONG_STEP:  # again, with memory and code warm
                once = timed(step, 1, device)
            into[name] = Samples([], max(1, math.ceil(SHORTEST_SAMPLE / max(once, 1e-7))))
        names = list(steps)
        rounds, begin, done = budget.rounds, time.perf_counter(), 0
        while done < rounds and not (done and deadline.is_over):
            shift = done % len(names)
            order = names[shift:] + names[:shift]
            for name in order if done % 2 == 0 else reversed(order):
                samples = into[name]
                samples.seconds.append(timed(steps[name], samples.repetitions, device))
            done += 1
            per_round = (time.perf_counter() - begin) / done
            rounds = min(budget.rounds, max(budget.fewest, int(budget.seconds / per_round)))
            on_round(done, rounds)
