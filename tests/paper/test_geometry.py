"""Section 2.1: the geometry of the landing field, claim by claim."""

import literal
import torch
from hypothesis import given
from hypothesis import strategies as st
from literal import inner, norm, point_at_distance, random_matrix, skew

import glideslope as gs

SHAPES = st.sampled_from([(1, 1), (2, 1), (5, 5), (7, 3), (30, 4), (6, 5)])
BATCHES = st.sampled_from([(), (3,), (2, 2)])
TYPES = st.sampled_from([torch.float64, torch.complex128])
ATTRACTIONS = st.floats(0.1, 10)
RADII = st.floats(0.01, 0.99)
FRACTIONS = st.floats(0, 1)
SEEDS = st.integers(0, 2**31)


def close_to_zero(value, scale):
    return (value.abs() <= 1e-12 * (1 + scale)).all()


@given(SHAPES, BATCHES, TYPES, RADII, FRACTIONS, SEEDS)
def test_lemma_the_singular_values_in_the_safe_region_are_between_the_roots_of_one_plus_minus_the_radius(
    shape, batch, dtype, radius, fraction, seed
):
    X = point_at_distance(
        *shape, radius * fraction, batch=batch, dtype=dtype, generator=torch.Generator().manual_seed(seed)
    )
    values = torch.linalg.svdvals(X)
    assert (values >= (1 - radius) ** 0.5 - 1e-12).all()
    assert (values <= (1 + radius) ** 0.5 + 1e-12).all()


@given(SHAPES, BATCHES, TYPES, st.sampled_from(["canonical", "euclidean"]), SEEDS)
def test_the_two_terms_of_the_field_are_orthogonal_at_any_point(shape, batch, dtype, metric, seed):
    generator = torch.Generator().manual_seed(seed)
    X, G = (3 * random_matrix(*batch, *shape, dtype=dtype, generator=generator) for _ in range(2))
    tangent = gs.formulas.riemannian_gradient(X, G, metric=metric)
    normal = gs.formulas.penalty_gradient(X)
    assert close_to_zero(inner(tangent, normal), norm(tangent) * norm(normal) + norm(X) ** 4 * norm(G))


@given(SHAPES, TYPES, SEEDS)
def test_any_skew_matrix_gives_a_direction_orthogonal_to_the_attraction(shape, dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    X = random_matrix(*shape, dtype=dtype, generator=generator)
    A = skew(random_matrix(shape[0], shape[0], dtype=dtype, generator=generator))
    normal = gs.formulas.penalty_gradient(X)
    assert close_to_zero(inner(A @ X, normal), norm(A @ X) * norm(normal) + norm(A) * norm(X) ** 4)


@given(SHAPES, BATCHES, TYPES, ATTRACTIONS, RADII, FRACTIONS, SEEDS)
def test_proposition_the_norm_of_the_field_is_bounded_on_both_sides(
    shape, batch, dtype, attraction, radius, fraction, seed
):
    generator = torch.Generator().manual_seed(seed)
    X = point_at_distance(*shape, radius * fraction, batch=batch, dtype=dtype, generator=generator)
    A = skew(random_matrix(*batch, shape[0], shape[0], dtype=dtype, generator=generator))
    squared = norm(gs.formulas.skew_field(X, A, attraction=attraction)) ** 2
    tangent = norm(A @ X) ** 2
    normal = 4 * attraction**2 * gs.formulas.penalty(X)
    tolerance = 1e-11 * (1 + squared)
    assert (tangent + (1 - radius) * normal <= squared + tolerance).all()
    assert (squared <= tangent + (1 + radius) * normal + tolerance).all()


@given(SHAPES, TYPES, SEEDS)
def test_the_field_vanishes_exactly_at_critical_points_on_the_manifold(shape, dtype, seed):
    """Where G is normal to the manifold, G = X M with a Hermitian M; elsewhere one of the two terms remains."""
    generator = torch.Generator().manual_seed(seed)
    X = point_at_distance(*shape, 0.0, dtype=dtype, generator=generator)
    M = literal.sym(random_matrix(shape[1], shape[1], dtype=dtype, generator=generator))
    assert norm(gs.formulas.landing_field(X, X @ M, attraction=1.0)) < 1e-12 * (1 + norm(M))
    off = point_at_distance(*shape, 0.3, dtype=dtype, generator=generator)
    assert norm(gs.formulas.landing_field(off, off @ M, attraction=1.0)) > 0.1


@given(SHAPES, BATCHES, TYPES, ATTRACTIONS, st.floats(0, 1), SEEDS)
def test_the_residual_after_a_step_is_an_exact_recursion(shape, batch, dtype, attraction, step, seed):
    """Proof of the safeguard lemma: Δ⁺ = Δ - 2 η λ (Δ + Δ²) + η² F^H F, for any skew A."""
    generator = torch.Generator().manual_seed(seed)
    X = point_at_distance(*shape, 0.4, batch=batch, dtype=dtype, generator=generator)
    A = skew(random_matrix(*batch, shape[0], shape[0], dtype=dtype, generator=generator))
    F = gs.formulas.skew_field(X, A, attraction=attraction)
    Delta = gs.formulas.residual(X)
    after = Delta - 2 * step * attraction * (Delta + Delta @ Delta) + step**2 * F.mH @ F
    torch.testing.assert_close(gs.formulas.residual(X - step * F), after, rtol=1e-9, atol=1e-9)


@given(SHAPES, SEEDS)
def test_on_the_manifold_the_field_is_the_riemannian_gradient_of_equation_5(shape, seed):
    generator = torch.Generator().manual_seed(seed)
    X = point_at_distance(*shape, 0.0, generator=generator)
    G = random_matrix(*shape, generator=generator)
    field = gs.formulas.landing_field(X, G, attraction=3.0)
    torch.testing.assert_close(field, skew(G @ X.mH) @ X, rtol=1e-10, atol=1e-10)
    tangency = literal.sym(X.mH @ field)
    torch.testing.assert_close(tangency, torch.zeros_like(tangency), rtol=0, atol=1e-12)
