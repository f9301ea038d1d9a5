"""Matrices of independent components: NumPy arrays on the CPU, tensors on other devices.

NumPy starts an operation on a small matrix in less time than torch does.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = Any
"""np.ndarray or Tensor, all of one kind in a model."""
# Multiplications beyond which NumPy's BLAS wakes other threads, which wait for each other for long on a busy machine.
LARGE_PRODUCT = 2**18


def native(tensor: Tensor) -> Array:
    """A tensor of the CPU as an array that shares its memory, any other as it is."""
    return tensor.numpy() if tensor.device.type == "cpu" else tensor


def alike(tensor: Tensor, other: Array) -> Array:
    """A tensor as an array if the other is one, otherwise on the other's device."""
    return tensor.cpu().numpy() if isinstance(other, np.ndarray) else tensor.to(other.device)


def namespace(array: Array) -> Any:
    """The module with the functions of an array: numpy or torch."""
    return np if isinstance(array, np.ndarray) else torch


def product(A: Array, B: Array) -> Array:
    """A B; by torch, which keeps to its number of threads, where it is large."""
    if isinstance(A, np.ndarray) and A.shape[0] * A.shape[1] * B.shape[1] > LARGE_PRODUCT:
        return (torch.from_numpy(A) @ torch.from_numpy(B)).numpy()
    return A @ B


def squared_lengths(rows: Array) -> Array:
    """Squared length of every row."""
    if isinstance(rows, np.ndarray):  # NumPy's vecdot is newer than the oldest version supported
        return (rows[:, np.newaxis] @ rows[:, :, np.newaxis]).ravel()
    return torch.linalg.vecdot(rows, rows)


def inner(A: Array, B: Array) -> float:
    """Sum of the products of all entries, of small matrices."""
    return float(np.vdot(A, B) if isinstance(A, np.ndarray) else (A * B).sum())
