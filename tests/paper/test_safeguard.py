"""Section 2.1: the step-size safeguard, its lower bound, and what they promise, also in floating point."""

import literal
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from literal import exact_distance, norm, point_at_distance, random_matrix, region_distance, skew

import glideslope as gs

SHAPES = st.sampled_from([(1, 1), (2, 1), (5, 5), (7, 3), (40, 4), (6, 5)])
TYPES = st.sampled_from([torch.float64, torch.complex128])
ATTRACTIONS = st.floats(0.1, 10)
RADII = st.floats(0.01, 0.95)
FRACTIONS = st.one_of(st.just(0.0), st.just(1.0), st.floats(0, 1))
SEEDS = st.integers(0, 2**31)
EXPONENTS = st.integers(-30, 30)
NORMAL_STEPS = ["landing", "newton-schulz", "polar"]
SAFEGUARDS = ["lemma", "exact"]
METRICS = ["canonical", "euclidean"]


def guarded(X, F, attraction, radius):
    distance = gs.formulas.distance(X)
    return gs.formulas.safeguard_step(distance, norm(F), attraction=attraction, safe_radius=radius)


@given(SHAPES, TYPES, ATTRACTIONS, RADII, FRACTIONS, EXPONENTS, st.floats(0, 1), SEEDS)
def test_lemma_step_size_safeguard_a_step_up_to_it_never_leaves_the_safe_region(
    shape, dtype, attraction, radius, fraction, exponent, share, seed
):
    generator = torch.Generator().manual_seed(seed)
    X = point_at_distance(*shape, radius * fraction, dtype=dtype, generator=generator)
    A = 10.0**exponent * skew(random_matrix(shape[0], shape[0], dtype=dtype, generator=generator))
    F = gs.formulas.skew_field(X, A, attraction=attraction)
    step = guarded(X, F, attraction, radius)
    assert 0 < step <= 1 / (2 * attraction)
    assert exact_distance(X - step * F) <= radius + 1e-13
    assert exact_distance(X - share * step * F) <= radius + 1e-13


@given(SHAPES, TYPES, ATTRACTIONS, RADII, FRACTIONS, st.integers(-3, 6), SEEDS)
def test_the_exact_step_is_never_shorter_than_the_lemmas_and_lands_on_the_boundary(
    shape, dtype, attraction, radius, fraction, exponent, seed
):
    generator = torch.Generator().manual_seed(seed)
    X = point_at_distance(*shape, radius * fraction, dtype=dtype, generator=generator)
    A = 10.0**exponent * skew(random_matrix(shape[0], shape[0], dtype=dtype, generator=generator))
    F = gs.formulas.skew_field(X, A, attraction=attraction)
    exact = gs.formulas.exact_safeguard_step(X, F, safe_radius=radius)
    assert exact >= guarded(X, F, attraction, radius) * (1 - 1e-9)
    if norm(F) > 1e-9:  # a real 1 x 1 matrix on the manifold does not move
        assert exact_distance(X - exact * F) == pytest.approx(radius, rel=1e-6)


@given(SHAPES, TYPES, ATTRACTIONS, RADII, FRACTIONS, st.floats(1e-3, 1e3), st.floats(0.01, 1), SEEDS)
def test_lemma_a_lower_bound_on_the_step_size_safeguard(
    shape, dtype, attraction, radius, fraction, field_bound, share, seed
):
    """η(X) >= η*(ã, ε, λ) whenever ‖A X‖ <= ã."""
    generator = torch.Generator().manual_seed(seed)
    X = point_at_distance(*shape, radius * fraction, dtype=dtype, generator=generator)
    A = skew(random_matrix(shape[0], shape[0], dtype=dtype, generator=generator))
    length = norm(A @ X)
    if length > 0:
        A = A * (share * field_bound / length)
    F = gs.formulas.skew_field(X, A, attraction=attraction)
    least = gs.formulas.safeguard_lower_bound(field_bound, attraction=attraction, safe_radius=radius)
    assert 0 < least <= guarded(X, F, attraction, radius) * (1 + 1e-9)


@pytest.mark.parametrize("attraction", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("radius", [0.05, 0.5, 0.95])
@pytest.mark.parametrize("field_bound", [0.01, 1.0, 50.0])
def test_the_closed_form_of_q_is_the_infimum_of_k_as_the_paper_defines_it(attraction, radius, field_bound):
    """Q = inf of K over ]0, ã] x ]0, ε]; here on a fine grid, against min{Q, 1/(2λ)}."""
    a = torch.linspace(0, 1, 801, dtype=torch.float64)[1:, None] * field_bound
    d = torch.cat([torch.logspace(-9, -2, 50), torch.linspace(0.01, 1, 800)]).double() * radius
    K = (attraction * (1 - radius) * d + a * ((radius - d).clamp(min=0) / 2).sqrt()) / (
        a**2 + attraction**2 * (1 + radius) * d**2
    )
    expected = min(K.min().item(), 1 / (2 * attraction))
    ours = gs.formulas.safeguard_lower_bound(field_bound, attraction=attraction, safe_radius=radius)
    assert ours <= expected * (1 + 1e-12)
    assert ours == pytest.approx(expected, rel=1e-3)


@given(SHAPES, ATTRACTIONS, st.floats(0.05, 0.9), st.floats(0.1, 100), SEEDS)
def test_proposition_steps_below_the_lower_bound_stay_in_the_safe_region_forever(
    shape, attraction, radius, field_bound, seed
):
    """With skew maps that depend on the past, as variance reduction needs: here, mixed with all earlier ones."""
    generator = torch.Generator().manual_seed(seed)
    X = point_at_distance(*shape, radius, generator=generator)
    step = gs.formulas.safeguard_lower_bound(field_bound, attraction=attraction, safe_radius=radius)
    memory = torch.zeros(shape[0], shape[0], dtype=torch.float64)
    for _ in range(30):
        memory = 0.7 * memory + skew(random_matrix(shape[0], shape[0], generator=generator))
        A = memory * (field_bound / norm(memory @ X).clamp(min=1e-300)).clamp(max=1e9)
        X = X - step * gs.formulas.skew_field(X, A, attraction=attraction)
        assert exact_distance(X) <= radius + 1e-12


def starts_and_gradients(shape, radius, dtype, generator):
    """Points from the manifold to the boundary, each with random, normal and parallel gradients of any size."""
    points, gradients = [], []
    for fraction in (0.0, 0.5, 1.0):
        X = point_at_distance(*shape, radius * fraction, batch=(2,), dtype=dtype, generator=generator)
        M = literal.sym(random_matrix(2, shape[1], shape[1], dtype=dtype, generator=generator))
        for scale in (1e-30, 1e-3, 1.0, 1e4, 1e14, 1e30):
            random = random_matrix(*X.shape, dtype=dtype, generator=generator)
            points += [X, X, X]
            gradients += [random * scale, X @ M * scale, X * scale]
    return torch.cat(points), torch.cat(gradients)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float64])
