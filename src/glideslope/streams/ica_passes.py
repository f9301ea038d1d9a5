"""Newton steps towards independent components: on a few rows, on more and more of them, at last on all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glideslope.solve.rows import Rows
from glideslope.streams.arrays import Array, alike, inner, namespace, product
from glideslope.streams.ica_rotation import Sweep, Unmixing
from glideslope.streams.threads import Apply

# Numbers read at a time: a block and its scores stay in a cache of a megabyte or two.
BLOCK_NUMBERS = 160_000
# Rows of the first sample, in all and per component: fewer cannot tell most sources from Gaussian ones.
SAMPLE_ROWS, SAMPLE_ROWS_PER_COMPONENT = 2048, 100
# Each sample is this many times larger than the one before. It takes two or three steps, so that all samples together
# cost less than one pass over all rows.
SAMPLE_GROWTH = 8
# All rows are at least this many times more than the last sample: otherwise it would cost as much as it saves.
LEAST_GROWTH = 4
# Numbers of the largest sample, which is held in memory: 64 megabytes of float32.
LARGEST_SAMPLE = 2**24
# A sample of a file is read in this many pieces, evenly spread.
SAMPLE_PIECES = 64
# A sample is left when the angle to its solution is this share of 1/sqrt(rows), the angle from there to the solution of
# all rows: more precision would be lost with the next sample.
SHARE_OF_NOISE = 0.6
# Steps on a sample at most: solutions are found in 4 to 20, if there is one.
SAMPLE_STEPS = 40
# A step is expected to leave this many times what it would if the angle fell as it did in the step before.
MARGIN = 2
# Weights of a step: beyond these, two turns do not say enough of the curvature.
SHORTEST, LONGEST = 0.3, 8.0
# An angle is due to rounding when it is this many roundings of 1 over the least curvature, and falls no more.
ROUNDINGS = 10


@dataclass
class Descent:
    """Newton steps on a set of rows until the angle they turn by is small.

    Args:
        model: Gets a new X.
        sweep: Over all blocks of the sources.
        enough: Stop when the root mean square angle is below it, or when the next step is expected to leave less.
        most: Steps at most.
        from_anywhere: Always make sure that the end is no saddle. From a solution for some of the rows, do so only
            where sources look Gaussian.
        report: Called before every step with its number and the angle.
    """

    model: Unmixing
    sweep: Sweep
    enough: float
    most: int
    from_anywhere: bool
    report: Callable[[int, float], None] = lambda _, __: None
    rate: float = 1.0
    """Factor by which a step was last seen to change the angle, here or on fewer rows."""
    steps: int = 0
    angle: float = math.inf
    ending: str = "limit"
    """Why it ended: "converged", "rounding" (the angle falls no more) or "limit" (of the steps)."""

    def run(self) -> str:
        """Take the steps; why they ended.

        The last step is taken after its angle was seen to be small enough, so that the solution is closer than asked.
        Steps are as long as the last two turns say; the last one is a Newton step.
        """
        model, last, weight = self.model, None, 1.0
        while self.steps < self.most:
            statistics = model.statistics(self.sweep)
            self.steps += 1
            model.adapt(statistics)
            turn = model.turn(statistics.cross)
            before, self.angle = self.angle, model.angle(turn)
            self.report(self.steps, self.angle)
            if last is not None:
                self.rate = self.angle / before
            if self.angle * min(1.0, MARGIN * self.rate) <= self.enough:
                self.ending = "converged"
            elif last is not None and before <= self.angle <= ROUNDINGS * model.angle_of_rounding():
                self.ending = "rounding"
                break
            if self.ending != "limit" and self._leaves_saddle():
                self.ending, last, weight = "limit", None, 1.0
                continue
            if self.ending != "limit":
                model.step(turn, 1.0)
                break
            weight = 1.0 if last is None else length_of_step(last, turn, weight)
            model.step(turn, weight)
            last = turn
        model.land()
        return self.ending

    def _leaves_saddle(self) -> bool:
        """Whether the point was a saddle, which is left then. Takes a pass over the rows."""
        if self.steps + 2 > self.most or not (self.from_anywhere or self.model.nearly_gaussian().any()):
            return False
        self.steps += 1
        return self.model.leave_saddle(self.sweep)


def length_of_step(last: Array, turn: Array, weight: float) -> float:
    """The weight of the next turn, by Barzilai and Borwein: w <Ω', Ω'> / <Ω', Ω' - Ω> after a turn Ω' of weight w.

    It is 1 where curvatures are those of independent sources, longer where turns shrink slowly, as for sources that
    depend on each other, and shorter where they change sign.
    """
    squared = inner(last, last)
    curvature = squared - inner(last, turn)
    if curvature <= 0:
        return 1.0
    return min(max(weight * squared / curvature, SHORTEST), LONGEST)


def solve_sample(model: Unmixing, Z: Array, enough: float, *, from_anywhere: bool, apply: Apply = map) -> float:
    """Newton steps on some rows; the rate at which they converged.

    Args:
        model: Gets a new X.
        Z: K^T (a - μ) of the rows a, shape (p, b). The noise of their covariance, which would not cancel in a turn
            where signs differ, is removed first.
        enough: Angle in radians.
        from_anywhere: X is not yet the solution for some of the rows.
        apply: Goes through blocks of the rows.
    """
    xp = namespace(Z)
    # torch keeps to its number of threads; NumPy's library may wake others, for ten times as long.
    # (A float, because NumPy 1 divides float32 by a large int in float64.)
    variances, directions = (
        xp.asarray(part) for part in torch.linalg.eigh(torch.as_tensor(product(Z, Z.T) / float(Z.shape[1])))
    )
    least = float(xp.finfo(Z.dtype).eps) * float(variances.max())
    white = product(directions / xp.sqrt(variances.clip(least)) @ directions.T, Z)
    size = max(1, BLOCK_NUMBERS // len(Z))
    blocks = [white[:, start : start + size] for start in range(0, Z.shape[1], size)]

    def sweep(work: Callable[[Array], Any]) -> Iterable[Any]:
        return apply(lambda block: work(product(model.X.T, block)), blocks)

    steps = Descent(model, sweep, enough, SAMPLE_STEPS, from_anywhere)
    steps.run()
    return steps.rate


def separate(
    model: Unmixing,
    rows: Rows,
    *,
    tolerance: float,
    max_passes: int,
    report: Callable[[int, float], None],
    apply: Apply = map,
) -> Descent:
    """Find X for all rows, from samples of them; how the passes over all of them ended.

    Args:
        model: Gets a new X.
        rows: The data.
        tolerance: Root mean square angle to stop at, in radians.
        max_passes: Passes over all rows at most.
        report: Called in every such pass with its number and the angle.
        apply: Goes through blocks of the rows.
    """
    wanted, first, rate = max(SAMPLE_ROWS, SAMPLE_ROWS_PER_COMPONENT * model.X.shape[1]), True, 1.0
    while LEAST_GROWTH * wanted < len(rows) and wanted * rows.shape[1] <= LARGEST_SAMPLE:
        Z = model.sources(alike(sample(rows, wanted), model.X), model.whitening)
        rate = solve_sample(
            model, Z, max(SHARE_OF_NOISE / math.sqrt(wanted), tolerance), from_anywhere=first, apply=apply
        )
        wanted, first = wanted * SAMPLE_GROWTH, False

    blocks = rows.slices(BLOCK_NUMBERS)
    # One block is whitened once.
    white = model.sources(alike(rows.take(blocks[0]), model.X), model.whitening) if len(blocks) == 1 else None

    def sweep(work: Callable[[Array], Any]) -> Iterable[Any]:
        if white is not None:
            return [work(product(model.X.T, white))]
        B = model.unmixing
        return apply(lambda where: work(model.sources(alike(rows.take(where), model.X), B)), blocks)

    passes = Descent(model, sweep, tolerance, max_passes, first, report, rate)
    passes.run()
    return passes


def sample(rows: Rows, wanted: int) -> Tensor:
    """About this many rows, evenly spread: each far from the others in memory, in pieces from a file."""
    if rows.in_memory:
        return rows.take(slice(None, None, len(rows) // wanted)).contiguous()
    length = max(1, wanted // SAMPLE_PIECES)
    starts = torch.linspace(0, len(rows) - length, SAMPLE_PIECES, dtype=torch.float64).long().tolist()
    return torch.cat([rows.take(slice(start, start + length)) for start in starts])
