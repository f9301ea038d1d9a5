"""Contrasts, whitening and the Newton turn, each against its literal definition."""

import math

import numpy as np
import pytest
import scipy.integrate
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glideslope.streams.ica_contrast import CONTRASTS
from glideslope.streams.ica_rotation import Statistics, Unmixing
from glideslope.streams.whitening import numerical_rank, whitening_of


@pytest.mark.parametrize("name", CONTRASTS)
def test_scores_are_the_derivative_of_the_value_and_slopes_that_of_the_scores(name):
    contrast = CONTRASTS[name]
    Y = torch.linspace(-3, 3, 24, dtype=torch.float64).reshape(8, 3).requires_grad_()
    (first,) = torch.autograd.grad(contrast.value(Y).sum(), Y, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), Y)
    scores, slopes = contrast.scores(Y.detach())
    torch.testing.assert_close(scores, first.detach())
    torch.testing.assert_close(contrast.slopes(Y), second)
    torch.testing.assert_close(slopes, second.sum(1))


@pytest.mark.parametrize("name", CONTRASTS)
def test_the_gaussian_reference_is_the_mean_over_a_gaussian(name):
    def integrand(y):
        value = float(CONTRASTS[name].value(torch.tensor([[y]], dtype=torch.float64)))
        return value * math.exp(-y * y / 2) / math.sqrt(2 * math.pi)

    mean, _ = scipy.integrate.quad(integrand, -12, 12, limit=200)
    assert CONTRASTS[name].gaussian == pytest.approx(mean, abs=1e-10)


@pytest.mark.parametrize("name", CONTRASTS)
def test_the_deviation_is_that_of_the_curvature_of_white_gaussian_samples(name):
    generator = torch.Generator().manual_seed(0)
    Y = torch.randn(2000, 500, generator=generator, dtype=torch.float64)
    Y = (Y - Y.mean(1, keepdim=True)) / Y.std(1, correction=0, keepdim=True)
    scores, slopes = CONTRASTS[name].scores(Y)
    curvature = slopes / 500 - (Y * scores).mean(1)
    assert CONTRASTS[name].deviation == pytest.approx(float(curvature.std()) * math.sqrt(500), rel=0.06)


def model_of(X, contrast="logcosh"):
    p = X.shape[0]
    return Unmixing(X.new_zeros(p), torch.eye(p, dtype=X.dtype), X, CONTRASTS[contrast])


def over(blocks):
    """A sweep over these blocks."""
    return lambda work: map(work, blocks)


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
    statistics = model.statistics(over([rows.T]))
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
    rotated.adapt(statistics)
    turn = rotated.turn(rotated.statistics(over([rotated.sources(rows)])).cross)
    assert float(turn[0, 1]) == pytest.approx(small, rel=1e-2)


def test_turns_are_skew_and_steps_keep_the_rotation_orthogonal():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(300, 5, generator=generator).pow(3)
    model = model_of(torch.eye(5))
    statistics = model.statistics(over(rows.T.split(100, 1)))
    model.adapt(statistics)
    turn = model.turn(statistics.cross)
    torch.testing.assert_close(turn, -turn.T)
    model.step(turn * 1e6, 1.0)
    assert float((model.X.T @ model.X - torch.eye(5)).norm()) < 1e-5


@pytest.mark.parametrize("shift", [0.0, 1e4])
def test_statistics_are_the_means_of_their_definition(shift):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(500, 6, generator=generator, dtype=torch.float64) + shift
    K = torch.randn(6, 4, generator=generator, dtype=torch.float64)
    X = torch.linalg.qr(torch.randn(4, 4, generator=generator, dtype=torch.float64))[0]
    model = Unmixing(rows.mean(0), K, X, CONTRASTS["logcosh"])
    Z = (rows - rows.mean(0)) @ K
    Y = Z @ X
    literal = Y.T @ torch.tanh(Y) / 500, (1 - torch.tanh(Y).square()).mean(0)
    found = model.statistics(over([model.sources(part) for part in rows.split(200)]))
    torch.testing.assert_close(found.cross, literal[0])
    torch.testing.assert_close(found.slope, literal[1])
    assert found.n_rows == 500


