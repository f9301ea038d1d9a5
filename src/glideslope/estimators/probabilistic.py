"""The Gaussian of principal components: covariance V^T (Λ - σ² I) V + σ² I, rows of V orthonormal, Λ diagonal."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor


def covariance(V: np.ndarray, variances: np.ndarray, noise: float) -> np.ndarray:
    """The covariance itself, shape (n, n)."""
    return plus_diagonal((V.T * np.maximum(variances - noise, 0)) @ V, noise)


def precision(V: np.ndarray, variances: np.ndarray, noise: float) -> np.ndarray:
    """Its inverse, σ^-2 (I - V^T (I - σ² Λ^-1) V), shape (n, n); without noise, by inverting the n x n matrix."""
    if not noise > 0:
        return np.linalg.inv(covariance(V, variances, noise))
    return plus_diagonal((V.T * (np.minimum(noise / variances, 1) - 1)) @ V, 1) / noise


def plus_diagonal(matrix: np.ndarray, number: float) -> np.ndarray:
    """A square matrix plus a multiple of the identity."""
    matrix[np.diag_indices_from(matrix)] += number
    return matrix


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
