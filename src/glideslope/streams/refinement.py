"""Passes over all data from where a stream ended: the subspace of an exact decomposition, by landing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glideslope.solve.problems.pca import PCA
from glideslope.solve.rows import Rows
from glideslope.streams.subspace import LEAST_VARIANCE, Subspace


@dataclass
class Refinement:
    """Steps along the gradient of all data, scaled by the variances as the steps of the stream are.

    Args:
        stream: Where to start, and what to change.
        rows: The data.
        tolerance: Stop when the relative gradient is below it.
        passes: How many passes at most, each of one step.
        report: Called before every pass with its number.
    """

    stream: Subspace
    rows: Rows
    tolerance: float
    passes: int
    report: Callable[[int], None]
    gradient: float = math.inf
    """Root mean square of ‖C v - λ v‖ / λ over the directions v asked for, as it was last seen."""

    def run(self) -> int:
        """Refine the subspace; how many passes that took."""
        stream = self.stream
        assert stream.X is not None
        problem = PCA(self.rows.centred(stream.moments.mean), stream.X.shape[1])
        for number in range(1, self.passes + 1):
            self.report(number)
            _, G = problem.value_and_gradient(stream.X)
            self._measure(stream.X, G)
            stream.step_along(G, stream.relaxation())
            if self.gradient <= self.tolerance:
                return number
        return self.passes

    def _measure(self, X: Tensor, G: Tensor) -> None:
        """Λ and the relative gradient, from the gradient G = -C X."""
        geometry = self.stream.geometry
        power = -geometry.cross(X, G).double()
        self.stream.power = (power + power.T) / 2
        variances, rotation = torch.linalg.eigh(self.stream.power)
        p = self.stream.n_components
        residual = torch.addmm(G, X, self.stream.power.to(X.dtype)) @ rotation[:, -p:].to(X.dtype)
        floor = max(LEAST_VARIANCE * float(variances.mean()), torch.finfo(X.dtype).tiny)
        self.gradient = geometry.norm(residual / variances[-p:].clamp(min=floor).to(X.dtype)) / math.sqrt(p)
