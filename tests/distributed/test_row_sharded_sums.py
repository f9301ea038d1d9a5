"""minimize with the rows of X, and the columns of the data, on several ranks."""

import pytest
import torch
from distributed.launch import on_one_rank, run_on
from distributed.minimizing import minimized
from distributed.sums import DATA, PROBLEMS, WAYS
from distributed.together import QUICK

import glideslope as gs
from glideslope.stiefel.geometry import gaussian_rows

pytestmark = pytest.mark.filterwarnings("default")  # torchrun's own, in this process


@pytest.mark.xdist_group("two ranks")
def test_minimize_with_rows_on_two_ranks_finds_what_one_rank_finds(on_two_ranks, tmp_path):
    assert_as_on_one_rank(on_two_ranks["minimize"], QUICK["minimize"], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 4])
def test_minimize_of_every_kind_with_rows_on_ranks_finds_what_one_rank_finds(ranks, tmp_path):
    (tmp_path / "many").mkdir()
    assert_as_on_one_rank(run_on(ranks, minimized, tmp_path / "many", list(WAYS)), list(WAYS), tmp_path)


def assert_as_on_one_rank(found, ways, folder):
    """The start is drawn in blocks of rows, so it is not that of a matrix in one place: compare with one rank."""
    one = on_one_rank(minimized, folder, ways)
    assert_one_rank_does_what_one_place_does(one)
    n, ranks = DATA.shape[1], len(found)
    for rank, result in enumerate(found):
        for way in ways:
            for name in PROBLEMS:
                X, value, _, far, reason, steps, local = result[way, name]
                expected = one[way, name]
                assert (X - expected[0]).norm() <= 1e-10 * expected[0].norm(), (way, name)
                assert value == pytest.approx(expected[1], rel=1e-11)
                assert (reason, steps) == expected[4:6]
                assert far <= 0.5
                size = -(-n // ranks)
                assert local == (min(size, max(n - rank * size, 0)), 3)
        assert result["many rows"] < 8 * 3000 * 3 / 10  # what is sent is N x p or p x p, far below n x p
        assert (result["start"] - one["start"]).norm() <= 1e-11
        uninterrupted, again, damaged = result["stopped"]
        assert torch.equal(uninterrupted, again)
        assert f"run{ranks}.0-of-{ranks}' cannot be read" in damaged
        other_data, other_start, same = result["another problem"]
        assert f"own{ranks}.{rank}-of-{ranks}' is of another problem: the value of f next to X0 was" in other_data
        assert "is of a run with X0='SHA-256" in other_start
        assert same
        messages = result["messages"]
        assert f"seed is 0 on rank 0 and 1 on rank {ranks - 1} of the group" in messages["seed"]
        assert f"the shape of X is (23, 3) on rank 0 and (23, 4) on rank {ranks - 1}" in messages["shape"]
        assert "rows on many ranks need method='landing'" in messages["method"]
        assert "give step_size as a number" in messages["theory"]
        assert "must be finite, without NaN or infinity; got 1 entries" in messages["finite"]
        assert "placed as Shard(1)" in messages["placement"]
        assert "the problem must be a sum over rows of data" in messages["function"]
        assert "X0 must be one too" in messages["plain"]


def assert_one_rank_does_what_one_place_does(one):
    X0 = gs.random_stiefel(DATA.shape[1], 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    whole = gs.minimize(PROBLEMS["pca"](lambda data: data), X0, step_size=0.05, max_epochs=4).X
    assert (one["start"] - whole).norm() <= 1e-12
    if ("auto", "pca") in one:
        solution = gs.minimize(PROBLEMS["pca"](lambda data: data), **WAYS["auto"])
        assert one["auto", "pca"][1] == pytest.approx(solution.value, rel=1e-6)


def test_the_rows_of_a_random_start_depend_on_their_positions_alone():
    whole = gaussian_rows(slice(0, 5000), 2, 3, torch.float64)
    assert torch.equal(gaussian_rows(slice(1000, 1030), 2, 3, torch.float64), whole[1000:1030])
    assert torch.equal(gaussian_rows(slice(2048, 5000), 2, 3, torch.float64), whole[2048:])
    assert gaussian_rows(slice(7, 7), 2, 3, torch.float64).shape == (0, 2)
    assert not torch.equal(gaussian_rows(slice(0, 10), 2, 4, torch.float64), whole[:10])
