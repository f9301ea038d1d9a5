"""Products with rows of data less their mean, a block at a time: of dense rows, or of a sparse matrix that stays so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glideslope.solve.rows import Rows
from glideslope.streams.moments import Moments

# Blocks of this many numbers stay in the cache between being centred and being multiplied.
BLOCK_NUMBERS = 2**18


class Centred:
    """A, shape (N, n): rows less their mean. C = A^T A / N.

    Args:
        rows: The data. Products with U need them in memory, in one place.
        mean: Of the rows, shape (n,).
        device: Where to compute.
    """

    def __init__(self, rows: Rows, mean: Tensor, device: torch.device) -> None:
        self.rows, self.device = rows, device
        self.mean = mean.to(device, rows.dtype)

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Blocks of rows of A, each valid until the next one."""
        scratch: Tensor | None = None
        for where, block in self.rows.blocks(BLOCK_NUMBERS):
            block = block.to(self.device)
            scratch = torch.empty_like(block) if scratch is None else scratch
            yield where, torch.sub(block, self.mean, out=scratch[: len(block)])

    def column_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """Blocks of columns of A, for rows in memory."""
        N, n = self.rows.shape
        width = max(1, BLOCK_NUMBERS // N)
        for start in range(0, n, width):
            where = slice(start, min(start + width, n))
            yield where, self.rows.columns(where).to(self.device) - self.mean[where]

    def across(self, X: Tensor) -> Tensor:
        """A X, shape (N, q)."""
        return torch.cat([A @ X for _, A in self.blocks()])

    def down(self, U: Tensor) -> Tensor:
        """A^T U, shape (n, q)."""
        AU = torch.zeros((self.rows.shape[1], U.shape[1]), dtype=U.dtype, device=self.device)
        for where, A in self.blocks():
            AU.addmm_(A.T, U[where])
        return AU

    def covariance_times(self, X: Tensor) -> Tensor:
        """C X, in one pass over the rows; of X in rows on many ranks, those that are here."""
        transposed = X.new_zeros(X.shape[::-1])  # a product that is wide and not tall is faster by a tenth
        for _, A in self.blocks():
            transposed.addmm_(self.rows.geometry.product(A, X).T, A)
        return transposed.T.contiguous().div_(len(self.rows))

    def products_times(self, U: Tensor) -> Tensor:
        """A A^T U / N, in one pass over the columns."""
        turned, transposed = U.T.contiguous(), U.new_zeros(U.shape[::-1])
        for _, A in self.column_blocks():
            transposed.addmm_(turned @ A, A.T)
        return transposed.T.contiguous().div_(len(self.rows))

    def power(self, X: Tensor) -> Tensor:
        """X^T C X, shape (q, q), float64."""
        power = torch.zeros((X.shape[1],) * 2, dtype=torch.float64, device=X.device)
        for _, A in self.blocks():
            Y = self.rows.geometry.product(A, X).double()
            power.addmm_(Y.T, Y)
        return power / len(self.rows)

    def products(self) -> Tensor:
        """A A^T / N, shape (N, N), float64."""
        gram = torch.zeros((len(self.rows),) * 2, dtype=torch.float64, device=self.device)
        for _, A in self.column_blocks():
            wide = A.double()
            gram.addmm_(wide, wide.T)
        return gram / len(self.rows)


class SparseRows(Rows):
    """Rows of a SciPy sparse matrix. Those that are read become dense.

    Args:
        data: Matrix of shape (N, n) in CSR format, float32 or float64.
        name: What to call it in errors.
        dtype: float32 or float64, to convert it to; None means its own type.
    """

    def __init__(self, data: Any, *, name: str = "data", dtype: torch.dtype | None = None) -> None:
        finite = np.isfinite(data.data)
        if not finite.all():
            first = int(np.argmin(finite))
            row, column = np.searchsorted(data.indptr, first, side="right") - 1, data.indices[first]
            raise ValueError(
                f"{name} must be finite, without NaN or infinity; got {data.data[first]} at row {row}, column {column}"
            )
        wanted = data.dtype if dtype is None else np.dtype(str(dtype).removeprefix("torch."))
        self.matrix = data.astype(wanted, copy=False)
        self.shape, self.dtype, self.device = (
            data.shape,
            torch.from_numpy(self.matrix.data[:0]).dtype,
            torch.device("cpu"),
        )
        self.ranks = self._mean = None

    @property
    def in_memory(self) -> bool:
        """Always."""
        return True

    def _raw(self, index: Tensor | slice) -> Tensor:
        return torch.from_numpy(self.matrix[index if isinstance(index, slice) else index.numpy()].toarray())

    def moments(self, device: torch.device) -> Moments:
        """Mean and variances of the columns, from the entries that are there."""
        found, entries = Moments(self.shape[1], covariance=False, device=device), self.matrix.tocsc().astype(np.float64)
        N, mean = self.shape[0], np.asarray(entries.mean(0)).ravel()
        absent = N - np.diff(entries.indptr)
        entries.data -= np.repeat(mean, np.diff(entries.indptr))
        scatter = np.asarray(entries.power(2).sum(0)).ravel() + absent * mean**2
        found.count, found.mean, found.scatter = float(N), torch.from_numpy(mean), torch.from_numpy(scatter)
        return found


class CentredSparse(Centred):
    """The same of a sparse matrix S with A = S - 1 μ^T, which is never formed.

    Args:
        rows: The data.
        mean: μ.
        device: Where results are wanted; products are computed on the CPU.
    """

    rows: SparseRows

    def _product(self, S: Any, M: Tensor) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(S @ M.cpu().numpy())).to(self.device)

    def across(self, X: Tensor) -> Tensor:
        """S X - 1 (μ^T X)."""
        return self._product(self.rows.matrix, X).sub_(self.mean @ X)

    def down(self, U: Tensor) -> Tensor:
        """S^T U - μ (1^T U)."""
        return self._product(self.rows.matrix.T, U).sub_(torch.outer(self.mean, U.sum(0)))

    def squares(self) -> Tensor:
        """Squared lengths of the rows of A, shape (N,), float64."""
        S, mean = self.rows.matrix.astype(np.float64), self.mean.cpu().double().numpy()
        return torch.from_numpy(np.asarray(S.power(2).sum(1)).ravel() - 2 * (S @ mean) + mean @ mean)

    def covariance_times(self, X: Tensor) -> Tensor:
        """C X."""
        return self.down(self.across(X)).div_(len(self.rows))

    def products_times(self, U: Tensor) -> Tensor:
        """A A^T U / N."""
        return self.across(self.down(U)).div_(len(self.rows))

    def power(self, X: Tensor) -> Tensor:
        """X^T C X."""
        Y = self.across(X).double()
        return Y.T @ Y / len(self.rows)

    def products(self) -> Tensor:
        """A A^T / N, from S S^T."""
        S, mean = self.rows.matrix.astype(np.float64), self.mean.cpu().double().numpy()
        along = S @ mean
        gram = (S @ S.T).toarray() - along - along[:, None] + mean @ mean
        return torch.from_numpy(gram / len(self.rows)).to(self.device)
