"""The probabilistic model of principal components: their variances, and equal noise in all other directions."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_likelihood(centred: Tensor, components: Tensor, variances: Tensor, noise: float) -> Tensor:
    """Log density of a Gaussian with covariance V^T (Λ - σ² I) V + σ² I, without forming an n x n matrix.

    Args:
        centred: Samples less their mean, shape (N, n), float64.
        components: V, orthonormal rows, shape (p, n).
        variances: Diagonal of Λ, shape (p,).
        noise: σ². It and the variances count as at least a rounding of the largest variance.
    """
    n, p = centred.shape[1], len(components)
    least = float(torch.finfo(torch.float32).eps * variances.max().clamp(min=1e-30))
    noise, variances = max(noise, least), variances.clamp(min=least)
    Y = centred @ components.T
    inside = (Y.square() / variances).sum(1)
    outside = (centred.square().sum(1) - Y.square().sum(1)).clamp(min=0) / noise
    log_determinant = float(variances.log().sum()) + (n - p) * math.log(noise)
    return -(inside + outside + n * math.log(2 * math.pi) + log_determinant) / 2
