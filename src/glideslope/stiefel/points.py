"""Points of the Stiefel manifold: random ones, and the orthonormal matrix nearest to a given one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from glideslope.formulas.arguments import check_matrices
from glideslope.formulas.normal import inverse_square_root
from glideslope.formulas.orthogonality import distance, gram
from glideslope.formulas.retraction import polar_retraction, qr_retraction

# Types with QR of their own; all other floating types are computed in float32, complex ones in complex64.
FACTORED_TYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def random_stiefel(
    n: int,
    p: int,
    *,
    batch: Sequence[int] = (),
    generator: torch.Generator | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """Uniform (Haar) orthonormal matrices: the Q of a Gaussian matrix, with positive diagonal of R. Cost O(n p²).

    Args:
        n: Rows.
        p: Columns, 1 <= p <= n.
        batch: Shape in front: the result is (*batch, n, p).
        generator: Source of randomness; without it torch's global one is used.
        dtype: Real or complex; default: torch's default type. Half types are computed in float32.
        device: Default: the generator's device; without a generator, torch's default device.

    Examples:
        >>> gs.random_stiefel(5, 2, batch=(3,)).shape
        torch.Size([3, 5, 2])
    """
    if not (isinstance(n, int) and isinstance(p, int) and 1 <= p <= n):
        raise ValueError(f"random_stiefel needs whole numbers 1 <= p <= n; got n={n!r}, p={p!r}")
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"dtype must be floating point or complex; got {dtype}")
    if device is None and generator is not None:
        device = generator.device
    wide = dtype if dtype in FACTORED_TYPES else torch.complex64 if dtype.is_complex else torch.float32
    gaussian = torch.randn((*batch, n, p), generator=generator, dtype=wide, device=device)
    return qr_retraction(gaussian, torch.zeros_like(gaussian)).to(dtype).contiguous()


def project(X: Tensor) -> Tensor:
    """Nearest orthonormal matrices, the polar factor X (X^H X)^{-1/2}, shape (*batch, n, p); cost O(n p²).

    Computed in float64 or complex128 and rounded once to the type of X. Where X lacks rank the nearest matrix is not
    unique, and one of them is returned. X is not written.

    Args:
        X: Finite matrices, shape (*batch, n, p) with n >= p.

    Examples:
        >>> bool(gs.formulas.distance(gs.project(torch.randn(5, 2))) < 1e-5)
        True
    """
    check_matrices(X=X)
    # There is no float64 on mps.
    device = torch.device("cpu") if X.device.type == "mps" else X.device
    wide = X.to(device=device, dtype=torch.complex128 if X.is_complex() else torch.float64)
    if not bool(torch.isfinite(wide).all()):
        raise ValueError(f"X must be finite to be projected; got infinite or NaN entries in shape {tuple(X.shape)}")
    # Weights trained with landing are close to orthonormal: products are enough there, no QR or SVD.
    if bool((distance(wide) <= 0.5).all()):
        polar = wide @ inverse_square_root(gram(wide))
    else:
        polar = polar_retraction(wide, torch.zeros_like(wide))
    return polar.to(device=X.device, dtype=X.dtype)
