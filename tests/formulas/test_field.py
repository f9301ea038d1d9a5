"""The fields: four products or three, both metrics, against the literal n x n definition and two libraries."""

import geoopt
import literal
import pymanopt
import pytest
import torch
from combinations import every_pair
from counting import ProductCounter
from literal import point_at_distance, random_matrix

import glideslope as gs

SHAPES = [(1, 1), (4, 4), (6, 5), (7, 3), (6, 1), (2, 3, 8, 2), (0, 4, 2)]
TYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
METRICS = ["canonical", "euclidean"]


@every_pair(metric=METRICS, dtype=TYPES, shape=SHAPES)
def test_the_fields_equal_their_n_by_n_definitions(shape, dtype, metric, generator):
    X, G = (random_matrix(*shape, dtype=dtype, generator=generator) for _ in range(2))
    A = literal.skew_matrix(X, G, metric)
    tolerance = {"rtol": 1e-4, "atol": 1e-3} if dtype in (torch.float32, torch.complex64) else {}
    torch.testing.assert_close(gs.formulas.riemannian_gradient(X, G, metric=metric), A @ X, **tolerance)
    field = literal.landing_field(X, G, 0.7, metric)
    torch.testing.assert_close(gs.formulas.landing_field(X, G, attraction=0.7, metric=metric), field, **tolerance)
    torch.testing.assert_close(gs.formulas.skew_field(X, A, attraction=0.7), field, **tolerance)


@pytest.mark.parametrize("n", [4, 5, 7, 8, 12])
def test_the_square_form_and_the_tall_form_agree(n, generator):
    """Around n = 1.25 p and n = 1.75 p the field and the gradient change from three or two products to four."""
    X, G = random_matrix(n, 4, generator=generator), random_matrix(n, 4, generator=generator)
    torch.testing.assert_close(
        gs.formulas.landing_field(X, G, attraction=2.0),
        literal.landing_field(X, G, 2.0),
        rtol=1e-13,
        atol=1e-12,
    )


@pytest.mark.parametrize(
    ("n", "p", "products"), [(40, 8, 4 * 40 * 8 * 8), (8, 8, 3 * 8 * 8 * 8), (10, 8, 3 * 10 * 10 * 8)]
)
def test_the_field_costs_four_products_or_three_in_the_square_form(n, p, products, generator):
    X, G = random_matrix(n, p, generator=generator), random_matrix(n, p, generator=generator)
    with ProductCounter() as counter:
        gs.formulas.landing_field(X, G, attraction=1.0)
    assert counter.multiplications == products


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_for_square_matrices_on_the_manifold_both_metrics_give_one_gradient(dtype, generator):
    """X X^H = I, so X skew(X^H G) = skew(G X^H) X: the three-product form serves both."""
    X = point_at_distance(6, 6, 0.0, dtype=dtype, generator=generator)
    G = random_matrix(6, 6, dtype=dtype, generator=generator)
    euclidean = G - X @ literal.sym(X.mH @ G)
    for metric in METRICS:
        torch.testing.assert_close(gs.formulas.riemannian_gradient(X, G, metric=metric), euclidean)


def test_the_euclidean_gradient_on_the_manifold_is_pymanopts_and_geoopts(generator):
    X = point_at_distance(9, 4, 0.0, generator=generator)
    G = random_matrix(9, 4, generator=generator)
    ours = gs.formulas.riemannian_gradient(X, G, metric="euclidean")
    theirs = pymanopt.manifolds.Stiefel(9, 4).euclidean_to_riemannian_gradient(X.numpy(), G.numpy())
    torch.testing.assert_close(ours, torch.from_numpy(theirs))
    torch.testing.assert_close(ours, geoopt.EuclideanStiefel().egrad2rgrad(X, G))


def test_the_canonical_gradient_on_the_manifold_is_half_of_geoopts(generator):
    """The paper omits the factor 2 of the canonical metric, see below (5)."""
    X = point_at_distance(9, 4, 0.0, generator=generator)
    G = random_matrix(9, 4, generator=generator)
    theirs = geoopt.CanonicalStiefel().egrad2rgrad(X, G)
    torch.testing.assert_close(2 * gs.formulas.riemannian_gradient(X, G), theirs)


@pytest.mark.parametrize("metric", METRICS)
def test_the_field_is_linear_in_the_gradient(metric, generator):
    """So variance reduction, momentum and clipping are gradient estimators that feed one formula."""
    X, G, H = (random_matrix(8, 3, generator=generator) for _ in range(3))
    tangent = lambda M: gs.formulas.riemannian_gradient(X, M, metric=metric)  # noqa: E731
    torch.testing.assert_close(tangent(2 * G - 3 * H), 2 * tangent(G) - 3 * tangent(H))


@pytest.mark.parametrize("metric", METRICS)
def test_weight_decay_has_no_effect_on_the_tangent_part(metric, generator):
    X = random_matrix(8, 3, generator=generator)
    torch.testing.assert_close(
        gs.formulas.riemannian_gradient(X, X, metric=metric), torch.zeros_like(X), rtol=0, atol=1e-12
    )


def test_the_field_is_differentiable(generator):
    X, G = (random_matrix(5, 3, generator=generator).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(lambda X, G: gs.formulas.landing_field(X, G, attraction=0.5), (X, G))


def test_a_half_precision_field_keeps_its_type(generator):
    X, G = (random_matrix(6, 2, dtype=torch.float32, generator=generator).bfloat16() for _ in range(2))
    field = gs.formulas.landing_field(X, G, attraction=1.0)
    assert field.dtype == torch.bfloat16
    wide = gs.formulas.landing_field(X.float(), G.float(), attraction=1.0)
    torch.testing.assert_close(field, wide.bfloat16(), rtol=0, atol=0)
