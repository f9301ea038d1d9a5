"""Whitening: the linear map after which data has the identity as covariance, and what it cannot whiten."""

from __future__ import annotations

import torch
from torch import Tensor

# Directions whose standard deviation is below this many roundings of the largest are rounding, not data.
ROUNDINGS = 10


def numerical_rank(variances: Tensor, dtype: torch.dtype) -> int:
    """How many of the variances (float64) are more than what rounding in a type leaves of zero."""
    largest = float(variances.max())
    least = max((ROUNDINGS * torch.finfo(dtype).eps) ** 2, len(variances) * torch.finfo(torch.float64).eps)
    return int((variances > largest * least).sum())


def whitening_matrix(covariance: Tensor, n_components: int | None, dtype: torch.dtype) -> Tensor:
    """K (n x p) such that K^T C K = I, along the p directions of largest variance.

    Args:
        covariance: C, shape (n, n), float64.
        n_components: p; None means as many as there are directions with any variance.
        dtype: Type of the data, whose rounding decides what counts as no variance.
    """
    variances, directions = torch.linalg.eigh(covariance)
    rank = numerical_rank(variances, dtype)
    if rank == 0:
        raise ValueError("the data do not vary: all samples are alike, and there is nothing to whiten")
    n_components = rank if n_components is None else n_components
    if n_components > rank:
        raise ValueError(
            f"the data vary in {rank} independent direction{'s' * (rank != 1)} only, which is fewer than "
            f"n_components={n_components}; give n_components <= {rank}, more samples, or other features"
        )
    K: Tensor = directions[:, -n_components:] / variances[-n_components:].sqrt()
    return K.flip(1)
