"""Rows of data: NumPy in, NumPy out; memory maps; what is not finite is refused with its first position."""

import mmap

import numpy as np
import pytest
import torch
from solve.sums import draw

import glideslope as gs
from glideslope.solve import rows
from glideslope.solve.rows import Rows


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(rows, "BLOCK_NUMBERS", 50)


def test_blocks_cover_all_rows_once_and_in_order(small_blocks):
    data = draw(23, 7)
    found = list(Rows(data).blocks())
    assert len(found) == 4
    assert torch.equal(torch.cat([block for _, block in found]), data)
    assert [where for where, _ in found] == [slice(0, 7), slice(7, 14), slice(14, 21), slice(21, 23)]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("kind", ["torch", "numpy", "memmap", "complex"])
def test_what_is_not_finite_is_refused_with_its_first_position(kind, value, small_blocks, tmp_path):
    data = draw(23, 7).numpy()
    data[17, 4], data[17, 6], data[20, 1] = value, value, value
    if kind == "memmap":
        mapped = np.memmap(tmp_path / "data", dtype=data.dtype, mode="w+", shape=data.shape)
        mapped[:] = data
        data = mapped
    elif kind == "complex":
        data = data.astype(np.complex128)
    with pytest.raises(ValueError, match=r"data must be finite, without NaN or infinity; got .* at row 17, column 4"):
        gs.problems.PCA(torch.from_numpy(data) if kind == "torch" else data, 2)


def test_the_errors_of_procrustes_name_the_matrix():
    bad = draw(9, 3)
    bad[2, 1] = float("nan")
    with pytest.raises(ValueError, match="A must be finite, without NaN or infinity; got nan at row 2, column 1"):
        gs.problems.Procrustes(bad, draw(9, 2))
    with pytest.raises(ValueError, match="B must be finite, without NaN or infinity; got nan at row 2, column 1"):
        gs.problems.Procrustes(draw(9, 4), bad)
    with pytest.raises(ValueError, match="one finite matrix"):
        gs.problems.LinearProblem(bad)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([[1.0, 2.0]], "torch tensor or a NumPy array; got list"),
        (np.zeros(4), r"one sample per row; got shape \(4,\)"),
        (np.zeros((0, 4)), r"one sample per row; got shape \(0, 4\)"),
        (np.zeros((4, 2), dtype=np.int64), r"got torch.int64. Convert it, e.g. data.astype\(np.float32\)"),
        (torch.zeros(4, 2, dtype=torch.float16), r"got torch.float16. Convert it, e.g. data.float\(\)"),
    ],
)
def test_data_of_another_kind_is_refused_with_the_way_out(data, message):
    with pytest.raises(ValueError, match=message):
        gs.problems.PCA(data, 1)


@pytest.mark.parametrize("gradient", ["full", "minibatch", "saga", "svrg"])
def test_a_memory_map_gives_the_same_iterates_as_the_array(gradient, tmp_path, small_blocks):
    data, targets = draw(23, 7).numpy(), draw(23, 3, seed=1).numpy()
    maps = []
    for name, array in (("data", data), ("targets", targets)):
        np.save(tmp_path / f"{name}.npy", array)
        maps.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    assert isinstance(maps[0], np.memmap)
    options = {"gradient": gradient, "step_size": 0.02, "max_epochs": 6, "tolerance": 0}
    options |= {} if gradient == "full" else {"batch_size": 5}
    for make in (lambda A, B: gs.problems.Procrustes(A, B), lambda A, B: gs.problems.PCA(A, 3)):
        from_array, from_map = (gs.minimize(make(*pair), **options) for pair in ((data, targets), maps))
        assert np.array_equal(from_array.X, from_map.X)
        assert isinstance(from_map.X, np.ndarray)
        assert from_map.n_steps > 2


def test_a_memory_map_is_not_read_into_memory_and_a_tensor_is_not_copied(tmp_path):
    mapped = np.memmap(tmp_path / "data", dtype=np.float64, mode="w+", shape=(23, 7))
    mapped[:] = draw(23, 7).numpy()
    assert Rows(mapped)._map is mapped
    data = draw(23, 7)
    assert Rows(data).take(slice(None)).data_ptr() == data.data_ptr()


def test_pages_of_a_memory_map_are_dropped_and_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr("glideslope.solve.rows.MAPPED_BYTES", 0)
    data = draw(23, 7)
    np.save(tmp_path / "data.npy", data.numpy())
    for mode, can_be_dropped in (("r", True), ("c", False)):
        mapped = np.load(tmp_path / "data.npy", mmap_mode=mode)
        rows = Rows(mapped[1:])
        assert isinstance(rows._mapped, mmap.mmap) == can_be_dropped
        for _ in range(2):
            assert torch.equal(rows.take(slice(None)), data[1:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_numpy_goes_in_and_numpy_of_the_same_type_comes_out(dtype):
    data = np.random.default_rng(0).normal(size=(40, 6)).astype(dtype)
    X0 = np.eye(6, 2, dtype=dtype)
    solution = gs.minimize(gs.problems.PCA(data), X0, tolerance=1e-3)
    assert isinstance(solution.X, np.ndarray)
    assert solution.X.dtype == dtype
    assert np.array_equal(X0, np.eye(6, 2, dtype=dtype))
    assert isinstance(gs.minimize(gs.problems.LinearProblem(data[:, :3])).X, np.ndarray)
    assert isinstance(gs.minimize(lambda X: X.abs().square()[0].sum(), X0).X, np.ndarray)
    assert isinstance(gs.minimize(gs.problems.PCA(torch.from_numpy(data), 2), tolerance=1e-3).X, torch.Tensor)


def test_arrays_that_are_read_only_or_not_contiguous_are_taken_without_a_warning():
    data = np.asfortranarray(np.random.default_rng(0).normal(size=(40, 6)))
    expected = gs.minimize(gs.problems.PCA(np.ascontiguousarray(data), 2)).value
    for view in (data, data[::-1]):
        view.flags.writeable = False
        assert gs.minimize(gs.problems.PCA(view, 2)).value == pytest.approx(expected)
    assert gs.minimize(gs.problems.LinearProblem(data[:, :2])).converged
