"""The safeguards: equation (14) as printed, the quartic's roots by NumPy, and every edge decided."""

import literal
import numpy as np
import pytest
import torch
from literal import inner, point_at_distance, random_matrix

import glideslope as gs
from glideslope.formulas.safeguard import largest_quadratic_step


def lemma(distance, field_norm, attraction=1.0, safe_radius=0.5, dtype=torch.float64):
    tensors = (torch.tensor(value, dtype=dtype) for value in (distance, field_norm))
    return gs.formulas.safeguard_step(*tensors, attraction=attraction, safe_radius=safe_radius)


@pytest.mark.parametrize("attraction", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("safe_radius", [0.01, 0.5, 0.9])
def test_the_lemma_step_is_equation_14_as_printed(attraction, safe_radius):
    distance = torch.linspace(0, 1, 11, dtype=torch.float64)[:, None] * safe_radius
    field_norm = torch.logspace(-3, 6, 10, dtype=torch.float64)
    ours = gs.formulas.safeguard_step(
        distance.expand(11, 10), field_norm.expand(11, 10), attraction=attraction, safe_radius=safe_radius
    )
    printed = literal.safeguard(distance, field_norm, attraction, safe_radius)
    torch.testing.assert_close(ours, printed, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("distance", "field_norm"), [(0.0, 0.0), (0.3, 0.0), (0.5, 0.0), (0.0, 1e-300)])
def test_a_zero_field_gives_the_cap(distance, field_norm):
    assert lemma(distance, field_norm, attraction=2.0) == 1 / 4


def test_on_the_manifold_the_step_is_the_root_of_the_radius_over_the_norm():
    assert lemma(0.0, 4.0) == pytest.approx(np.sqrt(0.5) / 4)


def test_on_the_boundary_the_step_is_positive():
    assert lemma(0.5, 4.0) == pytest.approx(2 * 0.25 / 16)


@pytest.mark.parametrize("distance", [0.51, 1.0, 3.0])
def test_outside_the_safe_region_nothing_is_certified(distance):
    assert lemma(distance, 1.0) == 0
    X = torch.eye(3, 2, dtype=torch.float64) * (1 + distance) ** 0.5
    assert gs.formulas.exact_safeguard_step(X, X, safe_radius=0.5) == 0


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_numbers_are_compared_with_the_radius_in_float32(half):
    """Their own rounding would let a distance of 0.7 pass for one of 0.5."""
    assert lemma(0.51, 1.0, dtype=half) == 0
    assert lemma(0.5, 1.0, dtype=half) == 0.5
    assert lemma(0.25, 3.0, dtype=half) == lemma(0.25, 3.0, dtype=torch.float32).to(half)
    assert lemma(0.5, 1.0, dtype=half).dtype == half


@pytest.mark.parametrize("field_norm", [1e-38, 1e-30, 1e30, 3e38])
def test_no_norm_of_float32_makes_the_step_nan_or_zero(field_norm):
    step = lemma(0.2, field_norm, dtype=torch.float32)
    assert torch.isfinite(step)
    assert step * field_norm > 0


def test_a_negative_pull_uses_the_conjugate_root():
    """η² g² + 2 η r = s, whose textbook root cancels when r is large."""
    pull, norm, slack = (torch.tensor(v, dtype=torch.float64) for v in (-1e8, 1.0, 0.5))
    assert largest_quadratic_step(pull, norm, slack) == pytest.approx(0.25e-8, rel=1e-12)


def test_a_negative_slack_counts_as_none():
    pull, norm, slack = (torch.tensor(v, dtype=torch.float64) for v in (1.5, 2.0, -0.5))
    assert largest_quadratic_step(pull, norm, slack) == 2 * 1.5 / 4


def quartic_root(X, F, safe_radius):
    """Smallest positive root of ‖Δ - 2 η sym(X^H F) + η² F^H F‖² - ε² by NumPy's companion matrix."""
    Delta, P, Q = literal.residual(X), -2 * literal.sym(X.mH @ F), F.mH @ F
    coefficients = [
        inner(Q, Q),
        2 * inner(P, Q),
        inner(P, P) + 2 * inner(Delta, Q),
        2 * inner(Delta, P),
        inner(Delta, Delta) - safe_radius**2,
    ]
    roots = np.roots([float(c) for c in coefficients])
    real = roots[abs(roots.imag) < 1e-6 * abs(roots)].real
    return real[real > 0].min()


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_exact_step_is_the_smallest_positive_root_of_the_quartic(dtype):
    for seed in range(40):
        assert_smallest_root(seed, dtype)


def assert_smallest_root(seed, dtype):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda low, high: low + (high - low) * torch.rand(1, generator=generator).item()  # noqa: E731
    p = 1 + seed % 5
    safe_radius, attraction = draw(0.01, 0.99), 10 ** draw(-1, 1)
    X = point_at_distance(p + seed % 3, p, 0.98 * draw(0, 1) * safe_radius, dtype=dtype, generator=generator)
    G = random_matrix(*X.shape, dtype=dtype, generator=generator) * 10 ** draw(-6, 6)
    F = gs.formulas.landing_field(X, G, attraction=attraction)
    exact = gs.formulas.exact_safeguard_step(X, F, safe_radius=safe_radius)
    if literal.norm(F) < 1e-12:  # a real 1 x 1 matrix on the manifold has no tangent direction
        return
    assert exact.item() == pytest.approx(quartic_root(X, F, safe_radius), rel=1e-7), seed


def test_the_exact_step_of_a_batch_is_each_matrixs_own(generator):
    X = point_at_distance(6, 3, 0.2, batch=(4,), generator=generator)
    F = (
        random_matrix(4, 6, 3, generator=generator)
        * torch.tensor([1e-20, 1.0, 1e6, 1e40], dtype=torch.float64)[:, None, None]
    )
    together = gs.formulas.exact_safeguard_step(X, F, safe_radius=0.5)
    alone = torch.stack([gs.formulas.exact_safeguard_step(x, f, safe_radius=0.5) for x, f in zip(X, F, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=0)


def test_the_exact_step_of_a_zero_field_is_unbounded():
    X = torch.eye(4, 2)
    assert gs.formulas.exact_safeguard_step(X, torch.zeros_like(X), safe_radius=0.5) == torch.inf


def test_the_exact_step_on_the_boundary_leaves_it_at_zero(generator):
    X = point_at_distance(6, 3, 0.5, generator=generator)
    G = random_matrix(6, 3, generator=generator)
    F = gs.formulas.landing_field(X, G, attraction=1.0)
    step = gs.formulas.exact_safeguard_step(X, F, safe_radius=0.5)
    assert step > 0.01
    assert literal.exact_distance(X - step * F) == pytest.approx(0.5, abs=1e-12)
