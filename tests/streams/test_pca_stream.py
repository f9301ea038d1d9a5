"""The subspace of a stream: inside the safe region whatever comes, and near the leading eigenvectors in the end."""

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import glideslope as gs
from glideslope.streams.pca_stream import SPARE, Subspace


def follow(batches, p, *, weight=None, dtype=torch.float64):
    stream = Subspace(batches[0].shape[1], p, weight=weight, generator=torch.Generator().manual_seed(0), dtype=dtype)
    for batch in batches:
        stream.update(batch)
    return stream


def rows_of(N, spread, *, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(N, len(spread), generator=generator, dtype=torch.float64).mul(spread).add(3).to(dtype)


SCALES = [0.0, 1e-30, 1e-6, 1.0, 1e6, 1e15]
SPREAD = torch.cat([torch.tensor([9.0, 7, 5, 4]), torch.full((36,), 1.0)]).double()


@pytest.mark.parametrize("size", [1, 3, 50, 700])
def test_one_pass_finds_the_leading_directions_with_batches_of_any_size(size):
    rows = rows_of(3000, SPREAD)
    directions, variances = follow(rows.split(size), 4).ordered()
    exact = np.linalg.eigvalsh(np.cov(rows.numpy().T, bias=True))[::-1]
    centred = rows - rows.mean(0)
    captured = (centred @ directions).square().mean(0)
    assert float(captured.sum()) > 0.995 * exact[:4].sum()
    torch.testing.assert_close(directions.T @ directions, torch.eye(4, dtype=torch.float64))
    np.testing.assert_allclose(variances, exact[:4], rtol=0.05)
    assert (variances.diff() <= 0).all()


def test_the_running_power_is_that_of_the_covariance_in_the_turned_basis():
    rows = rows_of(4000, SPREAD)
    stream = follow(rows.split(100), 4)
    C = torch.cov(rows.T, correction=0)
    exact = stream.X.T @ C @ stream.X
    assert stream.X.shape == (40, 4 + SPARE)
    assert float((stream.power - exact).norm() / exact.norm()) < 0.02


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 12), st.sampled_from([0.0, 1e-30, 1e-6, 1.0, 1e6, 1e15])), min_size=1, max_size=8
    ),
    st.sampled_from([torch.float32, torch.float64]),
    st.integers(1, 6),
)
def test_zeros_and_sudden_changes_of_scale_break_nothing(batches, dtype, p):
    generator = torch.Generator().manual_seed(1)
    stream = follow(
        [torch.randn(b, 6, generator=generator).mul(scale).to(dtype) for b, scale in batches], p, dtype=dtype
    )
    if stream.X is not None:
        assert torch.isfinite(stream.X).all()
        assert torch.isfinite(stream.power).all()
        assert float(gs.formulas.distance(stream.X)) <= 0.5


def test_with_a_weight_the_subspace_follows_data_that_turn():
    early, late = rows_of(2000, SPREAD), rows_of(2000, SPREAD.flip(0), seed=1)
    batches = [*early.split(50), *late.split(50)]
    alike, forgetting = (follow(batches, 4, weight=weight).ordered()[0] for weight in (None, 0.05))
    late = late - late.mean(0)
    best = float(late.square().mean(0).topk(4).values.sum())
    assert float((late @ forgetting).square().mean(0).sum()) > 0.97 * best
    assert float((late @ alike).square().mean(0).sum()) < 0.97 * best


def test_a_pickled_stream_goes_on_as_the_original():
    batches = rows_of(600, SPREAD).split(50)
    stream = follow(batches[:6], 3)
    copy = pickle.loads(pickle.dumps(stream))
    for batch in batches[6:]:
        stream.update(batch)
        copy.update(batch)
    assert torch.equal(stream.X, copy.X)
