"""The probabilistic model of principal components: their variances, and equal noise in all other directions."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def log_likelihood(Y: Tensor, squares: Tensor, variances: Tensor, noise: float, n: int) -> Tensor:
    """Log density of a Gaussian with covariance V^T (Λ - σ² I) V + σ² I, without forming an n x n matrix.

    Args:
        Y: Components of samples a less their mean, V (a - μ) with orthonormal rows V; shape (N, p), float64.
        squares: Their squared lengths ‖a - μ‖², shape (N,).
        variances: Diagonal of Λ, shape (p,).
        noise: σ². It and the variances count as at least a rounding of the largest variance.
        n: Entries of a sample.
    """
    p = Y.shape[1]
    least = float(torch.finfo(torch.float32).eps * variances.max().clamp(min=1e-30))
    noise, variances = max(noise, least), variances.clamp(min=least)
    inside = (Y.square() / variances).sum(1)
    outside = (squares - Y.square().sum(1)).clamp(min=0) / noise
    log_determinant = float(variances.log().sum()) + (n - p) * math.log(noise)
    return -(inside + outside + n * math.log(2 * math.pi) + log_determinant) / 2
