"""A batch on the host in which nothing is rare: one bound for all of its matrices, from the extremes of their norms.

Per-matrix numbers of a thousand 3 x 3 matrices cost more than their products. Where the worst of them may take the
whole step without a share or a scale, all may, and three numbers are enough to know it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from glideslope.formulas.measure import Point
from glideslope.formulas.plan import affordable_share, landing_bound, rounding_margin
from glideslope.formulas.rounding import smallest_norm
from glideslope.formulas.rule import StepRule
from glideslope.formulas.safeguard import pull_of
from glideslope.formulas.workspace import is_on_host

# Gradients up to this size need no scale.
LARGEST_SIZE = 1e15


class Alike(NamedTuple):
    """Matrices that are all inside, whose gradients are followed as they are."""

    step_size: float
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

    def admits(self, longest: float, rule: StepRule) -> bool:
        """Whether the lemma admits the whole step for every matrix, where the longest field has this norm.

        The pull λ d (1 - d) is concave in d and the slack falls with d: they are least at one of the extremes.
        """
        length = self.step_size * longest
        if not length * length < math.inf:
            return False
        pull = min(pull_of(rule.attraction, d) for d in (self.nearest, self.farthest)) - self.drift
        bound: float = landing_bound(pull, max(longest, self.floor), self.reach - self.farthest, rule.attraction)
        return self.step_size <= bound


def look_alike(X: Tensor, at: Point, rule: StepRule, step_size: float | Tensor, active: Tensor | None) -> Alike | None:
    """What the matrices of a batch have in common; None if one that moves needs a look of its own."""
    if X.ndim != 3 or not is_on_host(X) or not rule.lands or rule.safeguard != "lemma" or not X.numel():
        return None
    if isinstance(step_size, Tensor) and step_size.numel() > 1:
        return None
    largest, tiny = torch.finfo(X.dtype).max, torch.finfo(X.dtype).tiny
    step, moving, size = max(float(step_size), 0.0), active, at.size.amax().item()
    if not max(step, 2 * rule.attraction) < largest:  # numbers that X's type does not have
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
    if any(affordable_share(drift, d, rule, reach, step, tiny) < 1 for d in (nearest, farthest)):
        return None
    return Alike(step, nearest, farthest, drift, reach, smallest_norm(X), moving)
