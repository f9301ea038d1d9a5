"""Views: how the tensor of a parameter is read as a batch of tall matrices, named by strings so that groups pickle.

A wide matrix is constrained on its transpose. Flattened dimensions are taken in the order they lie in memory, so that
the matrices share the storage of the parameter in any dense format; orthonormality does not depend on that order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

ACCEPTED = "'matrix', 'conv', 'grouped_conv:G', 'split:K' or 'split_columns:K' with whole numbers G and K >= 1"


def default_view(ndim: int) -> str | None:
    """View of a tensor nobody described: "matrix" for 2 or 3 dimensions, None (ambiguous) for any other number."""
    return "matrix" if ndim in (2, 3) else None


def matrix_shape(shape: Sequence[int], view: str) -> tuple[int, ...]:
    """Shape (n, p) or (batch, n, p), n >= p, of the matrices a tensor of the given shape is read as.

    Args:
        shape: Shape of the tensor.
        view: "matrix": the last two dimensions, all in front of them is the batch. "conv": a kernel flattened to
            dimension 0 x the rest. "grouped_conv:G": a kernel as G such matrices, dimension 0 cut into G blocks.
            "split:K": two dimensions, the first cut into K blocks. "split_columns:K": the second cut into K blocks.
    """
    *batch, rows, columns = flattened_shape(shape, view)
    return (*batch, max(rows, columns), min(rows, columns))


def as_matrices(tensor: Tensor, view: str, *, strides_of: Tensor | None = None) -> Tensor:
    """Tall matrices of shape matrix_shape(tensor.shape, view); in the tensor's own storage where its strides allow.

    They always do for a contiguous or channels-last parameter. Where they do not, the result is a copy, and
    `copy_matrices_` writes it back.

    Args:
        tensor: Parameter, gradient or buffer.
        view: See `matrix_shape`.
        strides_of: Parameter whose memory order decides the order of the entries: pass it with a gradient, which may
            lie in memory in another order.
    """
    alike = strides_of is None or strides_of.shape == tensor.shape
    if view == "matrix" and tensor.ndim == 2 and tensor.numel() and alike:  # the common case, in one operation or none
        return tensor.mT if tensor.shape[0] < tensor.shape[1] else tensor
    flat = flattened_shape(tensor.shape, view)
    matrices = tensor.permute(memory_order(tensor, view, strides_of)).reshape(flat)
    return matrices.mT if flat[-2] < flat[-1] else matrices


def copy_matrices_(tensor: Tensor, matrices: Tensor, view: str, *, strides_of: Tensor | None = None) -> Tensor:
    """Write matrices, as `as_matrices` with the same arguments gives them, into the tensor, whatever its strides.

    Rounds once to the type of the tensor.
    """
    flat = flattened_shape(tensor.shape, view)
    order = memory_order(tensor, view, strides_of)
    untransposed = matrices.mT if flat[-2] < flat[-1] else matrices
    permuted = untransposed.reshape([tensor.shape[dim] for dim in order])
    # Tensor.copy_ wants the real device even of fake tensors; the foreach one does not.
    torch._foreach_copy_([tensor.permute(order)], [permuted])
    return tensor


def flattened_shape(shape: Sequence[int], view: str) -> tuple[int, ...]:
    """Shape (rows, columns) or (batch, rows, columns) before wide matrices are transposed."""
    kind, blocks = parse(view)
    shape = tuple(shape)
    if kind == "matrix" and len(shape) < 2:
        raise ValueError(f"view {view!r} needs 2 dimensions or more, (*batch, n, p); got shape {shape}")
    if kind in ("conv", "grouped_conv") and len(shape) < 3:
        raise ValueError(f"view {view!r} needs a kernel of 3 dimensions or more, (out, in, *kernel); got shape {shape}")
    if kind in ("split", "split_columns") and len(shape) != 2:
        expected = "(blocks * n, p)" if kind == "split" else "(n, blocks * p)"
        raise ValueError(f"view {view!r} needs 2 dimensions, {expected}; got shape {shape}")
    if 0 in shape:
        raise ValueError(f"view {view!r} needs a tensor with entries; got shape {shape}")
    cut = 1 if cuts_columns(view) else 0
    if shape[cut] % blocks:
        raise ValueError(f"view {view!r} cuts dimension {cut} into {blocks} equal blocks; got shape {shape}")
    if cut:
        shape = shape[::-1]
    if kind == "matrix":
        return shape if len(shape) == 2 else (math.prod(shape[:-2]), *shape[-2:])
    rows_and_columns = (shape[0] // blocks, math.prod(shape[1:]))
    return rows_and_columns if kind == "conv" else (blocks, *rows_and_columns)


def parse(view: str) -> tuple[str, int]:
    """Kind of view, and into how many blocks it cuts dimension 0, or dimension 1 if `cuts_columns`."""
    if view in ("matrix", "conv"):
        return view, 1
    kind, _, number = view.partition(":") if isinstance(view, str) else ("", "", "")
    if kind not in ("grouped_conv", "split", "split_columns") or not (
        number.isascii() and number.isdigit() and int(number) >= 1
    ):
        raise ValueError(f"view must be {ACCEPTED}; got {view!r}")
    return kind, int(number)


def cuts_columns(view: str) -> bool:
    """Whether the blocks of a view are blocks of columns; it then reads the transposed tensor as "split" would."""
    return view.startswith("split_columns")


def memory_order(tensor: Tensor, view: str, strides_of: Tensor | None) -> list[int]:
    """Dimensions with those that are flattened together in descending order of stride."""
    like = tensor if strides_of is None else strides_of
    if like.shape != tensor.shape:
        raise ValueError(
            f"strides_of must have the shape of the tensor, {tuple(tensor.shape)}; got {tuple(like.shape)}"
        )
    strides = like.stride()
    dims = list(range(tensor.ndim))
    if cuts_columns(view):
        return [1, 0]
    if view == "matrix":
        return [*sorted(dims[:-2], key=lambda dim: -strides[dim]), *dims[-2:]]
    return [0, *sorted(dims[1:], key=lambda dim: -strides[dim])]