def adapted(curvature, n_rows):
    """A model whose sources have these curvatures."""
    model = model_of(torch.eye(len(curvature), dtype=torch.float64))
    slope = torch.tensor(curvature, dtype=torch.float64) + 1
    model.adapt(Statistics(torch.eye(len(curvature), dtype=torch.float64), slope, n_rows))
    return model


def test_the_sign_of_a_source_is_that_of_its_curvature_however_small():
    model = adapted([0.5, -0.001, -0.5], 100)
    assert model.signs.tolist() == [1, -1, -1]
    model.adapt(Statistics(torch.eye(3, dtype=torch.float64), torch.tensor([1.5, 1.001, 0.5]).double(), 100))
    assert model.signs.tolist() == [1, 1, -1]


def test_curvatures_within_three_deviations_of_sampling_count_as_that_and_as_gaussian():
    deviation = CONTRASTS["logcosh"].deviation / 10
    model = adapted([0.5, 0.01 * deviation, -2.9 * deviation, -3.1 * deviation], 100)
    assert model.nearly_gaussian().tolist() == [False, True, True, False]
    cross = torch.triu(torch.ones(4, 4, dtype=torch.float64), 1)
    h = torch.tensor([0.5, 3 * deviation, 3 * deviation, 3.1 * deviation], dtype=torch.float64)
    weighted = cross * torch.tensor([1, 1, -1, -1])
    model.far = False
    torch.testing.assert_close(model.turn(cross), (weighted - weighted.T) / (h + h.unsqueeze(1)))
    assert not adapted([0.5, 0.1 * deviation], 10**6).nearly_gaussian().any()


def test_far_from_a_solution_directions_like_noise_take_the_sign_of_the_data_unless_there_are_both_kinds():
    deviation = CONTRASTS["logcosh"].deviation / 10
    mostly_peaked = adapted([0.5, 3 * deviation, -3 * deviation, -2 * deviation], 100)
    assert mostly_peaked.signs.tolist() == [1, 1, 1, 1]
    assert adapted([-0.5, 3 * deviation, -3 * deviation, 2 * deviation], 100).signs.tolist() == [-1, -1, -1, -1]
    assert adapted([0.5, -0.4, -3 * deviation, 3 * deviation], 100).signs.tolist() == [1, -1, -1, 1]
    mostly_peaked.angle(torch.full((4, 4), 1e-2, dtype=torch.float64))
    assert mostly_peaked.signs.tolist() == [1, 1, -1, -1]


def test_steps_turn_by_a_cayley_transform_and_landing_keeps_rounding_from_adding_up():
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(5, 5, generator=generator, dtype=torch.float64)
    turn, eye = (draw - draw.T) / 20, torch.eye(5, dtype=torch.float64)
    model = model_of(eye)
    model.step(turn, 0.5)
    torch.testing.assert_close(model.X, torch.linalg.inv(eye + turn / 4) @ (eye - turn / 4))
    model.step(1e6 * turn, 1.0)
    assert float((model.X.T @ model.X - eye).norm()) < 1e-12
    model = model_of(eye.float())
    for _ in range(2000):
        model.step(turn.float(), 1.0)
        model.land()
    assert float((model.X.T @ model.X - eye).norm()) < 1e-6


