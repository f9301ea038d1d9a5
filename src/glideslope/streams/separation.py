"""Passes over data that find independent components: a coarse solution first, then all rows, variance-reduced."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from glideslope.solve.rows import Rows
from glideslope.streams.unmixing import Unmixing

# A pass reads about this many numbers at a time, which stay in the cache.
BLOCK_NUMBERS = 160_000
# The first coarse solution uses this many rows, or as many per component; the next one so many times more.
COARSE_ROWS, COARSE_ROWS_PER_COMPONENT, COARSE_GROWTH = 2048, 100, 4
COARSE_PIECES = 64
# From so many rows on, growth is faster; samples have at most so many numbers.
MANY_ROWS = 4096
LARGEST_SAMPLE = 2**24
COARSE_STEPS = 40
# A coarse solution is left when its angle is this share of what sampling is off by.
SHARE_OF_NOISE = 0.6
BLOCK_ROWS = 4096
# One more Newton step is enough when it is expected to leave an angle this many times below the tolerance.
MARGIN = 5
# An angle is at rounding when it is this many roundings of 1 over the least curvature, and falls no more.
ROUNDINGS = 10
# Slots of a variance-reduced pass; each has at least so many rows per component.
SLOTS, SLOT_ROWS_PER_COMPONENT = 64, 10
# SAGA remembers at most so many bytes of scores; beyond, SVRG computes them again.
LARGEST_MEMORY = 2**28
# A step on a slot takes as long as a pass over so many numbers, whatever the slot holds.
NUMBERS_PER_STEP = 40_000
# The rate per pass expected of what was not tried, and the shortest variance-reduced steps worth a try.
UNTRIED, LEAST_WEIGHT = 0.5, 0.01
SLOW, TRIED_EVERY = 0.8, 10


@dataclass
class Separation:
    """Finds X for all rows.

    A pass at one X gives the exact gradient, and with it the test of convergence. Between two such passes there is
    either one Newton step, or a pass of variance-reduced steps (SAGA or SVRG) around that gradient: whichever has
    brought the angle down faster the last time it was used, for what it costs. On few rows a variance-reduced pass,
    which is many steps, costs as much as many Newton steps.

    Args:
        unmixing: What to learn, with its start.
        rows: The data.
        variance_reduction: "saga", "svrg" or None, for Newton steps alone.
        batch_size: Rows of a slot; None means a 64th of all, if that is enough for the components.
        tolerance: Stop when the root mean square angle to go is below it, or will be by a factor of five after one more
            Newton step, to judge by the last such step; or when it falls no more because of rounding.
        max_passes: Stop then at the latest.
        generator: Order of the slots.
        report: Called after every pass at one X with passes so far and the angle.
    """

    unmixing: Unmixing
    rows: Rows
    variance_reduction: str | None
    batch_size: int | None
    tolerance: float
    max_passes: int
    generator: torch.Generator
    report: Callable[[int, float], None]
    passes: int = 0
    angle: float = math.inf
    at_rounding: bool = False
    """Whether rounding keeps the angle above the tolerance."""
    _weight: float = 1 / 3
    _decisions: int = 0
    _failed: int = 0
    """Newton steps in a row without a new least angle, as there are on the way from a saddle."""
    _rates: dict[str, float] = field(init=False)
    _costs: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        steps = self._slots() * NUMBERS_PER_STEP / (len(self.rows) * self.rows.shape[1])
        self._costs = {"newton": 1, "reduced": 2 + steps}
        self._rates = {"newton": 0.0, "reduced": self._untried()}

    def _untried(self) -> float:
        return math.pow(UNTRIED, 2 / self._costs["reduced"])

    def solve(self) -> bool:
        """Learn X; whether the angle is below the tolerance."""
        rate = self._start_from_few_rows()
        mode, before, least, kept = None, math.inf, math.inf, self.unmixing.X
        while True:
            statistics = self.unmixing.statistics(self.blocks())
            self.passes += 1
            self.unmixing.adapt(statistics)
            turn = self.unmixing.turn(statistics.cross)
            self.angle = self.unmixing.angle(turn)
            self.report(self.passes, self.angle)
            if mode is not None:
                rate = self.angle / before if mode == "newton" else math.inf
            if after_a_step(self.angle, rate) <= self.tolerance:
                if self._leaves_saddle():
                    mode, rate = None, math.inf
                    continue
                if MARGIN * rate < 1:
                    self.unmixing.step(turn, 1.0)
                return True
            near_rounding = self.angle <= ROUNDINGS * self.unmixing.angle_of_rounding()
            self.at_rounding = near_rounding and mode == "newton" and self.angle >= before
            if self.at_rounding or self.passes >= self.max_passes:
                return False
            if mode is not None:
                self._rates[mode] = (self.angle / before) ** (1 / self._costs[mode])
                self._failed = self._failed + 1 if mode == "newton" and self.angle >= least else 0
            least = min(least, self.angle)
            if mode == "reduced" and self.angle > before:
                if self._weight > LEAST_WEIGHT:  # shorter steps have not been tried
                    self._weight /= 2
                    self._rates[mode] = self._untried()
                if self.angle > 2 * before:
                    self.unmixing.X, before, mode = kept, math.inf, None
                    continue
            mode = "newton" if near_rounding else self._faster()
            before, kept = self.angle, self.unmixing.X
            if mode == "newton":
                self.unmixing.step(turn, 1.0)
            else:
                self._reduced_pass(statistics.cross)

    def _leaves_saddle(self) -> bool:
        """Leave a saddle that few rows cannot show, of sources of which one looks Gaussian. Takes a pass if so."""
        model = self.unmixing
        if not model.nearly_gaussian() or self.passes + 2 > self.max_passes:
            return False
        self.passes += 1
        B = model.unmixing
        return model.leave_saddle(model.sources(rows, B) for rows in self.blocks())

    def _faster(self) -> str:
        if self.variance_reduction is None or self.passes + 2 > self.max_passes:
            return "newton"
        change = self._costs["reduced"] / 2
        if self._failed:  # to go on is worth it until it has cost what a change would
            return "newton" if self._failed < math.floor(change) else "reduced"
        better, other = sorted(self._rates, key=self._rates.__getitem__)
        self._decisions += 1
        # Where neither is fast, the other gets its chance again, as the point it did badly at is left behind.
        return other if self._rates[better] > SLOW and self._decisions % round(TRIED_EVERY * change) == 0 else better

    def blocks(self) -> Iterator[Tensor]:
        """All rows, in pieces that stay in the cache."""
        for _, block in self.rows.blocks(BLOCK_NUMBERS):
            yield block.to(self.unmixing.X.device)

    def _start_from_few_rows(self) -> float:
        """Newton steps on more and more of the rows, each time until only the noise of the sample is left.

        Returns the share of an angle that such a step is expected to leave on all rows. It is due to the sampling error
        of the curvatures, so it falls with the root of the number of rows.
        """
        model, n_rows, seen, rate = self.unmixing, len(self.rows), 1, math.inf
        wanted = min(max(COARSE_ROWS, COARSE_ROWS_PER_COMPONENT * model.X.shape[1]), n_rows)
        while wanted * self.rows.shape[1] <= LARGEST_SAMPLE:
            few = sample(self.rows, wanted).to(model.X.device)
            enough = max(SHARE_OF_NOISE / math.sqrt(wanted), self.tolerance)
            rate *= math.sqrt(seen / len(few))
            rate, seen = settle(model, model.sources(few, model.whitening), enough, rate), len(few)
            wanted *= COARSE_GROWTH if wanted < MANY_ROWS else COARSE_GROWTH**2
            if 2 * wanted >= n_rows:
                break
        return rate * math.sqrt(seen / n_rows)

    def _reduced_pass(self, cross: Tensor) -> None:
        """As many variance-reduced steps as there are slots, around the exact gradient X C of the present X."""
        model = self.unmixing
        slots = self._slots()
        saga = self.variance_reduction == "saga" and self._memory_fits()
        anchor, mean_gradient = model.unmixing, model.X @ cross
        memory: dict[int, Tensor] = {}
        # SAGA is unbiased only for slots drawn with replacement, SVRG for any order.
        draws = torch.randint(slots, (slots,), generator=self.generator)
        if not saga:
            draws = torch.randperm(slots, generator=self.generator)
        for slot in draws.tolist():
            columns = (self._slot(slot, slots) - model.mean).T
            old = memory[slot] if slot in memory else model.contrast.scores(anchor.T @ columns)[0]
            new, _ = model.contrast.scores(model.unmixing.T @ columns)
            change = model.whitening.T @ (columns @ (new - old).T)
            estimate = torch.add(mean_gradient, change, alpha=slots / len(self.rows))
            if saga:
                mean_gradient = torch.add(mean_gradient, change, alpha=1 / len(self.rows))
                memory[slot] = new
            model.step(model.turn(model.X.T @ estimate), self._weight)
        self.passes += 1

    def _memory_fits(self) -> bool:
        X = self.unmixing.X
        return len(self.rows) * X.shape[1] * X.element_size() <= LARGEST_MEMORY

    def _slots(self) -> int:
        least = SLOT_ROWS_PER_COMPONENT * self.unmixing.X.shape[1]
        rows = self.batch_size or max(least, len(self.rows) // SLOTS)
        return max(1, len(self.rows) // rows)

    def _slot(self, slot: int, slots: int) -> Tensor:
        """Every so manieth row, so that neighbours in time are in different slots; consecutive rows of a file."""
        if self.rows.in_memory:
            where = slice(slot, None, slots)
        else:
            where = slice(slot * len(self.rows) // slots, (slot + 1) * len(self.rows) // slots)
        return self.rows.take(where).to(self.unmixing.X.device)


def after_a_step(angle: float, rate: float) -> float:
    """The angle to count on after a Newton step from this one, if the last such step has left this share of it."""
    return angle * min(1.0, MARGIN * rate)


def settle(model: Unmixing, Z: Tensor, enough: float, rate: float = math.inf) -> float:
    """Newton steps on some rows until the angle is below `enough` and the point is no saddle.

    Args:
        model: Gets a new X.
        Z: K^T (a - μ) of the rows a, shape (p, b). The noise of their covariance, which would not cancel in a turn
            where signs differ, is removed first.
        enough: In radians.
        rate: Share of the angle that a step is expected to leave, as far as known.

    Returns:
        The share of the angle that the last step whose effect was seen has left.
    """
    variances, directions = torch.linalg.eigh(Z @ Z.T / Z.shape[1])
    least = torch.finfo(Z.dtype).eps * float(variances.max())
    columns = torch.split((directions / variances.clamp(min=least).sqrt() @ directions.T) @ Z, BLOCK_ROWS, 1)
    before = math.inf
    for _ in range(COARSE_STEPS):
        statistics = model.white_statistics(columns)
        model.adapt(statistics)
        turn = model.turn(statistics.cross)
        angle = model.angle(turn)
        rate = angle / before if before < math.inf else rate
        settled = after_a_step(angle, rate) <= enough
        if settled and model.leave_saddle([model.X.T @ columns[0]]):
            before, rate = math.inf, math.inf
            continue
        model.step(turn, 1.0)
        if settled:
            break
        before = angle
    return rate


def sample(rows: Rows, wanted: int) -> Tensor:
    """About so many rows, evenly spread: each far from the others in memory, in pieces from a file."""
    if rows.in_memory:
        return rows.take(slice(None, None, len(rows) // wanted)).contiguous()
    length = max(1, wanted // COARSE_PIECES)
    starts = torch.linspace(0, len(rows) - length, COARSE_PIECES, dtype=torch.float64).long().tolist()
    return torch.cat([rows.take(slice(start, start + length)) for start in starts])
