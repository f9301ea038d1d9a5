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

    The lesser of ‖E‖_F and the largest Gershgorin disc; with `square` also the root of the largest row sum of |E²|, one
    p x p product. On the host what is not needed to be `enough` is left out; a device is not waited for.
    """
    diagonal = E.diagonal(dim1=-2, dim2=-1).real
    return _least_bound(E, enough, lambda: E.abs().sum(-1) - diagonal.abs() + diagonal, square)


def spectral_bound(E: Tensor, enough: float | Tensor, *, square: bool = False) -> Tensor:
    """Upper bound of the spectral norm of each Hermitian matrix: as `upper_eigenvalue`, with row sums as discs."""
    return _least_bound(E, enough, lambda: E.abs().sum(-1), square)


def _least_bound(E: Tensor, enough: float | Tensor, discs: Callable[[], Tensor], square: bool) -> Tensor:
    bound = frobenius(E)
    if is_on_host(E) and bool((bound <= enough).all()):
        return bound
    bound = torch.fmin(bound, discs().amax(-1))
    if not square or (is_on_host(E) and bool((bound <= enough).all())):
        return bound
    return torch.fmin(bound, (E @ E).abs().sum(-1).amax(-1).sqrt())