@pytest.mark.parametrize("safeguard", SAFEGUARDS)
@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
@pytest.mark.parametrize("metric", METRICS)
def test_a_safeguarded_step_never_leaves_the_region_for_gradients_from_1e_minus_30_to_1e30_in_any_type(
    metric, normal_step, safeguard, dtype, generator
):
    """Also where rounding makes up the whole field: gradients normal to the manifold, and 1 x 1 matrices."""
    options = {"metric": metric, "normal_step": normal_step, "safeguard": safeguard}
    for shape in [(1, 1), (2, 1), (5, 5), (40, 4), (300, 1)]:
        for radius in (0.9, 0.5, 0.01):
            X, G = starts_and_gradients(shape, radius, dtype, generator)
            for step_size in (1e-2, 1.0, 1e5):
                for attraction in (0.1, 10.0):
                    new = gs.landing_step(
                        X, G, step_size=step_size, attraction=attraction, safe_radius=radius, **options
                    )
                    worst = region_distance(new, normal_step, safeguard).max()
                    assert worst <= radius + 2 * torch.finfo(dtype).eps, (
                        shape,
                        radius,
                        step_size,
                        attraction,
                    )


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
@pytest.mark.parametrize("metric", METRICS)
def test_many_steps_on_rounding_noise_alone_stay_in_the_region(metric, normal_step, safeguard, generator):
    """The case measured to break a safeguarded two-step update: ‖G‖ = 1e14, lr = 1e5, float32, G normal."""
    X = point_at_distance(50, 3, 0.0, batch=(20,), dtype=torch.float32, generator=generator)
    for _ in range(50):
        M = literal.sym(random_matrix(20, 3, 3, dtype=torch.float32, generator=generator))
        X = gs.landing_step(X, 1e14 * X @ M, step_size=1e5, metric=metric, normal_step=normal_step, safeguard=safeguard)
        assert region_distance(X, normal_step, safeguard).max() <= 0.5 + 1e-6


@pytest.mark.parametrize("metric", METRICS)
def test_long_coherent_columns_do_not_break_the_guarantee(metric):
    """Dot products of 1e5 terms of one sign round thousands of times worse than random ones."""
    X = torch.full((100_000, 1), 100_000**-0.5)
    for scale in (1e3, 1e6, 1e9):
        new = gs.landing_step(X, X * scale, step_size=1e3, metric=metric)
        assert exact_distance(new) <= 0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("safeguard", SAFEGUARDS)
@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
def test_no_step_size_however_large_leaves_the_region(normal_step, safeguard, dtype, generator):
    """Also where the norm of the field underflows, or the gradient's share of the step is near the smallest number."""
    for shape in [(1, 1), (2, 1), (3, 2)]:
        for radius in (0.01, 0.9):
            X = point_at_distance(*shape, 0.7 * radius, batch=(40,), dtype=dtype, generator=generator)
            M = literal.sym(random_matrix(40, shape[1], shape[1], dtype=dtype, generator=generator))
            for direction in (random_matrix(*X.shape, dtype=dtype, generator=generator), X @ M):
                for scale in (1e-25, 1.0, 1e30, 1e37):
                    for step_size in (1e15, 1e30):
                        for attraction in (1e-3, 1.0):
                            new = gs.landing_step(
                                X,
                                scale * direction,
                                step_size=step_size,
                                attraction=attraction,
                                safe_radius=radius,
                                normal_step=normal_step,
                                safeguard=safeguard,
                            )
                            worst = region_distance(new, normal_step, safeguard).max()
                            assert worst <= radius + 4 * torch.finfo(dtype).eps, (shape, radius, scale, step_size)


@pytest.mark.parametrize("shape", [(2, 1), (2, 2)])
@pytest.mark.parametrize("radius", [0.5, 0.99])
def test_an_exact_step_right_across_the_safe_region_does_not_leave_it_by_rounding(shape, radius, generator):
    """Beyond the cap 1/(2 λ) a step may cross the whole region; there the terms of the quartic are hundreds of
    times larger than their sum."""
    X = point_at_distance(*shape, 0.0, batch=(500,), dtype=torch.float32, generator=generator)
    G = random_matrix(*X.shape, dtype=torch.float32, generator=generator)
    for _ in range(3):
        X = gs.landing_step(X, G, step_size=1e6, safe_radius=radius, safeguard="exact", metric="euclidean")
        assert region_distance(X, safeguard="exact").max() <= radius + 4 * torch.finfo(torch.float32).eps
