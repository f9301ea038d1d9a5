"""Gram, residual, distance, penalty: literal definitions, a foreign library, batches, types and edges."""

import literal
import numpy as np
import pymanopt
import pytest
import torch
from literal import random_matrix

import glideslope as gs
from glideslope.formulas.orthogonality import frobenius

SHAPES = [(1, 1), (4, 4), (7, 3), (6, 1), (2, 3, 8, 5), (0, 4, 2)]
TYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_each_formula_equals_its_definition(shape, dtype, generator):
    X = random_matrix(*shape, dtype=dtype, generator=generator)
    Delta = literal.residual(X)
    torch.testing.assert_close(gs.formulas.gram(X), X.mH @ X)
    torch.testing.assert_close(gs.formulas.residual(X), Delta)
    torch.testing.assert_close(gs.formulas.distance(X), literal.norm(Delta))
    torch.testing.assert_close(gs.formulas.spectral_distance(X), torch.linalg.matrix_norm(Delta, ord=2))
    torch.testing.assert_close(gs.formulas.penalty(X), literal.norm(Delta) ** 2 / 4)
    torch.testing.assert_close(gs.formulas.penalty_gradient(X), X @ Delta)
    assert gs.formulas.distance(X).shape == X.shape[:-2]


def test_the_penalty_gradient_is_the_derivative_of_the_penalty(generator):
    X = random_matrix(3, 6, 4, generator=generator).requires_grad_()
    (derivative,) = torch.autograd.grad(gs.formulas.penalty(X).sum(), X)
    torch.testing.assert_close(gs.formulas.penalty_gradient(X), derivative)


def test_the_penalty_gradient_is_the_complex_derivative_too(generator):
    X = random_matrix(5, 3, dtype=torch.complex128, generator=generator).requires_grad_()
    (derivative,) = torch.autograd.grad(gs.formulas.penalty(X), X)
    torch.testing.assert_close(gs.formulas.penalty_gradient(X), derivative)


def test_a_point_of_pymanopts_manifold_is_at_distance_zero():
    np.random.seed(0)  # noqa: NPY002 - pymanopt draws from the global state
    point = torch.from_numpy(pymanopt.manifolds.Stiefel(9, 4).random_point())
    assert gs.formulas.distance(point) < 1e-14


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32_and_returned_in_its_own_type(half, generator):
    X = random_matrix(200, 4, dtype=torch.float32, generator=generator).to(half)
    formulas = gs.formulas
    for formula in (
        formulas.gram,
        formulas.residual,
        formulas.distance,
        formulas.spectral_distance,
        formulas.penalty,
        formulas.penalty_gradient,
    ):
        assert formula(X).dtype == half
        torch.testing.assert_close(formula(X), formula(X.float()).to(half), rtol=0, atol=0)


def test_float16_sums_that_overflow_on_the_way_do_not_overflow():
    # ‖X^T X - I‖² is 1.6e5, above the largest float16 of 65504; the distance 400 is not.
    X = torch.zeros(2, 1, dtype=torch.float16)
    X[0, 0] = 20.0
    assert gs.formulas.distance(X) == 399.0


@pytest.mark.parametrize("shape", [(3000, 3000), (2, 60_000, 40), (40, 60_000)])
def test_a_norm_of_many_equal_numbers_keeps_its_digits(shape):
    """Added one after the other in float32, 9e6 squares lose two digits of their sum."""
    M = torch.full(shape, 0.1)
    expected = 0.1 * (shape[-2] * shape[-1]) ** 0.5
    torch.testing.assert_close(frobenius(M), torch.full(shape[:-2], expected), rtol=1e-4, atol=0)


@pytest.mark.parametrize("function", [gs.formulas.distance, gs.formulas.penalty])
def test_second_derivatives_exist_where_rows_are_zero(function):
    X = torch.eye(260, dtype=torch.float64)
    X[0, 0] = 1.1
    X.requires_grad_()
    (first,) = torch.autograd.grad(function(X), X, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), X)
    assert torch.isfinite(second).all()
