"""Scales: a constrained matrix is σ times an orthonormal one, with σ a number, the modular norm's, or its own."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glideslope.formulas.orthogonality import frobenius, per_matrix
from glideslope.stiefel.views import flattened_shape

Scale = float | str


def check_scale(scale: object) -> None:
    """Raise a ValueError unless scale is a finite number > 0, "modular" or "free"."""
    number = isinstance(scale, (int, float)) and not isinstance(scale, bool) and 0 < scale < math.inf
    if not number and scale not in ("modular", "free"):
        raise ValueError(f'scale must be a finite number > 0, "modular" or "free"; got {scale!r}')


def fixed_scale(scale: Scale, shape: tuple[int, ...], view: str) -> float | None:
    """σ of the matrices of a parameter; None if it is free, and so their own.

    "modular" is sqrt(out/in), with which a map takes entries of size one to entries of size one. Of a parameter as
    torch stores it, out is dimension 0, or that of a block, and in is the rest; of blocks of columns, as transformers'
    Conv1D has them, it is the other way round.
    """
    if scale == "free":
        return None
    if scale == "modular":
        *_, outputs, inputs = flattened_shape(shape, view)
        return math.sqrt(outputs / inputs)
    return float(scale)


def own_scale(X: Tensor) -> Tensor:
    """σ = ‖X‖_F/√p of each matrix, for which X^H X/σ² - I has trace zero; 1 where that is zero or not finite."""
    sigma = frobenius(X) / X.shape[-1] ** 0.5
    return torch.where(torch.isfinite(sigma) & (sigma > 0), sigma, 1.0)


def divided_by_scale(X: Tensor, sigma: float | Tensor | None) -> Tensor:
    """X/σ, with σ a number, one for each matrix, or None for `own_scale`."""
    if sigma is None:
        sigma = own_scale(X)
    if isinstance(sigma, Tensor):
        return X / per_matrix(sigma)
    return X if sigma == 1 else X / sigma
