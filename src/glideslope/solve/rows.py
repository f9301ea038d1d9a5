"""Rows of data that a problem is a sum over: a torch tensor, a NumPy array, or a memory map larger than memory."""

from __future__ import annotations

import copy
import mmap
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glideslope.ranks.columns import ColumnRanks, column_ranks
from glideslope.ranks.dtensors import is_sharded, local_part
from glideslope.ranks.sums import summed
from glideslope.stiefel.geometry import InRows, Whole

# A pass over the data reads blocks of about this many numbers.
BLOCK_NUMBERS = 2**22
# Pages of a memory map are given back after this many bytes were read from it.
MAPPED_BYTES = 2**26


def as_tensor(array: np.ndarray) -> Tensor:
    """A NumPy array as a tensor that shares its memory where it can; read-only arrays too, as nothing writes here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not writable", category=UserWarning)
        return torch.from_numpy(np.ascontiguousarray(array))


class Rows:
    """The rows of a matrix, read by index or in blocks; NaN and infinity are refused with their first position.

    Args:
        data: Matrix of shape (N, n): a floating or complex torch tensor, a DTensor whose columns are on many ranks, or
            a NumPy array or memory map.
        name: What to call it in errors.
        dtype: float32 or float64, to convert rows to as they are read; None means that of the data.
        checked: The caller sees to it that all entries are finite.
    """

    def __init__(
        self,
        data: Any,
        *,
        name: str = "data",
        dtype: torch.dtype | None = None,
        checked: bool = False,
    ) -> None:
        self.from_numpy = isinstance(data, np.ndarray)
        if not self.from_numpy and not isinstance(data, Tensor):
            raise ValueError(f"{name} must be a torch tensor or a NumPy array; got {type(data).__name__}")
        if data.ndim != 2 or 0 in data.shape:
            raise ValueError(f"{name} must be a matrix, one sample per row; got shape {tuple(data.shape)}")
        self.ranks: ColumnRanks | None = column_ranks(data, name) if is_sharded(data) else None
        whole_shape = data.shape
        data = local_part(data) if self.ranks is not None else data
        if self.from_numpy and not isinstance(data, np.memmap):
            data = as_tensor(data)
        self._map: np.ndarray | None = data if isinstance(data, np.memmap) else None
        self._tensor: Tensor | None = None if self._map is not None else data.detach()
        sample = torch.from_numpy(np.array(data[:1])) if self._map is not None else data
        self.dtype, self.device = dtype or sample.dtype, sample.device
        if self.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
            raise ValueError(
                f"{name} must be float32, float64, complex64 or complex128; got {self.dtype}. "
                f"Convert it, e.g. {name}.{'astype(np.float32)' if self.from_numpy else 'float()'}"
            )
        self.shape = (int(whole_shape[0]), int(whole_shape[1]))
        self._mapped, self._read = shared_mapping(data), 0
        self._mean: Tensor | None = None
        if not checked:
            self._refuse_what_is_not_finite(name)

    def _refuse_what_is_not_finite(self, name: str) -> None:
        if self.ranks is None:
            for where, block in self.blocks():
                refuse_what_is_not_finite(block, name, where.start)
            return
        (bad,) = summed([torch.isfinite(self.take(slice(None))).logical_not().sum()], self.ranks.groups)
        if bool(bad):
            raise ValueError(f"{name} must be finite, without NaN or infinity; got {int(bad)} entries that are not")

    def centred(self, mean: Tensor) -> Rows:
        """The same rows with a mean, shape (n,), subtracted as they are read."""
        rows = copy.copy(self)
        rows._mean = mean.to(self.dtype).to(self.device)
        return rows

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def geometry(self) -> Whole:
        """Where the columns of the data are, and with them the rows of X."""
        return Whole() if self.ranks is None else InRows(self.ranks.groups, self.shape[1])

    @property
    def in_memory(self) -> bool:
        """Whether rows far from each other are as fast to read as neighbours."""
        return self._tensor is not None

    def take(self, index: Tensor | slice) -> Tensor:
        """The rows of an index tensor or of a slice, on the data's device."""
        rows = self._raw(index).to(self.dtype)
        return rows if self._mean is None else rows - self._mean

    def columns(self, where: slice) -> Tensor:
        """Some columns of all rows, which have to be in memory."""
        assert self._tensor is not None
        return self._tensor[:, where].to(self.dtype)

    def _raw(self, index: Tensor | slice) -> Tensor:
        if self._tensor is not None:
            return self._tensor[index] if isinstance(index, slice) else self._tensor.index_select(0, index)
        assert self._map is not None
        chosen = index if isinstance(index, slice) else index.numpy()
        rows = np.array(self._map[chosen])
        self._read += rows.nbytes
        if self._mapped is not None and self._read > MAPPED_BYTES:
            self._mapped.madvise(mmap.MADV_DONTNEED)
            self._read = 0
        return torch.from_numpy(rows)

    def blocks(self, numbers: int | None = None) -> Iterator[tuple[slice, Tensor]]:
        """All rows in order, in blocks of about `numbers` numbers, each with its slice. Default: `BLOCK_NUMBERS`."""
        return ((where, self.take(where)) for where in self.slices(numbers))

    def slices(self, numbers: int | None = None) -> list[slice]:
        """Where the blocks are."""
        # The same on all ranks, which have to go through the blocks together.
        ranks = 1 if self.ranks is None else self.ranks.n_ranks
        step = max(1, (numbers or BLOCK_NUMBERS) * ranks // self.shape[1])
        return [slice(start, min(start + step, self.shape[0])) for start in range(0, self.shape[0], step)]


def refuse_what_is_not_finite(block: Tensor, name: str, first_row: int = 0) -> None:
    """A ValueError with the first position of a NaN or an infinity, if there is one.

    Args:
        block: Rows.
        name: What to call them.
        first_row: Number of the first of them.
    """
    if bool(torch.isfinite(block.sum())):  # a sum that overflows is looked at more closely
        return
    finite = torch.isfinite(block)
    if not bool(finite.all()):
        row, column = (int(i) for i in (~finite).nonzero()[0])
        value = block[row, column].item()
        raise ValueError(
            f"{name} must be finite, without NaN or infinity; got {value} at row {first_row + row}, column {column}"
        )


def shared_mapping(data: Any) -> mmap.mmap | None:
    """The mapping under a memory map whose pages can be dropped and read again: not of a private copy.

    Pages that were read count as memory of the process until they are dropped.
    """
    if not isinstance(data, np.memmap) or data.mode not in ("r", "r+") or not hasattr(mmap, "MADV_DONTNEED"):
        return None
    base: Any = data
    while base is not None and not isinstance(base, mmap.mmap):
        base = base.base if isinstance(base, np.ndarray) else None
    return base