@pytest.mark.parametrize("contrast", CONTRASTS)
@pytest.mark.parametrize("kind", ["super", "sub"])
def test_a_saddle_where_two_sources_are_mixed_half_and_half_is_left(kind, contrast):
    rows = independent_rows((kind, kind, "super"), 20)
    halves = torch.eye(3, dtype=torch.float64)
    halves[:2, :2] = torch.tensor([[1.0, 1.0], [-1.0, 1.0]]) / math.sqrt(2)
    model = model_of(halves, contrast)
    statistics = model.statistics(over([model.sources(rows)]))
    model.adapt(statistics)
    assert model.angle(model.turn(statistics.cross)) < 1e-10, "the gradient vanishes"
    assert model.leave_saddle(over([(rows[:3000] @ model.X).T, (rows[3000:] @ model.X).T]))
    torch.testing.assert_close(model.X.abs().round(decimals=6).sum(0), torch.ones(3, dtype=torch.float64))
    model.adapt(model.statistics(over([model.sources(rows)])))
    separated = model.X
    assert not model.leave_saddle(over([(rows @ model.X).T]))
    assert model.X is separated


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.integers(0, 1000))
def test_whitened_data_have_the_identity_as_covariance(p, seed):
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(6, 6, generator=generator, dtype=torch.float64)
    C = mixing @ mixing.T
    K, L = whitening_of(C, torch.zeros(6, dtype=torch.float64), p, torch.float64)
    torch.testing.assert_close(K.T @ L, torch.eye(p, dtype=torch.float64), atol=1e-7, rtol=0)
    torch.testing.assert_close(L, C @ K, atol=1e-7, rtol=1e-7)
    torch.testing.assert_close(K.T @ C @ K, torch.eye(p, dtype=torch.float64), atol=1e-7, rtol=0)
    captured = torch.linalg.eigvalsh(C)[-p:].sum()
    directions = torch.linalg.qr(K).Q
    assert float(torch.trace(directions.T @ C @ directions)) == pytest.approx(float(captured), rel=1e-6)


def test_directions_without_variance_are_not_whitened():
    C = torch.diag(torch.tensor([4.0, 1.0, 0.0], dtype=torch.float64))
    mean = torch.ones(3, dtype=torch.float64)
    assert numerical_rank(torch.linalg.eigvalsh(C), torch.float32) == 2
    assert whitening_of(C, mean, None, torch.float32).matrix.shape == (3, 2)
    with pytest.raises(
        ValueError, match=r"vary in 2 independent directions only.*n_components=3; give n_components <= 2"
    ):
        whitening_of(C, mean, 3, torch.float32)
    with pytest.raises(ValueError, match="the data do not vary"):
        whitening_of(C * 0, mean, None, torch.float32)


@pytest.mark.parametrize("rank", [4, 5])
def test_whitening_is_exact_at_any_scales_also_of_features_that_repeat_others(rank):
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(50, rank, generator=generator, dtype=torch.float64)
    rows = rows @ torch.randn(rank, 5, generator=generator, dtype=torch.float64)
    scale = torch.tensor([1.0, 1e-12, 1e12, 1e-3, 1e8], dtype=torch.float64)
    rows = (rows - rows.mean(0)) * scale
    for p in (None, 3):
        K, L = whitening_of(rows.T @ rows / 50, rows.mean(0), p, torch.float64)
        Z = rows @ K
        torch.testing.assert_close(Z.T @ Z / 50, torch.eye(K.shape[1], dtype=torch.float64), atol=1e-6, rtol=0)
        if p is None:
            assert K.shape == (5, rank)
            torch.testing.assert_close(Z @ L.T / scale, rows / scale, atol=1e-6, rtol=0)


def test_a_deviation_of_a_rounding_of_the_mean_is_none():
    deviations = torch.tensor([1.0, 1e-7, 1e-5], dtype=torch.float64)
    C, mean = torch.diag(deviations.square()), torch.full((3,), 2.0, dtype=torch.float64)
    assert not whitening_of(C, mean, None, torch.float32).matrix[1].any()
    assert whitening_of(C, mean, None, torch.float32).matrix.shape == (3, 2)
    assert whitening_of(C, mean, None, torch.float64).matrix.shape == (3, 3)


def test_negentropy_is_larger_for_sources_than_for_their_mixtures():
    rows = independent_rows(("super", "sub"))
    turned = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64) / math.sqrt(2)
    model = model_of(torch.eye(2, dtype=torch.float64))
    found = model.negentropy(over(rows.T.split(300, 1)))
    assert found > 2 * model.negentropy(over([(rows @ turned).T]))
    literal = (np.log(np.cosh(rows.numpy())).mean(0) - CONTRASTS["logcosh"].gaussian) ** 2
    assert found == pytest.approx(literal.sum())
