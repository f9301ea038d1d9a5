"""The merit function (16), its gradient and its gradient-free form, against NumPy and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

from glideslope.formulas.merit import gradient_free_merit, merit, merit_gradient

TYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
SHAPES = ((1, 1), (6, 1), (4, 4), (9, 3), (5, 4), (2, 3, 7, 4))

all_types = pytest.mark.parametrize("dtype", TYPES, ids=str)
all_shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(16)


def quartic(X: Tensor) -> Tensor:
    """f(X) = Σ_ij (i + 1) |x_ij|⁴ / 4 + Re Σ_ij x_ij: neither quadratic nor invariant under rotations."""
    weights = torch.arange(1, X.shape[-2] + 1, device=X.device).unsqueeze(-1)
    return (weights * (X * X.conj()).real.square() / 4 + X.real).sum(dim=(-2, -1))


def quartic_gradient(X: Tensor) -> Tensor:
    weights = torch.arange(1, X.shape[-2] + 1, device=X.device).unsqueeze(-1)
    return weights * (X * X.conj()).real * X + 1


def literal_merit(X: Tensor, mu: float) -> float:
    """Eq. (16) for one matrix in NumPy, with the symmetric part written out."""
    x, g = X.numpy(), quartic_gradient(X).numpy()
    delta = x.conj().T @ x - np.eye(x.shape[1])
    symmetric = (x.conj().T @ g + g.conj().T @ x) / 2
    h = -np.trace(symmetric.conj().T @ delta).real / 2
    return float(quartic(X)) + h + mu * np.linalg.norm(delta) ** 2 / 4


def wide(X: Tensor) -> Tensor:
    return X.to(torch.complex128 if X.is_complex() else torch.float64)


def matrices(X: Tensor) -> list[Tensor]:
    return list(X.reshape(-1, *X.shape[-2:]))


@all_types
@all_shapes
def test_the_merit_function_is_f_plus_h_plus_mu_n(dtype, shape, generator):
    X = torch.randn(shape, dtype=dtype, generator=generator)
    result = merit(X, quartic(X), quartic_gradient(X), mu=2.5)
    assert result.shape == shape[:-2]
    assert not result.is_complex()
    expected = [literal_merit(matrix, 2.5) for matrix in matrices(wide(X))]
    assert result.flatten().tolist() == pytest.approx(expected, rel=1e4 * torch.finfo(dtype).eps)


@all_types
def test_on_the_manifold_the_merit_function_is_f(dtype, generator):
    X = torch.linalg.qr(torch.randn(3, 8, 3, dtype=dtype, generator=generator)).Q
    torch.testing.assert_close(merit(X, quartic(X), quartic_gradient(X), mu=7.0), quartic(X))


@all_shapes
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_the_merit_gradient_is_the_derivative_of_the_literal_merit_function(dtype, shape, generator):
    X = torch.randn(shape, dtype=dtype, generator=generator) / 2
    gradient = merit_gradient(quartic, X, mu=2.5)
    assert gradient.dtype == dtype
    assert gradient.shape == X.shape
    for matrix, part in zip(matrices(X), matrices(gradient), strict=True):
        coordinates = torch.view_as_real(matrix) if matrix.is_complex() else matrix

        def value(flat: np.ndarray, like: Tensor = coordinates) -> float:
            entries = torch.from_numpy(flat.reshape(like.shape).copy())
            return literal_merit(torch.view_as_complex(entries) if dtype.is_complex else entries, 2.5)

        expected = scipy.optimize.approx_fprime(coordinates.numpy().ravel(), value, 1e-7)
        actual = (torch.view_as_real(part) if part.is_complex() else part).numpy().ravel()
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=2e-5 * np.abs(expected).max())


@all_types
def test_the_merit_gradient_agrees_with_a_second_automatic_differentiation(dtype, generator):
    X = torch.randn(2, 7, 4, dtype=dtype, generator=generator).requires_grad_()
    merit(X, quartic(X), quartic_gradient(X), mu=0.5).sum().backward()
    torch.testing.assert_close(merit_gradient(quartic, X, mu=0.5), X.grad)


def test_the_merit_gradient_of_a_linear_function_needs_no_second_derivative(generator):
    X, B = torch.randn(2, 5, 3, dtype=torch.float64, generator=generator)
    delta = X.mT @ X - torch.eye(3, dtype=X.dtype)
    C = X.mT @ B
    expected = B - B @ delta / 2 - X @ (C + C.mT) / 2 + 2.0 * X @ delta
    torch.testing.assert_close(merit_gradient(lambda Y: (B * Y).sum(), X, mu=2.0), expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_merit_gradient_works_where_gradients_are_off(mode, generator):
    X = torch.randn(2, 5, 3, dtype=torch.float64, generator=generator)
    expected = merit_gradient(quartic, X, mu=1.0)
    with mode():
        torch.testing.assert_close(merit_gradient(quartic, X.clone(), mu=1.0), expected)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_the_merit_gradient_writes_nothing_of_the_callers(requires_grad, generator):
    X = torch.randn(5, 3, dtype=torch.float64, generator=generator).requires_grad_(requires_grad)
    stored = torch.ones_like(X) if requires_grad else None
    X.grad = stored
    before = X.detach().clone()
    gradient = merit_gradient(quartic, X, mu=1.0)
    assert X.requires_grad is requires_grad
    assert X.grad is stored
    assert stored is None or torch.equal(stored, torch.ones_like(X))
    assert torch.equal(X.detach(), before)
    assert not gradient.requires_grad


@all_types
@all_shapes
def test_the_gradient_free_merit_takes_f_after_one_newton_schulz_step(dtype, shape, generator):
    X = torch.randn(shape, dtype=dtype, generator=generator) / 2
    result = gradient_free_merit(quartic, X, mu=2.5)
    assert result.shape == shape[:-2]
    expected = []
    for matrix in matrices(wide(X)):
        gram = matrix.mH @ matrix
        identity = torch.eye(shape[-1], dtype=gram.dtype)
        penalty = torch.linalg.matrix_norm(gram - identity) ** 2 / 4
        expected.append(float(quartic(matrix @ (1.5 * identity - gram / 2)) + 2.5 * penalty))
    assert result.flatten().tolist() == pytest.approx(expected, rel=1e4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_float32_and_rounded_once(dtype, generator):
    X = (torch.randn(2, 7, 4, generator=generator) / 2).to(dtype)
    value, G = quartic(X), quartic_gradient(X)
    result = merit(X, value, G, mu=2.5)
    assert result.dtype == dtype
    assert torch.equal(result, merit(X.float(), value.float(), G.float(), mu=2.5).to(dtype))


def test_an_empty_batch_has_no_values():
    X = torch.empty(0, 5, 3)
    assert merit(X, torch.empty(0), X, mu=1.0).shape == (0,)
    assert merit_gradient(quartic, X, mu=1.0).shape == (0, 5, 3)
    assert gradient_free_merit(quartic, X, mu=1.0).shape == (0,)


def test_the_merit_function_never_waits_for_a_value():
    X = torch.empty(2, 7, 4, device="meta")
    assert merit(X, torch.empty(2, device="meta"), X, mu=1.0).shape == (2,)
    assert merit_gradient(quartic, X, mu=1.0).shape == X.shape
    assert gradient_free_merit(quartic, X, mu=1.0).shape == (2,)


@pytest.mark.parametrize("mu", [0, -1.0, float("nan"), float("inf"), True])
def test_a_weight_that_is_not_positive_is_refused(mu):
    X = torch.eye(3, 2)
    for call in (
        lambda: merit(X, quartic(X), X, mu=mu),
        lambda: merit_gradient(quartic, X, mu=mu),
        lambda: gradient_free_merit(quartic, X, mu=mu),
    ):
        with pytest.raises(ValueError, match="mu must be"):
            call()


@pytest.mark.parametrize("value", [torch.zeros(1), torch.zeros(2, dtype=torch.complex64), 1.0], ids=str)
def test_values_that_are_not_one_real_number_per_matrix_are_refused(value):
    X = torch.eye(3, 2).expand(2, 3, 2)
    with pytest.raises(ValueError, match=r"value must be .* shape \(2,\)"):
        merit(X, value, X, mu=1.0)
    with pytest.raises(ValueError, match=r"function\(X\) must be .* shape \(2,\)"):
        merit_gradient(lambda _: value, X, mu=1.0)
    with pytest.raises(ValueError, match=r"function\(X\) must be .* shape \(2,\)"):
        gradient_free_merit(lambda _: value, X, mu=1.0)
