"""Independent components: the rotation of whitened data, and one step towards it.

For Y = X^T Z with white columns Z, C = Y ψ(Y)^T / N and signs s_j = ±1 (super- or sub-Gaussian), the field of
Σ_j s_j E G(y_j) is X Ω with Ω skew. At independent sources the curvature of a turn in the plane (i, j) is h_i + h_j,
h_j = s_j (E ψ'(y_j) - E y_j ψ(y_j)), so that Ω_ij = (s_j C_ij - s_i C_ji) / (h_i + h_j) is a Newton step, of length 1.
X is p x p and turned by a Cayley transform. The normal part of a landing step, Newton-Schulz, keeps it orthogonal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from glideslope.formulas.normal import newton_schulz_factor
from glideslope.formulas.orthogonality import subtract_identity_
from glideslope.streams.ica_contrast import Contrast

# A source within this many deviations of sampling counts as Gaussian.
DEVIATIONS = 3
# A step turns by this root mean square angle over components at most, in radians: about how far a random start is off.
LONGEST_TURN = 0.6
# A turn by more, as root mean square over components, is one of a start. At 0.2 one of forty data sets with sources of
# all shapes ended a quarter further from them than FastICA; at 0.4 none, and the EEG ends at the same contrast.
LARGE_TURN = 0.4
# A mean of this many deviations of the data costs two digits at most where it is subtracted after the product.
SMALL_MEAN = 100


class Statistics(NamedTuple):
    """Means over rows of sources Y."""

    cross: Tensor
    """C = E y ψ(y)^T, shape (p, p)."""
    slope: Tensor
    """E ψ'(y), shape (p,)."""
    n_rows: int
    """How many."""


