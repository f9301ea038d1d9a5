"""The series of the inverse square root, against eigenvalues."""

import literal
import pytest
import torch
from literal import random_matrix

from glideslope.engine.inverse_root import inverse_square_root_series


@pytest.mark.parametrize("error", [0.0, 1e-12, 1e-4, 0.01, 0.1, 0.2, 0.39, 0.41, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float64, torch.complex128])
def test_the_series_of_the_inverse_square_root_is_exact_for_eigenvalues_on_both_sides_of_one(dtype, error, generator):
    wide = torch.complex128 if dtype.is_complex else torch.float64
    U = torch.linalg.qr(random_matrix(9, 9, generator=generator).to(wide))[0]
    eigenvalues = torch.linspace(-error, error, 9, dtype=torch.float64)
    E = ((U * eigenvalues) @ U.mH).to(dtype)
    ours = inverse_square_root_series(E, error, torch.finfo(dtype).eps, 0.5)
    exact = (U * (0.5 * (1 + eigenvalues).rsqrt())) @ U.mH
    assert literal.norm(ours.to(wide) - exact) < 30 * torch.finfo(dtype).eps / (1 - error)
