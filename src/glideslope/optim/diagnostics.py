"""Distances and counters of the constrained matrices of an optimizer, as rows and as a table."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from glideslope.formulas.arguments import HALF_TYPES
from glideslope.formulas.orthogonality import distance, spectral_distance
from glideslope.ranks.dtensors import is_sharded
from glideslope.stiefel.scales import divided_by_scale
from glideslope.stiefel.sharding import sharded_distances
from glideslope.stiefel.views import as_matrices

if TYPE_CHECKING:
    from glideslope.optim.bucket import Bucket

# Often enough to be told early, rarely enough to cost nothing.
STEPS_BETWEEN_LOOKS = 100


class MatrixDiagnosis(NamedTuple):
    """One constrained parameter; each list has one entry per matrix in it."""

    name: str
    distance: list[float]
    """‖X^H X - I‖_F now, of X/σ with a scale σ (and of the float32 master of a half-precision parameter)."""
    shortened: list[int]
    """Steps the safeguard made shorter than the learning rate asked for."""
    recovered: list[int]
    """Steps spent on coming back from outside the safe region."""
    skipped: list[int]
    """Steps not taken because the gradient was not finite."""


class Diagnostics(list[MatrixDiagnosis]):
    """Rows of `MatrixDiagnosis`, one per constrained parameter; prints as an aligned table."""

    def __str__(self) -> str:
        header = ("name", "matrices", "distance", "shortened", "recovered", "skipped")
        rows = [
            (
                r.name,
                str(len(r.distance)),
                f"{max(r.distance, default=0.0):.1e}",
                *(str(sum(counts)) for counts in (r.shortened, r.recovered, r.skipped)),
            )
            for r in self
        ]
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
            for row in [header, *rows]
        ]
        return "\n".join(lines)

    __repr__ = __str__


def counted_recently(bucket: Bucket) -> tuple[int, int]:
    """After every `STEPS_BETWEEN_LOOKS` steps, how many were shortened and skipped, of the worst matrix; else 0, 0."""
    steps, before = bucket.watched
    if before is not None and steps + 1 < STEPS_BETWEEN_LOOKS:
        bucket.watched = (steps + 1, before)
        return 0, 0
    counted = torch.stack([bucket.numbers(name, torch.int64).flatten() for name in ("shortened", "skipped")])
    bucket.watched = (0, counted)
    if before is None or before.shape != counted.shape:
        return 0, 0
    shortened, skipped = (counted - before).amax(1).tolist()
    return shortened, skipped


def warn_of_shortening(who: str, name: str, shape: tuple[int, ...], recent: int, lands: bool) -> None:
    """Warn, at the caller's line, that most steps of a matrix are shortened, with the options to change.

    Args:
        who: The optimizer.
        name: The parameter.
        shape: Of its matrices, (*batch, n, p).
        recent: How many of the last `STEPS_BETWEEN_LOOKS` steps were shortened.
        lands: Whether normal_step is "landing".
    """
    advice = "lower lr"
    if lands:
        advice = f'set normal_step="newton-schulz", which allows longer steps of large matrices, or {advice}'
    warnings.warn(
        f"{who}: {recent} of the last {STEPS_BETWEEN_LOOKS} steps of {name!r} (or of a matrix stepped with it), "
        f"{shape[-2]} x {shape[-1]}, were shortened to stay in the safe region: they are shorter than lr asks for. To "
        f"change that, {advice}. optimizer.diagnostics() counts shortened steps. This is said once.",
        stacklevel=callers_level(),
    )


def warn_of_skipping(who: str, name: str, recent: int) -> None:
    """Warn, at the caller's line, that most gradients of a matrix are not finite.

    Args:
        who: The optimizer.
        name: The parameter.
        recent: How many of the last `STEPS_BETWEEN_LOOKS` gradients were not.
    """
    warnings.warn(
        f"{who}: {recent} of the last {STEPS_BETWEEN_LOOKS} gradients of {name!r} (or of a matrix stepped with it) "
        "were infinite or NaN. Such a matrix stays where it is, so nothing is learnt. Look at the loss, and for a free "
        "parameter that overflowed: lower lr, or clip the gradients. optimizer.diagnostics() counts skipped steps. "
        "This is said once.",
        stacklevel=callers_level(),
    )


def callers_level() -> int:
    """The stacklevel, for the function that calls this, of the first frame outside of this package and of torch."""
    package = os.path.dirname(os.path.dirname(__file__))
    inside = tuple(folder + os.sep for folder in (package, os.path.dirname(torch.__file__)))
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith((*inside, "<")):
        frame, level = frame.f_back, level + 1
    return level


def distances_of(
    point: Tensor, view: str, sigma: float | Tensor | None, norm: Callable[[Tensor], Tensor] = distance
) -> list[float]:
    """‖X^H X/σ² - I‖ of the matrices of a parameter; σ None is ‖X‖_F/√p. To be called on all ranks."""
    if is_sharded(point):
        return sharded_distances(point, view, sigma, spectral=norm is spectral_distance)
    matrices = as_matrices(point, view)
    wide = matrices.float() if matrices.dtype in HALF_TYPES else matrices
    return norm(divided_by_scale(wide, sigma)).reshape(-1).tolist()


def largest_distance(point: Tensor, view: str, sigma: float | None, norm: Callable[[Tensor], Tensor]) -> float:
    """The largest of `distances_of`, NaN if any is."""
    return torch.tensor(distances_of(point, view, sigma, norm), dtype=torch.float64).max().item()
