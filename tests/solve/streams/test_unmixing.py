"""Contrasts, whitening and the Newton turn, each against its literal definition."""

import math

import numpy as np
import pytest
import scipy.integrate
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glideslope.solve.streams.contrast import CONTRASTS
from glideslope.solve.streams.unmixing import Statistics, Unmixing
from glideslope.solve.streams.whitening import numerical_rank, whitening_matrix


@pytest.mark.parametrize("name", CONTRASTS)
def test_scores_are_the_derivative_of_the_value_and_slopes_that_of_the_scores(name):
    contrast = CONTRASTS[name]
    Y = torch.linspace(-3, 3, 24, dtype=torch.float64).reshape(8, 3).requires_grad_()
    (first,) = torch.autograd.grad(contrast.value(Y).sum(), Y)
    scores, slopes = contrast.scores(Y)
    (second,) = torch.autograd.grad(scores.sum(), Y)
    torch.testing.assert_close(scores, first)
    torch.testing.assert_close(slopes, second.sum(1))


@pytest.mark.parametrize("name", CONTRASTS)
def test_the_gaussian_reference_is_the_mean_over_a_gaussian(name):
    def integrand(y):
        value = float(CONTRASTS[name].value(torch.tensor([[y]], dtype=torch.float64)))
        return value * math.exp(-y * y / 2) / math.sqrt(2 * math.pi)

    mean, _ = scipy.integrate.quad(integrand, -12, 12, limit=200)
    assert CONTRASTS[name].gaussian == pytest.approx(mean, abs=1e-10)


def model_of(X, contrast="logcosh"):
    p = X.shape[0]
    return Unmixing(X.new_zeros(p), torch.eye(p, dtype=X.dtype), X, CONTRASTS[contrast])


def independent_rows(kinds, m=40):
    """All combinations of values of one source each: exactly independent, of mean 0 and variance 1."""
    levels = (torch.arange(m, dtype=torch.float64) + 0.5) / m * 2 - 1
    shapes = {"sub": levels, "super": levels.sign() * -torch.log1p(-levels.abs())}
    grids = torch.meshgrid(*(shapes[kind] / shapes[kind].square().mean().sqrt() for kind in kinds), indexing="ij")
    return torch.stack([grid.flatten() for grid in grids], 1)


@pytest.mark.parametrize("contrast", CONTRASTS)
@pytest.mark.parametrize("kinds", [("super", "super"), ("sub", "super"), ("sub", "sub")])
def test_the_turn_is_a_newton_step_at_independent_sources(kinds, contrast):
    rows = independent_rows(kinds)

    def f(angle, signs):
        c, s = torch.cos(angle), torch.sin(angle)
        Y = rows @ torch.stack([torch.stack([c, s]), torch.stack([-s, c])])
        return (CONTRASTS[contrast].value(Y).mean(0) * signs).sum()

    model = model_of(torch.eye(2, dtype=torch.float64), contrast)
    statistics = model.statistics([rows])
    model.adapt(statistics)
    zero = torch.zeros((), dtype=torch.float64)
    curvature = torch.autograd.functional.hessian(lambda angle: f(angle, model.signs), zero)
    assert float(curvature) > 0, "the signs make independent sources a minimum"
    assert [float(sign) * (-1 if contrast == "cube" else 1) for sign in model.signs] == [
        1 if kind == "super" else -1 for kind in kinds
    ]
    small = 1e-5
    slope = torch.autograd.functional.jacobian(lambda angle: f(angle, model.signs), zero + small)
    assert float(slope / curvature) == pytest.approx(small, rel=1e-3)
    rotated = model_of(torch.tensor([[1, small], [-small, 1]], dtype=torch.float64), contrast)
    rotated.signs, rotated.curvature, rotated.size = model.signs, model.curvature, model.size
    turn = rotated.turn(rotated.statistics([rows]).cross)
    assert float(turn[0, 1]) == pytest.approx(small, rel=1e-2)


def test_turns_are_skew_and_steps_keep_the_rotation_orthogonal():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(300, 5, generator=generator).pow(3)
    model = model_of(torch.eye(5))
    statistics = model.statistics(rows.split(100))
    model.adapt(statistics)
    turn = model.turn(statistics.cross)
    torch.testing.assert_close(turn, -turn.T)
    model.step(turn * 1e6, 1.0)
    assert float((model.X.T @ model.X - torch.eye(5)).norm()) < 1e-5


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_statistics_are_the_means_of_their_definition_whitened_before_or_not(shift):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(500, 6, generator=generator, dtype=torch.float64) + shift
    K = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    X = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))[0]
    model = Unmixing(rows.mean(0), K, X, CONTRASTS["logcosh"])
    Z = (rows - rows.mean(0)) @ K
    Y = Z @ X
    literal = Y.T @ torch.tanh(Y) / 500, (1 - torch.tanh(Y).square()).mean(0)
    for found in (model.statistics(rows.split(200)), model.white_statistics(Z.T.split(200, 1))):
        torch.testing.assert_close(found.cross, literal[0])
        torch.testing.assert_close(found.slope, literal[1])
        assert found.n_rows == 500


def test_a_direction_that_sampling_cannot_tell_keeps_its_sign():
    model = model_of(torch.eye(3, dtype=torch.float64))
    size = torch.eye(3, dtype=torch.float64)

    def adapt(curvature, n_rows):
        slope = torch.tensor(curvature, dtype=torch.float64) + 1
        model.adapt(Statistics(size, slope, n_rows))
        return model.signs.tolist()

    assert adapt([0.5, -0.001, -0.5], 100) == [1, -1, -1]  # the unclear one goes with the sum
    assert adapt([0.5, 0.01, -0.5], 100) == [1, -1, -1]
    assert adapt([0.5, 0.01, -0.5], 10**6) == [1, 1, -1]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(0, 1000))
def test_whitened_data_have_the_identity_as_covariance(p, seed):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    C = mixing @ mixing.T
    K = whitening_matrix(C, p, torch.float64)
    torch.testing.assert_close(K.T @ C @ K, torch.eye(p, dtype=torch.float64), atol=1e-7, rtol=0)
    captured = torch.linalg.eigvalsh(C)[-p:].sum()
    directions = torch.linalg.qr(K).Q
    assert float(torch.trace(directions.T @ C @ directions)) == pytest.approx(float(captured), rel=1e-6)


def test_directions_without_variance_are_not_whitened():
    C = torch.diag(torch.tensor([4.0, 1.0, 0.0], dtype=torch.float64))
    assert numerical_rank(torch.linalg.eigvalsh(C), torch.float32) == 2
    assert whitening_matrix(C, None, torch.float32).shape == (3, 2)
    with pytest.raises(
        ValueError, match=r"vary in 2 independent directions only.*n_components=3; give n_components <= 2"
    ):
        whitening_matrix(C, 3, torch.float32)
    with pytest.raises(ValueError, match="the data do not vary"):
        whitening_matrix(C * 0, None, torch.float32)


def test_negentropy_is_larger_for_sources_than_for_their_mixtures():
    rows = independent_rows(("super", "sub"))
    turned = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64) / math.sqrt(2)
    assert model_of(torch.eye(2, dtype=torch.float64)).negentropy([rows]) > 2 * model_of(turned).negentropy([rows])
    literal = (np.log(np.cosh(rows.numpy())).mean(0) - CONTRASTS["logcosh"].gaussian) ** 2
    assert model_of(torch.eye(2, dtype=torch.float64)).negentropy([rows]) == pytest.approx(literal.sum())
