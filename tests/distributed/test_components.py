"""OnlinePCA with the features of the samples on several ranks."""

import numpy as np
import pytest
from distributed.components import (
    COMPONENTS,
    WAYS,
    WIDTH,
    exact_components,
    in_one_place,
    learnt,
    memory_of_many_features,
    samples,
)
from distributed.launch import run_on

pytestmark = pytest.mark.filterwarnings("default")  # torchrun's own, in this process


@pytest.mark.xdist_group("two ranks")
def test_features_on_two_ranks_give_the_components_of_one_place(on_two_ranks):
    for rank, found in enumerate(on_two_ranks["components"]):
        assert_as_in_one_place(found["passes"], "passes", 1e-6)
        assert_ranks_are_heard(found, rank, 2)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_every_way_to_learn_is_the_same_on_any_number_of_ranks(ranks):
    (one,) = run_on(1, learnt, list(WAYS))
    assert_as_in_one_place(one["passes"], "passes", 1e-6)
    assert_as_in_one_place(one["alike"], "alike", 1e-12)
    for rank, found in enumerate(run_on(ranks, learnt, list(WAYS))):
        assert_ranks_are_heard(found, rank, ranks)
        for way in WAYS:
            for name, expected in one[way].items():
                np.testing.assert_allclose(found[way][name], expected, rtol=1e-9, atol=1e-9, err_msg=f"{way}, {name}")


def assert_as_in_one_place(found, way, close):
    whole = in_one_place(way)
    for name in ("components_", "mean_", "explained_variance_", "transform", "inverse", "score"):
        np.testing.assert_allclose(found[name], whole[name], rtol=close, atol=close, err_msg=name)


def assert_ranks_are_heard(found, rank, ranks):
    size = -(-WIDTH // ranks)
    held = min(size, max(WIDTH - rank * size, 0))
    assert found["local"] == ((COMPONENTS, held), (held,))
    assert captured(found["unseeded"]) >= 0.99 * captured(exact_components(2)), "ranks read other samples"
    messages, last = found["messages"], ranks - 1
    assert f"n_components is 3 on rank 0 and 4 on rank {last}" in messages["parameters"]
    assert f"the shape of X is (100, 23) on rank 0 and (101, 23) on rank {last}" in messages["samples"]
    assert "X must be finite, without NaN or infinity; got 1 entries" in messages["finite"]
    assert "X has 22 features, but OnlinePCA is expecting 23 features" in messages["width"]
    assert "X is in one place, but OnlinePCA has learnt from samples on many ranks" in messages["place"]
    assert "X must have its columns spread over the ranks, placed as Shard(1)" in messages["cut"]
    assert "OnlineICA takes samples in one place" in messages["ica"]
    assert found["sent"][2000] == found["sent"][8000], "what is sent does not grow with the features"
    assert found["sent"][8000][0] <= 8 * 31 * 15  # b x q or q x q numbers, q = 5 + 10


def captured(components):
    """Variance along orthonormal rows."""
    X = samples().numpy()
    np.testing.assert_allclose(components @ components.T, np.eye(len(components)), atol=1e-8)
    return np.square((X - X.mean(0)) @ components.T).sum()


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_memory_of_a_rank_is_its_share_of_the_features(ranks):
    n, p = 400_000, 20
    of_X = 4 * n * (p + 10) / ranks  # float32, with the spare directions
    for grown, data in run_on(ranks, memory_of_many_features, n, p):
        assert grown <= 8 * of_X + 2 * data, (grown / of_X, data / of_X)
