"""Pieces of data side by side: the same results whatever the number of threads, and nothing left behind."""

import threading
import warnings

import numpy as np
import pytest
import torch
from sources import mixture

from glideslope.estimators import OnlineICA, OnlinePCA
from glideslope.streams.moments import Moments
from glideslope.streams.threads import IN_A_ROW, LEAST_PIECES, side_by_side

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

    pieces = range(6 * IN_A_ROW * threads)
    with side_by_side(CPU, len(pieces)) as apply:
        found = list(apply(work, pieces))
    assert found == [(piece, 1) for piece in pieces]
    assert torch.get_num_threads() == threads


def test_few_pieces_and_other_devices_need_no_thread():
    torch.set_num_threads(2)
    for device, pieces in ((CPU, LEAST_PIECES - 1), (torch.device("meta"), 50)):
        with side_by_side(device, pieces) as apply:
            found = list(apply(lambda _: threading.current_thread(), range(pieces)))
            assert torch.get_num_threads() == 2
        assert set(found) == {threading.current_thread()}


def test_an_error_is_that_of_the_first_piece_and_threads_are_as_before():
    torch.set_num_threads(2)

    def work(piece):
        if piece >= 2:
            raise ValueError(f"piece {piece}")
        return piece

    with pytest.raises(ValueError, match="piece 2"), side_by_side(CPU, 50) as apply:
        list(apply(work, range(50)))
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("make", [lambda: OnlineICA(random_state=0), lambda: OnlinePCA(3, random_state=0)])
def test_a_fit_does_not_depend_on_the_number_of_threads(make, tmp_path):
    data = mixture(8, 700_000, kinds=("laplace", "uniform"))[0].astype(np.float32)
    np.save(tmp_path / "rows.npy", data)
    for rows in (data, np.load(tmp_path / "rows.npy", mmap_mode="r")):
        fitted = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            fitted.append(make().fit(rows))
        for other in fitted[1:]:
            np.testing.assert_array_equal(other.components_, fitted[0].components_)
    data[690_000, 2] = data[500_000, 5] = np.nan
    with pytest.raises(ValueError, match="row 500000, column 5"):
        make().fit(data)


@pytest.mark.parametrize(
    "make", [lambda: OnlineICA(2, random_state=0, max_iter=1), lambda: OnlinePCA(n_components=0.5)]
)
def test_many_features_have_one_scatter_matrix_and_not_one_for_every_piece(make, monkeypatch):
    torch.set_num_threads(2)
    made = []
    plain = Moments.__init__
    monkeypatch.setattr(Moments, "__init__", lambda self, *a, **k: made.append(k["covariance"]) or plain(self, *a, **k))
    data = np.random.default_rng(0).standard_normal((9000, 520)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        make().fit(data)
    assert sum(made) <= 2  # that of the stream and that of the data
