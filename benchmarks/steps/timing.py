"""How long to measure, and what becomes of the samples."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import quantiles

import torch

from glideslope.cli.bench import Steps, repetitions_of, take_round


@dataclass(frozen=True)
class Budget:
    """How long to measure.

    Args:
        rounds: At most this many rounds of a workload.
        fewest: At least this many, however long they take.
        seconds: In between, as many as fit into this time.
        slowest: A costly method whose step takes longer (seconds) is skipped.
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


def interleave(
    steps: Steps,
    into: dict[str, Samples],
    *,
    budget: Budget,
    deadline: Deadline,
    device: torch.device,
    on_round: Callable[[int, int], None],
) -> None:
    """Fill `into` with samples of every step, round by round, so that an interrupted run keeps what it has."""
    into.update({name: Samples([], repetitions_of(step, device)) for name, step in steps.items()})
    repetitions = {name: samples.repetitions for name, samples in into.items()}
    rounds, begin, done = budget.rounds, time.perf_counter(), 0
    while done < rounds and not (done and deadline.is_over):
        for name, seconds in take_round(steps, repetitions, done, device).items():
            into[name].seconds.append(seconds)
        done += 1
        per_round = (time.perf_counter() - begin) / done
        rounds = min(budget.rounds, max(budget.fewest, int(budget.seconds / per_round)))
        on_round(done, rounds)
