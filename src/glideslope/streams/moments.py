"""Running moments of a stream of rows: the mean with the variances of the columns, or with the whole covariance.

Sums are kept in float64 around a running mean, so that neither a large mean nor a long stream costs digits.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# Covariances are summed over pieces of about this many numbers, converted to float64 one at a time.
PIECE_NUMBERS = 2**18


class Moments:
    """Count, mean, and sums of squared deviations of all rows so far.

    Args:
        n_columns: Width of the rows.
        covariance: Keep the n x n scatter matrix Σ (a - μ)(a - μ)^T; otherwise only its diagonal.
        weight: Share of the past that a batch replaces, in (0, 1]; None means its share of the rows so far.
        device: Where the rows are.
    """

    def __init__(
        self, n_columns: int, *, covariance: bool, weight: float | None = None, device: torch.device | str = "cpu"
    ) -> None:
        self.count = 0.0
        """Rows so far; with a weight, rows that still count."""
        self.weight = weight
        self.mean = torch.zeros(n_columns, dtype=torch.float64, device=device)
        shape = (n_columns, n_columns) if covariance else (n_columns,)
        self.scatter = torch.zeros(shape, dtype=torch.float64, device=device)

    def update(self, rows: Tensor) -> Tensor:
        """Add rows, shape (b, n); the rows R whose R^T R is what they add to the scatter matrix, shape (b + 1, n).

        Σ over all rows of (a - μ)(a - μ)^T grows by that of the batch around its own mean, and by the distance between
        the two means: t b / (t + b) (μ_b - μ)(μ_b - μ)^T.
        """
        if self.weight is not None:
            self.forget(len(rows) * (1 - self.weight) / self.weight)
        total = self.count + len(rows)
        mean = rows.mean(0, dtype=torch.float64)
        shift = mean - self.mean
        added = torch.empty((len(rows) + 1, rows.shape[1]), dtype=rows.dtype, device=rows.device)
        torch.sub(rows, mean.to(rows.dtype), out=added[:-1])
        added[-1] = shift * math.sqrt(self.count * len(rows) / total)
        for piece in torch.split(added, max(1, PIECE_NUMBERS // rows.shape[1])):
            wide = piece.double()
            if self.scatter.ndim == 1:
                self.scatter += (wide.square_() if wide is not piece else wide.square()).sum(0)
            else:
                self.scatter.addmm_(wide.T, wide)
        self.mean += shift * (len(rows) / total)
        self.count = total
        return added

    def merge(self, other: Moments) -> None:
        """Add the rows that another object has seen."""
        total = self.count + other.count
        shift = other.mean - self.mean
        share = other.count / total
        between = shift * (self.count * share)
        self.scatter += other.scatter
        self.scatter += between * shift if self.scatter.ndim == 1 else torch.outer(between, shift)
        self.mean += shift * share
        self.count = total

    def forget(self, most: float) -> None:
        """Let the past count as so many rows at most."""
        if self.count > most:
            self.scatter *= most / self.count
            self.count = most

    def covariance(self) -> Tensor:
        """The covariance matrix, or the variances of the columns, divided by the count; float64."""
        return self.scatter / self.count
