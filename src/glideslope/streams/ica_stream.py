"""Independent components of a stream: a buffer of first rows for a start, then one landing step for every batch."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glideslope.stiefel.points import project, random_stiefel
from glideslope.streams.arrays import alike, native
from glideslope.streams.ica_contrast import Contrast
from glideslope.streams.ica_passes import solve_sample
from glideslope.streams.ica_rotation import Unmixing
from glideslope.streams.moments import Moments
from glideslope.streams.whitening import correlations, leading, whitening_of

# The whitening is computed anew, and a buffer solved again, when there are this many times more rows.
GROWTH, BUFFER_GROWTH = 1.1, 1.5
# A buffer has at least so many rows in all, and per component.
BUFFER_ROWS, BUFFER_ROWS_PER_COMPONENT = 8192, 100
# A buffer is solved until the angle is this share of what sampling is off by.
SHARE_OF_NOISE = 0.1


class SourceStream:
    """Mean, whitening and rotation that follow a stream of rows.

    The weight of a batch is its share of all rows: with Newton steps that is the gain of the best streaming estimate.

    Args:
        n_columns: n.
        n_components: p; None means as many as the first rows have independent directions.
        contrast: G and ψ.
        whiten: False for rows that are white and centred.
        weight: Share of the past that a batch replaces; None means its share of the rows so far.
        start: First rotation (p x p), or None for a random one.
        generator: Of the random start.
        dtype: float32 or float64.
        device: Of the rows.
    """

    def __init__(
        self,
        n_columns: int,
        n_components: int | None,
        *,
        contrast: Contrast,
        whiten: bool = True,
        weight: float | None = None,
        start: Tensor | None = None,
        generator: torch.Generator,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        self.n_components, self.contrast, self.dtype, self.device = n_components, contrast, dtype, device
        self.moments = Moments(n_columns, covariance=True, weight=weight, device=device)
        self.model: Unmixing | None = None
        self.unwhitening: Tensor | None = None
        """L, shape (n, p): features are μ + L X y. None without whitening."""
        self.whiten, self.start, self.generator = whiten, start, generator
        self._buffer: list[Tensor] | None = []
        self._buffered, self._due = 0, 0.0

    @property
    def mixing(self) -> Tensor:
        """L X, shape (n, p), float64: how strongly every source is in every feature."""
        assert self.model is not None
        X = torch.as_tensor(self.model.X).double()
        return X if self.unwhitening is None else self.unwhitening @ X

    @property
    def n_wanted(self) -> int:
        """Rows needed before there can be a model."""
        return (self.n_components or self.moments.mean.shape[0]) + 1

    def go_on_from(self, moments: Moments, model: Unmixing, unwhitening: Tensor | None) -> None:
        """Take over what was learnt from whole data."""
        moments.weight = self.moments.weight
        self.moments, self.model, self.unwhitening = moments, model, unwhitening
        self._buffer, self._due = None, GROWTH * moments.count

    def update(self, rows: Tensor) -> None:
        """Learn from a batch of rows, shape (b, n), of any b >= 1."""
        self.moments.update(rows)
        if self._buffer is not None:
            self._buffer.append(rows.clone())
            self._buffered += len(rows)
            if self._buffered >= max(self._due, self.n_wanted):
                self._solve_buffer()
            return
        if self.moments.count >= self._due or self.moments.weight is not None:
            self._whiten()
        assert self.model is not None
        share = len(rows) / self.moments.count
        statistics = self.model.decorrelated(alike(rows, self.model.X))
        self.model.adapt(statistics, share)
        self.model.step(self.model.turn(statistics.cross), share)
        self.model.land()

    def _solve_buffer(self) -> None:
        """Newton steps on all rows so far; the buffer goes once it is large enough for a start."""
        assert self._buffer is not None
        if not self._whiten():
            return
        assert self.model is not None
        self._buffer = [torch.cat(self._buffer)]
        Z = self.model.sources(alike(self._buffer[0], self.model.X), self.model.whitening)
        solve_sample(self.model, Z, SHARE_OF_NOISE / math.sqrt(self._buffered), from_anywhere=True)
        self._due = BUFFER_GROWTH * self._buffered
        p = self.model.X.shape[1]
        if self._buffered >= max(BUFFER_ROWS, BUFFER_ROWS_PER_COMPONENT * p):
            self._buffer, self._due = None, GROWTH * self.moments.count

    def _whiten(self) -> bool:
        """The whitening of the moments so far, with X turned to keep its sources; False where it cannot be had yet."""
        if not self.whiten:
            return self._take_as_white()
        covariance = self.moments.covariance()
        p = self.model.X.shape[1] if self.model is not None else self.n_components
        found = correlations(covariance, self.moments.mean, self.dtype)
        rank = len(found.deviations)
        if rank < (p or 1):
            return False
        whitening, mean = leading(found, p), native(self.moments.mean.to(self.dtype))
        K, self.unwhitening = whitening.matrix, whitening.inverse
        if self.model is None:
            X = self.start if self.start is not None else self._random(K.shape[1])
            self.model = Unmixing(mean, native(K.to(self.dtype)), native(X), self.contrast)
        else:
            X = project(K.T @ (covariance @ torch.as_tensor(self.model.unmixing).double())).to(self.dtype)
            self.model.whiten_by(mean, native(K.to(self.dtype)))
            self.model.X = native(X)
        self._due = GROWTH * self.moments.count
        return True

    def _take_as_white(self) -> bool:
        n = self.moments.mean.shape[0]
        if self.model is None:
            X = self.start if self.start is not None else self._random(n)
            eye = torch.eye(n, dtype=self.dtype, device=self.device)
            self.model = Unmixing(native(eye.new_zeros(n)), native(eye), native(X), self.contrast)
        return True

    def finish(self) -> None:
        """Use all rows of the buffer, as nothing comes after them."""
        if self._buffer and self._buffered >= self.n_wanted:
            self._solve_buffer()
        if self.model is None:
            moments = self.moments
            whitening_of(moments.covariance(), moments.mean, self.n_components, self.dtype)  # says what is missing

    def _random(self, p: int) -> Tensor:
        return random_stiefel(p, p, generator=self.generator, dtype=self.dtype).to(self.device)
