"""The p x p factors of the normal part: reach, inverse root and the bound of a recovery, against eigenvalues."""

import literal
import pytest
import torch
from literal import random_matrix

import glideslope as gs
from glideslope.formulas.normal import (
    inverse_square_root,
    largest_eigenvalue_bound,
    newton_schulz_radius,
)


@pytest.mark.parametrize("safe_radius", [0.01, 0.3, 0.5, 0.9])
def test_the_reach_of_newton_schulz_is_the_root_of_its_cubic(safe_radius):
    e = newton_schulz_radius(safe_radius)
    assert 0.75 * e**2 + 0.25 * e**3 == pytest.approx(safe_radius, rel=1e-12)
    assert newton_schulz_radius(0.5) == pytest.approx(0.732, abs=1e-3)


@pytest.mark.parametrize("radius", [0.1, 0.5, 0.75, 0.95, 0.995])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float64, torch.complex128])
def test_the_inverse_square_root_is_exact_on_its_whole_interval(dtype, radius):
    eigenvalues = torch.linspace(1 - radius, 2, 40, dtype=torch.float64)
    ours = inverse_square_root(torch.diag(eigenvalues).to(dtype), radius).diagonal().real.double()
    error = (ours * eigenvalues.sqrt() - 1).abs().max()
    assert error < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("p", [1, 2, 7])
def test_the_eigenvalue_bound_of_the_recovery_is_a_bound_and_tight_at_its_extremes(p, generator):
    for X in (random_matrix(20, 9, p, generator=generator), 1e-4 * random_matrix(20, 9, p, generator=generator)):
        S = X.mH @ X
        bound = largest_eigenvalue_bound(gs.formulas.residual(X), gs.formulas.distance(X))
        assert (bound >= torch.linalg.eigvalsh(S)[:, -1] - 1e-7).all()  # the root of a rounding
    for S in (0.3 * torch.eye(p), torch.diag(torch.tensor([2.0] + [0.0] * (p - 1)))):
        bound = largest_eigenvalue_bound(S - torch.eye(p), literal.norm(S - torch.eye(p)))
        assert bound == pytest.approx(torch.linalg.eigvalsh(S)[-1].item(), abs=1e-3)
