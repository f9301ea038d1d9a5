"""The edges of a step: step sizes of any kind, the boundary, the outside, no safeguard, and what rounding costs."""

import literal
import pytest
import torch
from combinations import every_pair
from literal import exact_distance, point_at_distance, random_matrix

import glideslope as gs
from glideslope.engine.production import take_step
from glideslope.engine.rounding import drift_rate
from glideslope.engine.rule import StepRule

NORMAL_STEPS = ["landing", "newton-schulz", "polar"]
SAFEGUARDS = ["lemma", "exact", None]


def start(shape, dtype, generator, distance=0.3):
    X = point_at_distance(*shape[-2:], distance, batch=shape[:-2], dtype=dtype, generator=generator)
    return X, random_matrix(*shape, dtype=dtype, generator=generator)


@every_pair(dtype=[torch.float64, torch.float16, torch.float32], safeguard=SAFEGUARDS, shape=[(9, 4), (2, 9, 4)])
def test_a_tensor_of_step_sizes_may_have_another_type_than_the_iterate(shape, safeguard, dtype, generator):
    X, G = start(shape, torch.float32, generator)
    sizes = torch.full(shape[:-2], 0.125, dtype=dtype)
    ours = gs.landing_step(X, G, step_size=sizes, safeguard=safeguard)
    torch.testing.assert_close(ours, gs.landing_step(X, G, step_size=0.125, safeguard=safeguard))


@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
def test_a_negative_step_size_in_a_tensor_counts_as_zero(normal_step, generator):
    """Its value cannot be refused without a host synchronisation, and a step backwards has no safeguard."""
    X, G = start((9, 4), torch.float32, generator)
    backwards = gs.landing_step(X, G, step_size=torch.tensor(-1e5), normal_step=normal_step)
    torch.testing.assert_close(backwards, gs.landing_step(X, G, step_size=0.0, normal_step=normal_step))


