"""Samples whose columns are on many ranks, as DTensors: what the ranks must agree on, and attributes spread alike."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from glideslope.optim.ranks import raise_difference
from glideslope.solve.geometry import InRows, Whole
from glideslope.solve.rows import ColumnRanks, Rows


def refuse_ranks(estimator: Any) -> None:
    """Raise a ValueError if an estimator takes no samples with columns on many ranks."""
    if not getattr(estimator, "takes_ranks", False):
        name = type(estimator).__name__
        raise ValueError(f"{name} takes samples in one place; X is a DTensor. Give X.full_tensor(), or use OnlinePCA")


def check_alike(estimator: Any, X: Any, group: Any) -> None:
    """Raise a ValueError on all ranks where they have other numbers of samples, types or parameters."""
    words = {"the shape of X": str(tuple(X.shape)), "the type of X": str(X.dtype)}
    words |= {name: repr(value) for name, value in estimator.get_params().items() if name != "random_state"}
    raise_difference(type(estimator).__name__, words, group)


def geometry_of(rows: Rows) -> Whole:
    """Where the columns of the samples are, and with them the rows of the matrix to learn."""
    return Whole() if rows.ranks is None else InRows(rows.ranks.groups, rows.shape[1])


def common_seed(seed: int, ranks: ColumnRanks | None) -> int:
    """The seed of the first of the ranks."""
    if ranks is None:
        return seed
    (group,) = ranks.groups
    known = torch.tensor(seed if torch.distributed.get_rank(group) == 0 else 0)
    torch.distributed.all_reduce(known, group=group)
    return int(known)


def spread(local: Tensor, ranks: ColumnRanks, shape: tuple[int, ...]) -> Tensor:
    """Columns of this rank, of a matrix or a vector, as a DTensor."""
    from torch.distributed.tensor import DTensor, Replicate, Shard

    placements = [Replicate() if isinstance(one, Replicate) else Shard(len(shape) - 1) for one in ranks.placements]
    stride = (shape[-1], 1)[-len(shape) :]
    return DTensor.from_local(
        local.contiguous(), ranks.mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride
    )
