"""Certified bounds of the eigenvalues of p x p Hermitian matrices, from norms and at most one product.

Newton-Schulz and polar steps need a bound of the largest eigenvalue of Y^H Y - I, not of its Frobenius norm, which for
a matrix of p similar eigenvalues is sqrt(p) times as large.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from glideslope.engine.products import is_on_host
from glideslope.formulas.orthogonality import frobenius


def upper_eigenvalue(E: Tensor, enough: float | Tensor, *, square: bool = False) -> Tensor:
    """Upper bound of the largest eigenvalue of each Hermitian matrix, shape (*batch).

    ‖E‖_F where that is `enough`, else the largest Gershgorin disc; with `square`, where that is not enough either, the
    root of the largest row sum of |E²|, one p x p product. What no matrix needs is left out on the host; a device is
    not waited for. The bound of a matrix does not depend on the others.
    """
    diagonal = E.diagonal(dim1=-2, dim2=-1).real
    return _least_bound(E, enough, lambda: E.abs().sum(-1) - diagonal.abs() + diagonal, square)


def spectral_bound(E: Tensor, enough: float | Tensor, *, square: bool = False) -> Tensor:
    """Upper bound of the spectral norm of each Hermitian matrix: as `upper_eigenvalue`, with row sums as discs."""
    return _least_bound(E, enough, lambda: E.abs().sum(-1), square)


def spectral_norm_at_least(E: Tensor) -> Tensor:
    """Lower bound of the spectral norm of each Hermitian matrix: its longest row, or ‖E‖_F / p^½."""
    rows = torch.linalg.vector_norm(E, dim=-1)
    return torch.maximum(rows.amax(-1), frobenius(E) / E.shape[-1] ** 0.5)


def _least_bound(E: Tensor, enough: float | Tensor, discs: Callable[[], Tensor], square: bool) -> Tensor:
    bounds: list[Callable[[], Tensor]] = [lambda: discs().amax(-1)]
    if square:
        bounds.append(lambda: (E @ E).abs().sum(-1).amax(-1).sqrt())
    bound = frobenius(E)
    for tighter in bounds:
        lacking = (bound <= enough).logical_not()
        if is_on_host(E) and not bool(lacking.any()):
            break
        bound = torch.where(lacking, torch.fmin(bound, tighter()), bound)
    return bound
