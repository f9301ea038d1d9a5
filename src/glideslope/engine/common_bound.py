"""Fast path for batches on the CPU: if the worst matrix may take the full step, all may.

Per-matrix numbers of a thousand 3 x 3 matrices cost more than their products. The bound is concave in the distance, so
the two extreme distances and the largest norms decide for all.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from glideslope.engine.decision import LARGEST_SIZE, affordable_share, landing_bound, rounding_margin
from glideslope.engine.point import Point
from glideslope.engine.products import is_on_host
from glideslope.engine.rounding import smallest_norm
from glideslope.engine.rule import StepRule
from glideslope.formulas.safeguard import attraction_of, pull_of


class CommonBound(NamedTuple):
    """Matrices that are all inside, whose gradients are followed as they are."""

    step_size: float
    attraction: float
    """λ."""
    nearest: float
    """The least ‖X^H X - I‖."""
    farthest: float
    drift: float
    """The largest bound of ‖sym(X^H T)‖."""
    reach: float
    floor: float
    """The norm of a field below which the squares in it underflow."""
    moving: Tensor | None
    """Which matrices move; None for all. The others have no part in the numbers above."""

    def admits(self, longest: float) -> bool:
        """Whether the lemma admits the whole step for every matrix, where the longest field has this norm.

        The pull λ d (1 - d) is concave in d and the slack falls with d: they are least at one of the extremes.
        """
        length = self.step_size * longest
        if not length * length < math.inf:
            return False
        pull = min(pull_of(self.attraction, d) for d in (self.nearest, self.farthest)) - self.drift
        bound: float = landing_bound(pull, max(longest, self.floor), self.reach - self.farthest, self.attraction)
        return self.step_size <= bound


def common_bound(
    X: Tensor, at: Point, rule: StepRule, step_size: float | Tensor, active: Tensor | None
) -> CommonBound | None:
    """The numbers that bound the steps of all matrices of a batch; None if one of them needs a decision of its own."""
    if X.ndim != 3 or not is_on_host(X) or not rule.lands or rule.safeguard != "lemma" or not X.numel():
        return None
    if isinstance(step_size, Tensor) and step_size.numel() > 1:
        return None
    largest, tiny = torch.finfo(X.dtype).max, torch.finfo(X.dtype).tiny
    step, moving, size = max(float(step_size), 0.0), active, at.size.amax().item()
    attraction = attraction_of(rule.attraction, step)
    if not max(step, 2 * attraction) < largest:  # numbers that X's type does not have
        return None
    if not math.isfinite(size):
        moving = torch.isfinite(at.size) if active is None else torch.isfinite(at.size) & active
    if moving is not None and bool(moving.all()):
        moving = None
    distances, drifts = at.distance, at.drift
    if moving is not None:
        distances, drifts, sizes = distances[moving], drifts[moving], at.size[moving]
        if not len(sizes):
            return None
        size = sizes.amax().item()
    nearest, farthest = (extreme.item() for extreme in torch.aminmax(distances))
    drift, reach = drifts.amax().item(), rule.reach - rounding_margin(X, rule)
    if not farthest <= reach or not size < LARGEST_SIZE:
        return None
    # The affordable drift is concave in d as well.
    if any(affordable_share(drift, d, attraction, reach, step, tiny) < 1 for d in (nearest, farthest)):
        return None
    return CommonBound(step, attraction, nearest, farthest, drift, reach, smallest_norm(X), moving)