@pytest.mark.parametrize("safe_radius", [0.5, 0.75, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_polar_step_is_exact_from_the_boundary_of_any_safe_region(dtype, safe_radius, generator):
    """The smallest singular value there is the root of 1 - ε, which Newton-Schulz iterations raise slowly."""
    X = point_at_distance(9, 1, 0.0, dtype=dtype, generator=generator) * (1 - safe_radius) ** 0.5
    G = random_matrix(9, 1, dtype=dtype, generator=generator)
    new = gs.landing_step(X, G, step_size=0.1, safe_radius=safe_radius, normal_step="polar")
    assert exact_distance(new) < 8 * torch.finfo(dtype).eps


@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
@pytest.mark.parametrize("step_size", [1.0, 1e3, 1e9])
def test_without_a_safeguard_a_step_that_ends_far_away_is_finite_and_recovers(normal_step, step_size, generator):
    X, G = start((9, 4), torch.float32, generator)
    X = gs.landing_step(X, 10 * G, step_size=step_size, normal_step=normal_step, safeguard=None)
    for _ in range(60):
        assert torch.isfinite(X).all()
        X = gs.landing_step(X, 0 * G, step_size=0.5, normal_step=normal_step, safeguard=None)
    assert exact_distance(X) < 1e-3


@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
@pytest.mark.parametrize("shape", [(4, 4), (9, 4)])
def test_without_a_safeguard_a_step_that_overflows_is_skipped(shape, normal_step, generator):
    X, G = start(shape, torch.float32, generator)
    outcome = take_step(X, G, 1e30, StepRule(normal_step=normal_step, safeguard=None))
    assert outcome.skipped
    torch.testing.assert_close(outcome.X, X, rtol=0, atol=0)


@every_pair(normal_step=NORMAL_STEPS, safeguard=SAFEGUARDS, step_size=[0.0, 1e38])
def test_the_recovery_from_outside_does_not_depend_on_the_step_size(step_size, safeguard, normal_step, generator):
    X, G = start((9, 4), torch.float32, generator)
    rule = StepRule(normal_step=normal_step, safeguard=safeguard)
    expected = take_step(2 * X, G, 0.1, rule).X
    outcome = take_step(2 * X, G, step_size, rule)
    assert outcome.recovered
    torch.testing.assert_close(outcome.X, expected, rtol=0, atol=0)


@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
def test_outside_the_safe_region_a_gradient_that_is_not_finite_is_skipped_and_not_a_recovery(normal_step, generator):
    X, G = start((2, 9, 4), torch.float32, generator)
    X = 2 * X
    G[1, 0, 0] = torch.nan
    outcome = take_step(X, G, 0.1, StepRule(normal_step=normal_step))
    assert outcome.recovered.tolist() == [True, False]
    assert outcome.skipped.tolist() == [False, True]
    torch.testing.assert_close(outcome.X[1], X[1], rtol=0, atol=0)


@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
def test_a_matrix_that_may_not_move_is_skipped_and_not_shortened(normal_step, generator):
    X, G = start((2, 9, 4), torch.float32, generator)
    outcome = take_step(X, G, 1e3, StepRule(normal_step=normal_step), active=torch.tensor([True, False]))
    assert outcome.shortened.tolist() == [True, False]
    assert outcome.skipped.tolist() == [False, True]
    torch.testing.assert_close(outcome.X[1], X[1], rtol=0, atol=0)


@every_pair(normal_step=NORMAL_STEPS, stretch=[1.7, 1.8, 5.0, 1e6], shape=[(6, 6), (9, 4), (5, 1)])
def test_the_recovery_ends_at_the_polar_factor_of_its_start(shape, stretch, normal_step, generator):
    """It never turns a column over, whatever its length."""
    X = point_at_distance(*shape, 0.2, generator=generator)
    X[:, 0] *= stretch
    U, _, Vh = torch.linalg.svd(X, full_matrices=False)
    for _ in range(80):
        X = gs.landing_step(X, torch.zeros_like(X), step_size=0.5, normal_step=normal_step)
    torch.testing.assert_close(X, U @ Vh, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("dtype", "device", "precision", "unit"),
    [
        (torch.float32, "cpu", "highest", 0.0),
        (torch.float32, "cpu", "high", 0.0),
        (torch.float32, "meta", "high", 2.0**-11),
        (torch.complex64, "meta", "high", 2.0**-11),
        (torch.float32, "cpu", "medium", 2.0**-8),
        (torch.float64, "meta", "medium", 0.0),
    ],
)
def test_the_drift_is_charged_by_the_precision_of_the_products(dtype, device, precision, unit, monkeypatch):
    """TF32 has 11 bits and bfloat16 8; float64 products are never reduced, nor are TF32 ones on a CPU."""
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: precision)
    X = torch.empty(9, 4, dtype=dtype, device=device)
    charge = torch.finfo(dtype).eps / 2 * (9 + 4 + 8) + 8 * unit
    assert drift_rate(X) == pytest.approx(charge)
    assert drift_rate(X, "euclidean") == pytest.approx(2 * charge)


def test_the_euclidean_field_is_charged_for_twice_the_drift():
    """With G = X the field is zero and the drift alone limits the step, to half of what it is when canonical."""
    X = torch.eye(2, 1)
    longest = 0.45 / drift_rate(X)
    for metric, shortened in (("canonical", False), ("euclidean", True)):
        outcome = take_step(X, X, longest / 2, StepRule(metric=metric, normal_step="newton-schulz"))
        assert outcome.shortened == shortened


@pytest.mark.parametrize("metric", ["canonical", "euclidean"])
@pytest.mark.parametrize("safeguard", ["lemma", "exact"])
def test_a_normal_gradient_however_large_does_not_hold_the_iterate_on_the_boundary(safeguard, metric, generator):
    """Its drift is larger than the pull there, so only a share of it is followed."""
    X = point_at_distance(9, 4, 0.5, dtype=torch.float32, generator=generator)
    for _ in range(200):
        X = gs.landing_step(X, 1e9 * X, step_size=0.1, metric=metric, safeguard=safeguard)
    assert exact_distance(X) < 0.4


def test_a_huge_step_size_does_not_shrink_a_gradient_whose_drift_is_affordable(generator):
    """No landing step is longer than 1/(2 λ), whatever the step size, so no more drift has to be paid for."""
    X = point_at_distance(9, 4, 0.0, dtype=torch.float32, generator=generator)
    M = literal.sym(random_matrix(4, 4, dtype=torch.float32, generator=generator))
    G = 1e3 * X @ M + 0.3 * random_matrix(9, 4, dtype=torch.float32, generator=generator)
    expected = literal.landing_step(X.double(), G.double(), 1e6, 1.0, 0.5)
    new = gs.landing_step(X, G, step_size=1e6, **gs.PAPER_OPTIONS)
    torch.testing.assert_close(new.double(), expected, rtol=0, atol=2e-3)
    assert (new - X).norm() > 0.3


@pytest.mark.parametrize("metric", ["canonical", "euclidean"])
@pytest.mark.parametrize("shape", [(5, 5), (9, 4), (5, 1)])
def test_on_the_boundary_a_landing_step_is_the_plain_formula_too(shape, metric, generator):
    """Where only the pull is left to pay for the step, the gradient is still followed."""
    X, G = start(shape, torch.float64, generator, distance=0.5)
    expected = literal.landing_step(X, G, 10.0, 1.0, 0.5, metric)
    ours = gs.landing_step(X, G, step_size=10.0, attraction=1.0, metric=metric)
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6)
    tangent = gs.formulas.landing_field(X, G, attraction=1.0, metric=metric) - gs.formulas.penalty_gradient(X)
    assert (literal.inner(expected - X, tangent) < -1e-3 * literal.norm(tangent)).all()


def test_a_tensor_of_step_sizes_broadcasts_to_the_batch(generator):
    X, G = start((2, 3, 9, 4), torch.float64, generator)
    expected = gs.landing_step(X, G, step_size=0.03)
    for shape in [(), (1,), (3,), (1, 3), (2, 1)]:
        sizes = torch.full(shape, 0.03, dtype=torch.float64)
        torch.testing.assert_close(gs.landing_step(X, G, step_size=sizes), expected)
