"""Independent components: the rotation of whitened data, and one step towards it.

For Y = X^T Z with white columns Z, C = Y ψ(Y)^T / N and signs s_j = ±1 (super- or sub-Gaussian), the field of
Σ_j s_j E G(y_j) is X Ω with Ω skew. At independent sources the curvature of a turn in the plane (i, j) is h_i + h_j,
h_j = s_j (E ψ'(y_j) - E y_j ψ(y_j)), so that Ω_ij = (s_j C_ij - s_i C_ji) / (h_i + h_j) is a Newton step, of length 1.
X is p x p and turned by a Cayley transform. The normal part of a landing step, Newton-Schulz, keeps it orthogonal.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

import torch

from glideslope.formulas.normal import newton_schulz_factor
from glideslope.streams.arrays import Array, inner, namespace, product
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

Sweep: TypeAlias = Callable[[Callable[[Array], Any]], Iterable[Any]]
"""Applies a function to all blocks of sources Y at the present X, shape (p, b) each; results in their order."""


class Statistics(NamedTuple):
    """Means over rows of sources Y."""

    cross: Array
    """C = E y ψ(y)^T, shape (p, p)."""
    slope: Array
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

    def __init__(self, mean: Array, whitening: Array, X: Array, contrast: Contrast) -> None:
        self.X, self.contrast = X, contrast
        self.identity = namespace(X).diag(namespace(X).ones_like(X[0]))
        self.whiten_by(mean, whitening)
        self.curvature: Array | None = None
        """E ψ'(y_j) - E y_j ψ(y_j), shape (p,)."""
        self.slope: Array | None = None
        """E ψ'(y_j), shape (p,)."""
        self.deviation = 0.0
        """Standard deviation that the curvature of a Gaussian source has from sampling."""
        self.far = True
        """Whether the last turn was a large one."""

    def whiten_by(self, mean: Array, whitening: Array) -> None:
        """Take a mean and a whitening matrix."""
        self.mean, self.whitening = mean, whitening
        self._mean_is_small = bool(abs(mean @ whitening).max() < SMALL_MEAN)

    @property
    def unmixing(self) -> Array:
        """K X, shape (n, p)."""
        return self.whitening @ self.X

    def sources(self, rows: Array, unmixing: Array | None = None) -> Array:
        """B^T (a - μ) for rows a, shape (p, b), B = K X unless given.

        One source per row: products and sums of few long rows take a fraction of the time of many short ones. The mean
        goes through the product where that costs no digits.
        """
        B = self.unmixing if unmixing is None else unmixing
        if self._mean_is_small:
            Y = product(B.T, rows.T)
            Y -= (self.mean @ B)[:, None]
            return Y
        return product(B.T, (rows - self.mean).T)

    def statistics(self, sweep: Sweep) -> Statistics:
        """C and E ψ' over all blocks of Y, added up in float64."""
        cross: Array = 0.0
        slope: Array = 0.0
        count = 0
        xp, dtype = namespace(self.X), self.X.dtype
        for products, slopes, size in sweep(self._sums):
            if count:
                products, slopes = (xp.asarray(part, dtype=xp.float64) for part in (products, slopes))
            cross, slope = cross + products, slope + slopes
            count += size
        return Statistics(xp.asarray(cross / count, dtype=dtype), xp.asarray(slope / count, dtype=dtype), count)

    def _sums(self, Y: Array) -> tuple[Array, Array, int]:
        """Y ψ(Y)^T, the sums of ψ'(Y), and the number of columns."""
        scores, slopes = self.contrast.scores(Y)
        return product(Y, scores.T), slopes, Y.shape[1]

    def decorrelated(self, rows: Array) -> Statistics:
        """Statistics of one batch, without the noise of its sample covariance, which all rows together do not have.

        C - (E y y^T - I) diag(E ψ'): scores less their linear part. Where signs differ, that part of the noise would
        not cancel in a turn, and would be most of it.
        """
        Y = self.sources(rows)
        statistics = self.statistics(lambda work: [work(Y)])
        slope = statistics.slope if self.slope is None else self.slope
        excess = product(Y, Y.T) / float(len(rows)) - self.identity
        return statistics._replace(cross=statistics.cross - excess * slope)

    def adapt(self, statistics: Statistics, share: float = 1.0) -> None:
        """Curvatures from new statistics.

        Args:
            statistics: At the present X.
            share: Weight of the new curvatures against the old.
        """
        slope, curvature = statistics.slope, statistics.slope - statistics.cross.diagonal()
        if share < 1 and self.curvature is not None and self.slope is not None:
            slope = self.slope + share * (slope - self.slope)
            curvature = self.curvature + share * (curvature - self.curvature)
        self.slope, self.curvature = slope, curvature
        self.deviation = self.contrast.deviation * math.sqrt(share / statistics.n_rows)

    @property
    def signs(self) -> Array:
        """+1 for super- and -1 for sub-Gaussian sources, by the sign of their curvature, shape (p,).

        Far from a solution the sign of a direction that looks like noise is chance, and following it ends at a worse
        solution. Unless there are sources of the other kind, such directions get the sign of most of the data.
        """
        assert self.curvature is not None
        xp = namespace(self.curvature)
        signs = xp.copysign(xp.ones_like(self.curvature), self.curvature)
        if not self.far:
            return signs
        common, weak = math.copysign(1.0, float(self.curvature.sum())), self.like_noise()
        if bool((weak | (signs == common)).all()):
            signs[weak] = common
        return signs

    def nearly_gaussian(self) -> Array:
        """Which sources are within three deviations of Gaussian, shape (p,)."""
        assert self.curvature is not None
        return abs(self.curvature) < DEVIATIONS * self.deviation

    def like_noise(self) -> Array:
        """Which sources are no further from Gaussian than what is found in Gaussian noise of as many rows, shape (p,).

        The best directions of noise are about sqrt(2p) deviations from Gaussian: there are many to choose from.
        """
        assert self.curvature is not None
        return abs(self.curvature) < (1 + math.sqrt(2 * len(self.X))) * self.deviation

    def turn(self, cross: Array) -> Array:
        """Ω for C = X^T G at the present X, shape (p, p)."""
        weighted = cross * self.signs
        h = self._h()
        return (weighted - weighted.T) / (h + h[:, None])

    def _h(self) -> Array:
        """|h_j|, at least three deviations: a curvature that may be noise is not divided by."""
        assert self.curvature is not None
        return abs(self.curvature).clip(DEVIATIONS * self.deviation)

    def angle_of_rounding(self) -> float:
        """Angle by which a rounding of 1 in C can turn the least curved plane."""
        return float(namespace(self.X).finfo(self.X.dtype).eps) / float(self._h().min())

    def leave_saddle(self, sweep: Sweep) -> bool:
        """Turn by 45 degrees in the plane of most negative curvature, if one is negative; whether there was.

        Where two sources are mixed half and half the gradient vanishes too. The curvature in the plane (i, j),
        s_j (E y_i² ψ'(y_j) - E y_j ψ(y_j)) and the same with i and j exchanged, is h_i + h_j for independent sources,
        and negative there.

        Args:
            sweep: Over blocks of Y at the X that `adapt` was called with.
        """
        assert self.curvature is not None
        assert self.slope is not None
        half, count = 0.0 * self.X, 0
        for products, size in sweep(lambda Y: (product(Y * Y, self.contrast.slopes(Y).T), Y.shape[1])):
            half += products
            count += size
        half = self.signs * (half / float(count) - (self.slope - self.curvature))
        curvature = (half + half.T) * (1 - self.identity)
        i, j = divmod(int(curvature.argmin()), len(curvature))
        if not curvature[i, j] < 0:
            return False
        rotation = 1.0 * self.identity
        rotation[i, i] = rotation[j, j] = rotation[j, i] = math.sqrt(0.5)
        rotation[i, j] = -math.sqrt(0.5)
        self.X = self.X @ rotation
        return True

    def angle(self, turn: Array) -> float:
        """Root mean square of the angles of a turn, over planes: the gradient relative to the curvature."""
        p = turn.shape[0]
        length = math.sqrt(inner(turn, turn))
        self.far = length > LARGE_TURN * math.sqrt(p)
        return length / math.sqrt(max(p * (p - 1), 1))

    def step(self, turn: Array, weight: float) -> None:
        """Turn X by `weight` Ω, or by less where that is far: X (I + w/2 Ω)^-1 (I - w/2 Ω)."""
        weight = min(weight, LONGEST_TURN * math.sqrt(len(turn)) / max(math.sqrt(inner(turn, turn)), 1e-30))
        half = turn * (weight / 2)
        self.X = self.X @ namespace(turn).linalg.solve(self.identity + half, self.identity - half)

    def land(self) -> None:
        """X (1.5 I - ½ X^T X), so that the rounding of steps does not add up: the normal part of a landing step."""
        factor = newton_schulz_factor(torch.as_tensor(self.X.T @ self.X))
        self.X = self.X @ namespace(self.X).asarray(factor)

    def negentropy(self, sweep: Sweep) -> float:
        """Σ_j (E G(y_j) - E G(ν))² over all blocks of Y, ν Gaussian: larger means less Gaussian sources."""
        total, count = torch.zeros(1, dtype=torch.float64), 0
        for values, size in sweep(self._values):
            total = total + values
            count += size
        return float((total / count - self.contrast.gaussian).square().sum())

    def _values(self, Y: Array) -> tuple[torch.Tensor, int]:
        """Sums of G(Y) along each source, and the number of columns."""
        return self.contrast.value(torch.as_tensor(Y)).sum(1, dtype=torch.float64).cpu(), Y.shape[1]