class Unmixing:
    """Sources (a - μ) K X of rows a: mean μ and whitening K given, X orthogonal and learnt.

    Args:
        mean: μ, shape (n,).
        whitening: K, shape (n, p).
        X: First rotation, shape (p, p).
        contrast: G and ψ.
    """

    def __init__(self, mean: Tensor, whitening: Tensor, X: Tensor, contrast: Contrast) -> None:
        self.X, self.contrast = X, contrast
        self.whiten_by(mean, whitening)
        self.curvature: Tensor | None = None
        """E ψ'(y_j) - E y_j ψ(y_j), shape (p,)."""
        self.slope: Tensor | None = None
        """E ψ'(y_j), shape (p,)."""
        self.deviation = 0.0
        """Standard deviation that the curvature of a Gaussian source has from sampling."""
        self.far = True
        """Whether the last turn was a large one."""

    def whiten_by(self, mean: Tensor, whitening: Tensor) -> None:
        """Take a mean and a whitening matrix."""
        self.mean, self.whitening = mean, whitening
        self._mean_is_small = bool((mean @ whitening).abs().max() < SMALL_MEAN)

    @property
    def unmixing(self) -> Tensor:
        """K X, shape (n, p)."""
        return self.whitening @ self.X

    def sources(self, rows: Tensor, unmixing: Tensor | None = None) -> Tensor:
        """B^T (a - μ) for rows a, shape (p, b), B = K X unless given.

        One source per row: products and sums of few long rows take a fraction of the time of many short ones. The mean
        goes through the product where that costs no digits.
        """
        B = self.unmixing if unmixing is None else unmixing
        if self._mean_is_small:
            return torch.addmm((self.mean @ B).unsqueeze(1), B.T, rows.T, beta=-1)
        return B.T @ (rows - self.mean).T

    def statistics(self, sources: Iterable[Tensor]) -> Statistics:
        """C and E ψ' over blocks of Y, shape (p, b) each, added up in float64."""
        cross: Tensor | None = None
        slope: Tensor | None = None
        count = 0
        for Y in sources:
            scores, slopes = self.contrast.scores(Y)
            products = Y @ scores.T
            count += Y.shape[1]
            if cross is None or slope is None:
                cross, slope = products, slopes
                continue
            if cross.dtype != torch.float64:
                cross, slope = cross.double(), slope.double()
            cross += products
            slope += slopes
        assert cross is not None
        assert slope is not None
        cross, slope = cross / count, slope / count
        if cross.dtype != self.X.dtype:
            cross, slope = cross.to(self.X.dtype), slope.to(self.X.dtype)
        return Statistics(cross, slope, count)

    def decorrelated(self, rows: Tensor) -> Statistics:
        """Statistics of one batch, without the noise of its sample covariance, which all rows together do not have.

        C - (E y y^T - I) diag(E ψ'): scores less their linear part. Where signs differ, that part of the noise would
        not cancel in a turn, and would be most of it.
        """
        Y = self.sources(rows)
        statistics = self.statistics([Y])
        slope = statistics.slope if self.slope is None else self.slope
        excess = subtract_identity_(Y @ Y.T / len(rows))
        return statistics._replace(cross=statistics.cross - excess * slope)

    def adapt(self, statistics: Statistics, share: float = 1.0) -> None:
        """Curvatures from new statistics.

        Args:
            statistics: At the present X.
            share: Weight of the new curvatures against the old.
        """
        slope, curvature = statistics.slope, statistics.slope - statistics.cross.diagonal()
        if share < 1 and self.curvature is not None and self.slope is not None:
            slope, curvature = self.slope.lerp(slope, share), self.curvature.lerp(curvature, share)
        self.slope, self.curvature = slope, curvature
        self.deviation = self.contrast.deviation * math.sqrt(share / statistics.n_rows)

    @property
    def signs(self) -> Tensor:
        """+1 for super- and -1 for sub-Gaussian sources, by the sign of their curvature, shape (p,).

        Far from a solution the sign of a direction that looks like noise is chance, and following it ends at a worse
        solution. Unless there are sources of the other kind, such directions get the sign of most of the data.
        """
        assert self.curvature is not None
        signs = torch.ones_like(self.curvature).copysign_(self.curvature)
        if not self.far:
            return signs
        common, weak = torch.ones_like(signs[0]).copysign_(self.curvature.sum()), self.like_noise()
        return torch.where(weak & (weak | (signs == common)).all(), common, signs)

    def nearly_gaussian(self) -> Tensor:
        """Which sources are within three deviations of Gaussian, shape (p,)."""
        assert self.curvature is not None
        return self.curvature.abs() < DEVIATIONS * self.deviation

    def like_noise(self) -> Tensor:
        """Which sources are no further from Gaussian than what is found in Gaussian noise of as many rows, shape (p,).

        The best directions of noise are about sqrt(2p) deviations from Gaussian: there are many to choose from.
        """
        assert self.curvature is not None
        return self.curvature.abs() < (1 + math.sqrt(2 * len(self.X))) * self.deviation

    def turn(self, cross: Tensor) -> Tensor:
        """Ω for C = X^T G at the present X, shape (p, p)."""
        weighted = cross * self.signs
        h = self._h()
        return (weighted - weighted.T) / (h + h.unsqueeze(1))

    def _h(self) -> Tensor:
        """|h_j|, at least three deviations: a curvature that may be noise is not divided by."""
        assert self.curvature is not None
        return self.curvature.abs().clamp(min=DEVIATIONS * self.deviation)

    def angle_of_rounding(self) -> float:
        """Angle by which a rounding of 1 in C can turn the least curved plane."""
        return torch.finfo(self.X.dtype).eps / float(self._h().min())

    def leave_saddle(self, sources: Iterable[Tensor]) -> bool:
        """Turn by 45 degrees in the plane of most negative curvature, if one is negative; whether there was.

        Where two sources are mixed half and half the gradient vanishes too. The curvature in the plane (i, j),
        s_j (E y_i² ψ'(y_j) - E y_j ψ(y_j)) and the same with i and j exchanged, is h_i + h_j for independent sources,
        and negative there.

        Args:
            sources: Blocks of Y at the X that `adapt` was called with, shape (p, b) each.
        """
        assert self.curvature is not None
        assert self.slope is not None
        half, count = torch.zeros_like(self.X), 0
        for Y in sources:
            half += Y.square() @ self.contrast.slopes(Y).T
            count += Y.shape[1]
        half = self.signs * (half / count - (self.slope - self.curvature))
        curvature = (half + half.T).fill_diagonal_(0)
        i, j = divmod(int(curvature.argmin()), len(curvature))
        if not curvature[i, j] < 0:
            return False
        X = self.X.clone()
        X[:, i], X[:, j] = (self.X[:, i] + self.X[:, j]) / math.sqrt(2), (self.X[:, j] - self.X[:, i]) / math.sqrt(2)
        self.X = X
        return True

    def angle(self, turn: Tensor) -> float:
        """Root mean square of the angles of a turn, over planes: the gradient relative to the curvature."""
        p = turn.shape[0]
        length = float(torch.linalg.vector_norm(turn))
        self.far = length > LARGE_TURN * math.sqrt(p)
        return length / math.sqrt(max(p * (p - 1), 1))

    def step(self, turn: Tensor, weight: float) -> None:
        """Turn X by `weight` Ω, or by less where that is far: X (I + w/2 Ω)^-1 (I - w/2 Ω)."""
        weight = min(weight, LONGEST_TURN * math.sqrt(len(turn)) / max(float(torch.linalg.vector_norm(turn)), 1e-30))
        denominator = turn * (weight / 2)
        denominator.diagonal().add_(1)
        self.X = self.X @ torch.linalg.solve_ex(denominator, denominator.mT).result

    def land(self) -> None:
        """X (1.5 I - ½ X^T X), so that the rounding of steps does not add up: the normal part of a landing step."""
        self.X = self.X @ newton_schulz_factor(self.X.mT @ self.X)

    def negentropy(self, sources: Iterable[Tensor]) -> float:
        """Σ_j (E G(y_j) - E G(ν))² over blocks of Y, ν Gaussian: larger means less Gaussian sources."""
        total, count = torch.zeros(self.X.shape[1], dtype=torch.float64, device=self.X.device), 0
        for Y in sources:
            total += self.contrast.value(Y).sum(1)
            count += Y.shape[1]
        return float((total / count - self.contrast.gaussian).square().sum())
