"""Newton steps on samples, whole data and streams: all end at the solution that FastICA finds too."""

import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import FastICA
from sources import amari_distance, mixture

from glideslope.solve.rows import Rows
from glideslope.stiefel.points import random_stiefel
from glideslope.streams import ica_passes
from glideslope.streams.ica_contrast import CONTRASTS
from glideslope.streams.ica_passes import Descent, length_of_step, sample, separate, solve_sample
from glideslope.streams.ica_rotation import Unmixing
from glideslope.streams.ica_stream import SourceStream
from glideslope.streams.moments import Moments
from glideslope.streams.whitening import whitening_of


def separated(data, *, tolerance=1e-5, max_passes=200):
    rows = Rows(data)
    n = rows.shape[1]
    moments = Moments(n, covariance=True)
    moments.update(rows.take(slice(None)))
    K = whitening_of(moments.covariance(), moments.mean, None, rows.dtype).matrix.to(rows.dtype)
    X = random_stiefel(n, n, generator=torch.Generator().manual_seed(0), dtype=rows.dtype)
    model = Unmixing(moments.mean.to(rows.dtype), K, X, CONTRASTS["logcosh"])
    seen = []
    found = separate(model, rows, tolerance=tolerance, max_passes=max_passes, report=lambda *state: seen.append(state))
    return found, seen


@pytest.mark.parametrize("kinds", [("laplace",), ("laplace", "uniform")])
@pytest.mark.parametrize("rows", [3000, 20_000])
def test_the_solution_is_that_of_fastica(rows, kinds):
    data, _ = mixture(6, rows, kinds=kinds)
    found, seen = separated(data)
    assert found.ending == "converged"
    assert seen[-1] == (len(seen), found.angle)
    fast = FastICA(whiten="unit-variance", tol=1e-12, max_iter=1000, random_state=0).fit(data).components_
    assert amari_distance(found.model.unmixing.T.numpy() @ np.linalg.inv(fast)) < 1e-4


def test_samples_save_passes_over_all_rows(monkeypatch):
    data, _ = mixture(6, 40_000)
    found, _ = separated(data, tolerance=1e-3)
    assert found.steps <= 2
    monkeypatch.setattr(ica_passes, "LARGEST_SAMPLE", 0)
    assert separated(data, tolerance=1e-3)[0].steps > 4


def test_samples_are_spread_over_all_rows_in_memory_and_in_a_file(tmp_path):
    data = np.arange(4000.0).reshape(2000, 2)
    np.save(tmp_path / "rows.npy", data)
    for given in (data, np.load(tmp_path / "rows.npy", mmap_mode="r")):
        found = sample(Rows(given), 128)
        assert 128 <= len(found) <= 140
        assert len(set(found[:, 0].tolist())) == len(found)
        np.testing.assert_allclose(np.quantile(found[:, 0], [0, 0.5, 1]), [0, 2000, 4000], atol=80)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_stops_when_rounding_keeps_the_angle_from_falling(dtype):
    found, seen = separated(mixture(4, 3000)[0].astype(dtype), tolerance=1e-30)
    assert found.ending == "rounding"
    angles = [angle for _, angle in seen]
    assert angles[-1] >= angles[-2]
    assert angles[-1] < 100 * np.finfo(dtype).eps


def white(data):
    Z = torch.from_numpy(data.T - data.mean(0)[:, None])
    return torch.linalg.cholesky(torch.cov(Z, correction=0)).inverse() @ Z


def model_from(X):
    return Unmixing(X.new_zeros(len(X)), torch.eye(len(X), dtype=torch.float64), X, CONTRASTS["logcosh"])


