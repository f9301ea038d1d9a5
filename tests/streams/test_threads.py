"""Pieces of data side by side: the same results whatever the number of threads, and nothing left behind."""

import threading

import numpy as np
import pytest
import torch
from sources import mixture

from glideslope.estimators import OnlineICA, OnlinePCA
from glideslope.streams.threads import side_by_side

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _threads_as_before():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("threads", [1, 3])
def test_results_come_in_order_from_threads_that_compute_with_one_each(threads):
    torch.set_num_threads(threads)
    meeting = threading.Barrier(threads)

    def work(piece):
        meeting.wait(timeout=30)  # passes only if so many pieces are worked on at the same time
        return piece, torch.get_num_threads()

    with side_by_side(CPU, 6) as apply:
        found = list(apply(work, range(6)))
    assert found == [(piece, 1) for piece in range(6)]
    assert torch.get_num_threads() == threads


def test_one_piece_and_other_devices_need_no_thread():
    torch.set_num_threads(2)
    for device, pieces in ((CPU, 1), (torch.device("meta"), 5)):
        with side_by_side(device, pieces) as apply:
            found = list(apply(lambda _: threading.current_thread(), range(pieces)))
        assert set(found) == {threading.current_thread()}


def test_an_error_is_that_of_the_first_piece_and_threads_are_as_before():
    torch.set_num_threads(2)

    def work(piece):
        if piece >= 2:
            raise ValueError(f"piece {piece}")
        return piece

    with pytest.raises(ValueError, match="piece 2"), side_by_side(CPU, 5) as apply:
        list(apply(work, range(5)))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("make", [lambda: OnlineICA(random_state=0), lambda: OnlinePCA(3, random_state=0)])
def test_a_fit_does_not_depend_on_the_number_of_threads(make, tmp_path):
    data = mixture(8, 70_000, kinds=("laplace", "uniform"))[0].astype(np.float32)
    np.save(tmp_path / "rows.npy", data)
    fitted = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        fitted.append(make().fit(data))
    for other in fitted[1:]:
        np.testing.assert_array_equal(other.components_, fitted[0].components_)
    mapped = make().fit(np.load(tmp_path / "rows.npy", mmap_mode="r"))
    np.testing.assert_allclose(np.abs(mapped.components_), np.abs(fitted[0].components_), rtol=0.1, atol=0.05)
    data[69_000, 2] = data[50_000, 5] = np.nan
    with pytest.raises(ValueError, match="row 50000, column 5"):
        make().fit(data)
