"""Whitening: the linear map after which data has the identity as covariance, and what it cannot whiten.

Features are scaled to unit variance first, so that it does not matter in which units each of them is measured.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# Directions whose standard deviation is below this many roundings of the largest are rounding, not data.
ROUNDINGS = 10


class Correlations(NamedTuple):
    """C = D U Λ U^T D: standard deviations, and the decomposition of the correlations in the r directions that vary."""

    scale: Tensor
    """Diagonal of D, shape (n,); zero for features that never change."""
    directions: Tensor
    """U, shape (n, r)."""
    deviations: Tensor
    """Diagonal of Λ^(1/2), shape (r,)."""


def numerical_rank(variances: Tensor, dtype: torch.dtype) -> int:
    """How many of the variances (float64) are more than what rounding in a type leaves of zero."""
    largest = float(variances.max())
    least = max((ROUNDINGS * torch.finfo(dtype).eps) ** 2, len(variances) * torch.finfo(torch.float64).eps)
    return int((variances > largest * least).sum())


def correlations(covariance: Tensor, mean: Tensor, dtype: torch.dtype) -> Correlations:
    """Decompose the correlations of features. O(n³).

    Args:
        covariance: C, shape (n, n), float64.
        mean: Of the features, shape (n,), float64: deviations of about one rounding of it are none.
        dtype: Type of the data, whose rounding decides what counts as no variance.
    """
    scale = covariance.diagonal().sqrt()
    rounding = max(torch.finfo(dtype).eps, ROUNDINGS * torch.finfo(torch.float64).eps)
    constant = scale <= rounding * mean.abs()
    _check_range(scale.masked_fill(constant, 1), dtype)
    inverse = (1 / scale).masked_fill(constant, 0)
    variances, directions = torch.linalg.eigh(inverse.unsqueeze(1) * covariance * inverse)
    first = len(scale) - numerical_rank(variances, dtype)
    return Correlations(scale.masked_fill(constant, 0), directions[:, first:], variances[first:].sqrt())


def _check_range(scale: Tensor, dtype: torch.dtype) -> None:
    """Refuse standard deviations at which a type has lost digits, or that overflow when squared."""
    tiny = torch.finfo(dtype).tiny
    least, most = tiny / torch.finfo(dtype).eps, 1 / tiny
    smallest, largest = torch.aminmax(scale)
    if not (smallest >= least and largest <= most):
        feature = int((~((scale >= least) & (scale <= most))).nonzero()[0])
        wider = ", or give dtype='float64'" if dtype == torch.float32 else ""
        raise ValueError(
            f"feature {feature} of X has a standard deviation of {float(scale[feature]):.1e}, and "
            f"{str(dtype).removeprefix('torch.')} needs one from {least:.0e} to {most:.0e}. "
            f"Multiply the data by a constant{wider}"
        )


class Whitening(NamedTuple):
    """The map K^T (a - μ) to p white numbers, and the map L back: K^T C K = K^T L = I, and L K^T a = a for data."""

    matrix: Tensor
    """K, shape (n, p)."""
    inverse: Tensor
    """L = C K, shape (n, p)."""


def whitening_of(covariance: Tensor, mean: Tensor, n_components: int | None, dtype: torch.dtype) -> Whitening:
    """The whitening along the p directions of largest variance.

    Args:
        covariance: C, shape (n, n), float64.
        mean: Of the features, shape (n,), float64.
        n_components: p; None means as many as there are directions with any variance.
        dtype: Type of the data, whose rounding decides what counts as no variance.
    """
    found = correlations(covariance, mean, dtype)
    rank = len(found.deviations)
    if rank == 0:
        raise ValueError("the data do not vary: all samples are alike, and there is nothing to whiten")
    if n_components is not None and n_components > rank:
        raise ValueError(
            f"the data vary in {rank} independent direction{'s' * (rank != 1)} only, which is fewer than "
            f"n_components={n_components}; give n_components <= {rank}, more samples, or other features"
        )
    return leading(found, n_components)


def leading(found: Correlations, n_components: int | None) -> Whitening:
    """The whitening along the p directions of largest variance, p at most r.

    M = D U Λ^(1/2) has M M^T = C, and K = D^-1 U Λ^(-1/2) whitens: both keep their digits at any scales. For p < r they
    are multiplied by the leading right singular vectors of M, the principal components.
    """
    scale = found.scale.unsqueeze(1)
    L = scale * found.directions * found.deviations
    K = (found.directions / found.deviations / scale).masked_fill(scale == 0, 0)
    if n_components is not None and n_components < len(found.deviations):
        Q = torch.linalg.svd(L, full_matrices=False).Vh[:n_components].T
        K, L = K @ Q, L @ Q
    return Whitening(K, L)