def test_newton_steps_on_some_rows_are_those_on_rows_that_are_white_by_themselves():
    """With signs that differ, the noise of the covariance of few rows would not cancel in a turn."""
    noisy = white(mixture(6, 2000, kinds=("laplace", "uniform"))[0])
    for columns in (noisy, torch.linspace(0.9, 1.1, 6, dtype=torch.float64).unsqueeze(1) * noisy):
        model = model_from(random_stiefel(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
        solve_sample(model, columns, 1e-9, from_anywhere=True)
        Y = model.X.T @ noisy
        found = model.turn(Y @ torch.tanh(Y).T / 2000)
        assert model.angle(found) < 1e-8


def saddle():
    """White columns of two independent sources, and the rotation in which both are mixed half and half."""
    Z = torch.distributions.Laplace(0.0, 1.0).icdf((torch.arange(60, dtype=torch.float64) + 0.5) / 60)
    Z = torch.cartesian_prod(Z, Z).T / Z.square().mean().sqrt()
    return Z, torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64) / math.sqrt(2)


def test_newton_steps_on_some_rows_do_not_end_at_a_saddle():
    Z, halves = saddle()
    model = model_from(halves)
    solve_sample(model, Z, 1e-6, from_anywhere=True)
    torch.testing.assert_close(model.X.abs().sort(0).values, torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())


def test_from_a_solution_a_look_at_saddles_is_saved_unless_sources_look_gaussian(monkeypatch):
    looks = []
    monkeypatch.setattr(Unmixing, "leave_saddle", lambda *_: looks.append(1) and False)
    for kind, expected in (("laplace", 0), ("gaussian", 1)):
        generator = np.random.default_rng(0)
        Z = white(generator.laplace(size=(2000, 3)) if kind == "laplace" else generator.standard_normal((2000, 3)))
        model = model_from(torch.eye(3, dtype=torch.float64))
        sweep = lambda work, model=model, Z=Z: [work(model.X.T @ Z)]  # noqa: E731
        Descent(model, sweep, 1.0, 40, from_anywhere=False).run()
        assert len(looks) == expected
        looks.clear()


def test_it_stops_after_the_passes_allowed_and_says_so():
    data, _ = mixture(6, 2000)
    found, _ = separated(data, tolerance=1e-9, max_passes=3)
    assert (found.ending, found.steps) == ("limit", 3)


def test_steps_are_as_long_as_the_last_two_turns_say():
    turn = torch.tensor([[0.0, 0.1], [-0.1, 0.0]])
    assert length_of_step(turn, turn * 0, 1.0) == pytest.approx(1.0)
    assert length_of_step(turn, turn * 0.5, 1.0) == pytest.approx(2.0)
    assert length_of_step(turn, turn * -0.5, 1.0) == pytest.approx(1 / 1.5)
    assert length_of_step(turn, turn * 0.99, 1.0) == ica_passes.LONGEST
    assert length_of_step(turn, turn * -9, 1.0) == ica_passes.SHORTEST
    assert length_of_step(turn, turn * 2, 3.0) == 1.0


def test_sources_that_depend_on_each_other_are_found_in_few_steps():
    """Sources with a common scale, as in recordings: full Newton steps would go back and forth for ever."""
    steps = []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        data = generator.laplace(size=(5000, 8)) * generator.gamma(0.3, size=(5000, 1))
        found, _ = separated(data @ generator.standard_normal((8, 8)), tolerance=1e-4)
        assert found.ending == "converged"
        steps.append(found.steps)
    assert np.mean(steps) < 25


@pytest.mark.parametrize("size", [1, 37, 5000])
def test_one_pass_over_a_stream_is_as_close_to_the_sources_as_the_whole_data(size):
    N = 3000 if size == 1 else 30_000
    data, mixing = mixture(4, N, seed=1)
    found, _ = separated(data)
    stream = SourceStream(
        4, None, contrast=CONTRASTS["logcosh"], generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    for batch in torch.from_numpy(data).split(size):
        stream.update(batch)
    stream.finish()
    whole = amari_distance(found.model.unmixing.T.numpy() @ mixing)
    assert amari_distance(np.asarray(stream.model.unmixing.T) @ mixing) < 1.25 * whole


def test_a_new_whitening_keeps_the_sources_of_a_stream():
    data, _ = mixture(3, 20_000)
    stream = SourceStream(
        3, 3, contrast=CONTRASTS["logcosh"], generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    for batch in torch.from_numpy(data).split(500):
        stream.update(batch)
    before = torch.as_tensor(stream.model.unmixing.copy())
    turned = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))).Q
    turned = turned.numpy()
    stream.model.whitening, stream.model.X = stream.model.whitening @ turned, turned.T @ stream.model.X
    assert stream._whiten()
    torch.testing.assert_close(torch.as_tensor(stream.model.unmixing), before, rtol=1e-2, atol=1e-2)
    covariance = stream.moments.covariance()
    K = torch.as_tensor(stream.model.whitening)
    torch.testing.assert_close(K.T @ covariance @ K, torch.eye(3, dtype=torch.float64))
