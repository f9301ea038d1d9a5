"""Passes over data and streams: both end at the solution of the whole data, which FastICA finds too."""

import itertools
import math

import numpy as np
import pytest
import torch
from sklearn.decomposition import FastICA
from sources import amari_distance, mixture

from glideslope.solve.rows import Rows
from glideslope.stiefel.points import random_stiefel
from glideslope.streams import separation
from glideslope.streams.contrast import CONTRASTS
from glideslope.streams.moments import Moments
from glideslope.streams.separation import Separation, settle
from glideslope.streams.source_stream import SourceStream
from glideslope.streams.unmixing import Unmixing
from glideslope.streams.whitening import whitening_of


def separate(data, *, variance_reduction="saga", tolerance=1e-5, max_passes=200, rates=None, **options):
    rows = Rows(data)
    n = rows.shape[1]
    moments = Moments(n, covariance=True)
    moments.update(rows.take(slice(None)))
    generator = torch.Generator().manual_seed(0)
    K = whitening_of(moments.covariance(), moments.mean, None, rows.dtype).matrix.to(rows.dtype)
    X = random_stiefel(n, n, generator=generator, dtype=rows.dtype)
    model = Unmixing(moments.mean.to(rows.dtype), K, X, CONTRASTS["logcosh"])
    seen = []
    run = Separation(
        model,
        rows,
        variance_reduction,
        options.get("batch_size"),
        tolerance,
        max_passes,
        generator,
        lambda *state: seen.append(state),
    )
    run._rates.update(rates or {})
    return run, run.solve(), seen


@pytest.mark.parametrize("variance_reduction", ["saga", "svrg", None])
def test_the_solution_is_that_of_fastica(variance_reduction):
    data, _ = mixture(6, 20_000)
    run, converged, seen = separate(data, variance_reduction=variance_reduction)
    assert converged
    assert seen[-1] == (run.passes, run.angle)
    fast = FastICA(whiten="unit-variance", tol=1e-12, max_iter=1000, random_state=0).fit(data).components_
    assert amari_distance(run.unmixing.unmixing.T.numpy() @ np.linalg.inv(fast)) < 1e-4


def test_a_variance_reduced_pass_costs_two_passes_on_many_rows_and_many_on_few():
    few, _, _ = separate(mixture(10, 10_000)[0], max_passes=1)
    many, _, _ = separate(mixture(10, 300_000)[0], max_passes=1)
    assert few._costs["reduced"] > 20
    assert 2 < many._costs["reduced"] < 3


@pytest.mark.parametrize(("rows", "patience"), [(10_000, 13), (300_000, 1)])
def test_newton_steps_that_get_nowhere_are_left_when_they_have_cost_as_much_as_a_change(rows, patience, monkeypatch):
    """Angles that go up and down for ever: falls alone are no reason to go on."""
    run, _, _ = separate(mixture(10, rows)[0], max_passes=1)
    run.max_passes, run.passes = 100, 0
    angles = itertools.cycle([0.1, 0.143])
    monkeypatch.setattr(run.unmixing, "angle", lambda _: next(angles))
    monkeypatch.setattr(run, "_start_from_few_rows", lambda: math.inf)
    newton = []
    monkeypatch.setattr(run.unmixing, "step", lambda *_: newton.append(1))

    class Changed(Exception):
        pass

    def change(_):
        raise Changed

    monkeypatch.setattr(run, "_reduced_pass", change)
    with pytest.raises(Changed):
        run.solve()
    assert len(newton) == patience


@pytest.mark.parametrize("variance_reduction", ["saga", "svrg"])
def test_variance_reduced_passes_alone_reach_the_same_solution(variance_reduction):
    data, _ = mixture(5, 20_000)
    exact, _, _ = separate(data, variance_reduction=None)
    rates = {"newton": math.inf}
    run, converged, _ = separate(
        data, variance_reduction=variance_reduction, rates=rates, tolerance=1e-4, batch_size=200
    )
    assert converged
    difference = run.unmixing.unmixing.T.numpy() @ np.linalg.inv(exact.unmixing.unmixing.T.numpy())
    assert amari_distance(difference) < 1e-3


@pytest.mark.parametrize("variance_reduction", ["saga", "svrg"])
def test_the_mean_of_the_estimates_over_slots_is_the_gradient(variance_reduction, monkeypatch):
    """One pass with X held still, all slots once: estimates at the anchor are exact, whatever the slot."""
    data, _ = mixture(4, 1000)
    run, _, _ = separate(data, tolerance=1e-2)
    cross = run.unmixing.statistics(run.blocks()).cross
    exact = run.unmixing.turn(cross)
    turns = []
    monkeypatch.setattr(run.unmixing, "step", lambda turn, weight: turns.append(turn))
    run.variance_reduction = variance_reduction
    run._reduced_pass(cross)
    assert len(turns) == run._slots()
    for turn in turns:
        torch.testing.assert_close(turn, exact)


def test_slots_share_out_all_rows_in_memory_and_in_a_file(tmp_path):
    data = np.arange(40.0).reshape(20, 2)
    np.save(tmp_path / "rows.npy", data)
    for given in (data, np.load(tmp_path / "rows.npy", mmap_mode="r")):
        run, *_ = separate(mixture(2, 500)[0])
        run.rows = Rows(given)
        found = torch.cat([run._slot(slot, 3) for slot in range(3)])
        assert sorted(found[:, 0].tolist()) == data[:, 0].tolist()


