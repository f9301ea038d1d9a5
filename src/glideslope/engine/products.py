"""Memory that steps reuse, and products into it."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# A Gram matrix with more columns is computed in blocks, the lower triangle by reflection: two strips up to the second
# number, quarters above. Measured in float32 on two cores: 15 % faster at 5000 x 200 and 500, 20 % at 1000 columns,
# 45 % at 4096.
GRAM_BLOCK, GRAM_STRIPS = 128, 300
# Smallest product, in multiplications, worth splitting.
LEAST_WORK = 5_000_000
# Fewest rows of a block, and fewest rows per column, when X^H Y of a tall matrix is summed over blocks of rows, two for
# each thread; a library splits the small p x p result instead. Measured, a whole step on two threads, eleven processes:
# 30000 x 50 in float32 0 to 20 % faster; 5000 x 100 from 14 % faster to 14 % slower; in float64 15 % faster.
LEAST_ROWS, ROWS_PER_COLUMN = 500, 5


def is_on_host(X: Tensor) -> bool:
    """Whether values of X can be read without waiting for a device or breaking a compiled graph."""
    return type(X) is Tensor and X.device.type == "cpu" and not torch.compiler.is_compiling()


class Pair(NamedTuple):
    """The two p x p products a step begins with: X^H X and X^H G, in the square form X X^H and G X^H."""

    gram: Tensor
    cross: Tensor
    both: Tensor | None = None
    """Both as one tensor of shape (2, *batch, p, p), where they lie so in memory."""


class Workspace:
    """Scratch of the steps of one shape: allocated by the first step, used again by the next ones.

    A compiled step has none: the compiler plans the memory.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}
        self._pair: Pair | None = None
        self.prepared: object = None
        """Memory and constants that `one_matrix` prepares once."""

    def memory(self, name: str, like: Tensor, rows: int, columns: int) -> Tensor | None:
        """Uninitialised memory of shape (*batch, rows, columns) in the type and on the device of another tensor."""
        if torch.compiler.is_compiling():
            return None
        shape = (*like.shape[:-2], rows, columns)
        kept = self._kept.get(name)
        if kept is None or kept.shape != shape or kept.dtype != like.dtype or kept.device != like.device:
            kept = self._kept[name] = like.new_empty(shape)
        return kept

    def pair(self, X: Tensor) -> Pair | None:
        """Memory for the two p x p products a step of X begins with."""
        if torch.compiler.is_compiling():
            return None
        kept, shape = self._pair, (*X.shape[:-2], X.shape[-1], X.shape[-1])
        if kept is None or kept.gram.shape != shape or kept.gram.dtype != X.dtype or kept.gram.device != X.device:
            both = X.new_empty((2, *shape))
            gram, cross = both.unbind(0)
            kept = self._pair = Pair(gram, cross, both)
        return kept


def product(left: Tensor, right: Tensor, *, out: Tensor | None) -> Tensor:
    """The product left @ right, into `out` where there is one; a compiled step may have to copy it there."""
    if out is None or torch.compiler.is_compiling():
        result = left @ right
        return result if out is None else out.copy_(result)
    multiply = torch.mm if left.ndim == 2 else torch.bmm if left.ndim == 3 else torch.matmul
    return multiply(left, right, out=out)


def cross_product(X: Tensor, Y: Tensor, *, out: Tensor | None) -> Tensor:
    """X^H Y, into `out` where there is one: on the CPU, for many rows, as a sum over blocks of them."""
    if out is None or X.ndim != 2 or X.device.type != "cpu" or X.is_complex() or torch.compiler.is_compiling():
        return product(X.mH, Y, out=out)
    blocks, n = 2 * torch.get_num_threads(), len(X)
    rows = n // blocks
    small = rows < max(LEAST_ROWS, ROWS_PER_COLUMN * X.shape[1]) or X.numel() * Y.shape[1] < LEAST_WORK
    if small or blocks == 2:
        return product(X.mH, Y, out=out)
    end = rows * blocks
    parts = torch.bmm(X[:end].view(blocks, rows, -1).mT, Y[:end].view(blocks, rows, -1))
    torch.sum(parts, 0, out=out)
    return out if end == n else out.addmm_(X[end:].mT, Y[end:])


def gram_product(X: Tensor, *, out: Tensor | None) -> Tensor:
    """X^H X, into `out` where there is one: on the CPU, for many columns, about its upper triangle only."""
    p = X.shape[-1]
    if out is None or X.ndim != 2 or p <= GRAM_BLOCK or X.device.type != "cpu":
        return cross_product(X, X, out=out)
    half = p // 2
    left, right = X[:, :half], X[:, half:]
    if p <= GRAM_STRIPS:
        cross_product(left, X, out=out[:half])
        cross_product(right, right, out=out[half:, half:])
    else:
        gram_product(left, out=out[:half, :half])
        gram_product(right, out=out[half:, half:])
        cross_product(left, right, out=out[:half, half:])
    out[half:, :half].copy_(out[:half, half:].mH)
    return out
