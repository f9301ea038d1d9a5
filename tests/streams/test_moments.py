"""Running mean and covariance of a stream against the literal ones."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glideslope.streams.moments import Moments


def stream_of(sizes, n=3, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(b, n, generator=generator, dtype=dtype) * 2 + torch.arange(n).to(dtype) for b in sizes]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 1000))
def test_moments_are_those_of_all_rows_however_they_are_cut_into_batches(sizes, seed):
    batches = stream_of(sizes, seed=seed)
    whole, diagonal = Moments(3, covariance=True), Moments(3, covariance=False)
    for batch in batches:
        whole.update(batch)
        diagonal.update(batch)
    rows = torch.cat(batches).numpy()
    assert whole.count == diagonal.count == len(rows)
    np.testing.assert_allclose(whole.mean, rows.mean(0), atol=1e-12)
    np.testing.assert_allclose(whole.covariance(), np.cov(rows.T, bias=True), atol=1e-12)
    np.testing.assert_allclose(diagonal.covariance(), rows.var(0), atol=1e-12)


@pytest.mark.parametrize("covariance", [True, False])
def test_merged_moments_are_those_of_all_rows(covariance):
    batches = stream_of([5, 1, 8])
    merged, updated = Moments(3, covariance=covariance), Moments(3, covariance=covariance)
    for batch in batches:
        part = Moments(3, covariance=covariance)
        part.update(batch)
        merged.merge(part)
        updated.update(batch)
    assert merged.count == updated.count
    torch.testing.assert_close(merged.mean, updated.mean)
    torch.testing.assert_close(merged.covariance(), updated.covariance())


def test_an_update_returns_rows_whose_square_is_what_the_scatter_matrix_grew_by():
    first, second = stream_of([7, 4])
    moments = Moments(3, covariance=True)
    moments.update(first)
    before = moments.scatter.clone()
    added = moments.update(second)
    assert added.shape == (5, 3)
    torch.testing.assert_close(moments.scatter - before, added.T @ added)


def test_a_large_mean_in_float32_costs_no_digits_of_the_variance():
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(2000, 4, generator=generator) + 4096
    moments = Moments(4, covariance=True)
    for batch in rows.split(100):
        moments.update(batch)
    np.testing.assert_allclose(moments.covariance(), np.cov(rows.double().numpy().T, bias=True), rtol=1e-4, atol=1e-4)


def test_with_a_weight_a_batch_replaces_that_share_of_the_past():
    first, second = stream_of([50, 10])
    moments = Moments(3, covariance=True, weight=0.25)
    moments.update(first)
    moments.update(second)
    torch.testing.assert_close(moments.mean, 0.75 * first.mean(0) + 0.25 * second.mean(0))
    shift = second.mean(0) - first.mean(0)
    expected = 0.75 * torch.cov(first.T, correction=0) + 0.25 * torch.cov(second.T, correction=0)
    torch.testing.assert_close(moments.covariance(), expected + 0.25 * 0.75 * torch.outer(shift, shift))


def test_a_weight_of_one_forgets_everything():
    first, second = stream_of([50, 10])
    moments = Moments(3, covariance=False, weight=1.0)
    moments.update(first)
    moments.update(second)
    torch.testing.assert_close(moments.mean, second.mean(0))
    assert moments.count == pytest.approx(10)