def test_beyond_the_largest_memory_saga_becomes_svrg(monkeypatch):
    data, _ = mixture(4, 2000)
    run, *_ = separate(data)
    assert run._memory_fits()
    monkeypatch.setattr(separation, "LARGEST_MEMORY", 2000 * 4 * 8 - 1)
    assert not run._memory_fits()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_stops_when_rounding_keeps_the_angle_from_falling(dtype):
    run, converged, seen = separate(mixture(4, 3000)[0].astype(dtype), tolerance=1e-30)
    assert not converged
    assert run.at_rounding
    angles = [angle for _, angle in seen]
    assert angles[-1] >= angles[-2]
    assert angles[-1] < 100 * np.finfo(dtype).eps


def test_newton_steps_on_some_rows_are_those_on_rows_that_are_white_by_themselves():
    """With signs that differ, the noise of the covariance of few rows would not cancel in a turn."""
    data, _ = mixture(6, 2000, kinds=("laplace", "uniform"))
    Z = torch.from_numpy(data.T - data.mean(0)[:, None])
    noisy = torch.linalg.cholesky(torch.cov(Z, correction=0)).inverse() @ Z
    for columns in (noisy, torch.linspace(0.9, 1.1, 6, dtype=torch.float64).unsqueeze(1) * noisy):
        X = random_stiefel(6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        model = Unmixing(X.new_zeros(6), torch.eye(6, dtype=torch.float64), X, CONTRASTS["logcosh"])
        settle(model, columns, 1e-9)
        Y = model.X.T @ noisy
        found = model.turn(Y @ torch.tanh(Y).T / 2000)
        assert model.angle(found) < 1e-8


def test_newton_steps_on_some_rows_do_not_end_at_a_saddle():
    Z = torch.distributions.Laplace(0.0, 1.0).icdf((torch.arange(60, dtype=torch.float64) + 0.5) / 60)
    Z = torch.cartesian_prod(Z, Z).T / Z.square().mean().sqrt()
    halves = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64) / math.sqrt(2)
    model = Unmixing(Z.new_zeros(2), torch.eye(2, dtype=torch.float64), halves, CONTRASTS["logcosh"])
    settle(model, Z, 1e-6)
    torch.testing.assert_close(model.X.abs().sort(0).values, torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double())


def test_it_stops_after_the_passes_allowed_and_says_that_it_did_not_converge():
    data = np.random.default_rng(0).standard_normal((2000, 6))  # Gaussian: there is nothing to find
    run, converged, _ = separate(data, tolerance=1e-9, max_passes=7)
    assert not converged
    assert run.passes <= 8


@pytest.mark.parametrize("size", [1, 37, 5000])
def test_one_pass_over_a_stream_is_as_close_to_the_sources_as_the_whole_data(size):
    N = 3000 if size == 1 else 30_000
    data, mixing = mixture(4, N, seed=1)
    run, *_ = separate(data)
    stream = SourceStream(
        4, None, contrast=CONTRASTS["logcosh"], generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    for batch in torch.from_numpy(data).split(size):
        stream.update(batch)
    stream.finish()
    whole = amari_distance(run.unmixing.unmixing.T.numpy() @ mixing)
    assert amari_distance(stream.model.unmixing.T.numpy() @ mixing) < 1.25 * whole


def test_a_new_whitening_keeps_the_sources_of_a_stream():
    data, _ = mixture(3, 20_000)
    stream = SourceStream(
        3, 3, contrast=CONTRASTS["logcosh"], generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    for batch in torch.from_numpy(data).split(500):
        stream.update(batch)
    before = stream.model.unmixing.clone()
    turned = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))).Q
    stream.model.whitening, stream.model.X = stream.model.whitening @ turned, turned.T @ stream.model.X
    assert stream._whiten()
    torch.testing.assert_close(stream.model.unmixing, before, rtol=1e-2, atol=1e-2)
    covariance = stream.moments.covariance()
    K = stream.model.whitening
    torch.testing.assert_close(K.T @ covariance @ K, torch.eye(3, dtype=torch.float64))


def test_estimates_away_from_the_anchor_have_the_exact_gradient_as_their_mean(monkeypatch):
    data, _ = mixture(4, 1000)
    run, _, _ = separate(data, variance_reduction="svrg", tolerance=1e-2, batch_size=100)
    cross, model, turns = run.unmixing.statistics(run.blocks()).cross, run.unmixing, []
    elsewhere = random_stiefel(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def move_once(turn, weight):
        turns.append(turn)
        model.X = elsewhere

    monkeypatch.setattr(model, "step", move_once)
    monkeypatch.setattr(torch, "randperm", lambda n, generator=None: torch.tensor([0, *range(n)]))
    run._reduced_pass(cross)
    exact = model.turn(model.statistics(run.blocks()).cross)
    torch.testing.assert_close(torch.stack(turns[1:]).mean(0), exact)


@pytest.mark.parametrize("variance_reduction", ["saga", "svrg"])
def test_saga_draws_slots_with_replacement_and_svrg_each_once(variance_reduction, monkeypatch):
    data, _ = mixture(3, 4000)
    run, _, _ = separate(data, variance_reduction=variance_reduction, tolerance=1e-2)
    drawn, slot = [], run._slot
    monkeypatch.setattr(run, "_slot", lambda number, slots: drawn.append(number) or slot(number, slots))
    run._reduced_pass(run.unmixing.statistics(run.blocks()).cross)
    assert (len(set(drawn)) == len(drawn)) == (variance_reduction == "svrg")
