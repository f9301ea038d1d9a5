"""What an optimizer knows of its constrained matrices, as rows and as a table."""

from __future__ import annotations

from typing import NamedTuple


class MatrixDiagnosis(NamedTuple):
    """One constrained parameter; each list has one entry per matrix in it."""

    name: str
    distance: list[float]
    """‖X^H X - I‖_F now (of the float32 master of a half-precision parameter)."""
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
