"""Data whose columns are on many ranks, and matrices with their rows or columns on the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glideslope.ranks.dtensors import Groups, from_parts
from glideslope.ranks.sums import summed


class ColumnRanks(NamedTuple):
    """The ranks that have the columns of a matrix of data, and so the rows of X."""

    mesh: Any
    placements: tuple[Any, ...]
    """Of X: its rows where the columns of the data are."""
    groups: Groups
    n_ranks: int
    n_columns: int

    def spread(self, local: Tensor, shape: Sequence[int], *, dim: int = 0) -> Tensor:
        """A DTensor from this rank's part of one of its dimensions, which goes with the columns of the data."""
        from torch.distributed.tensor import Shard

        placements = [Shard(dim) if isinstance(one, Shard) else one for one in self.placements]
        return from_parts(local.contiguous(), self.mesh, placements, shape)

    def common_seed(self, seed: int) -> int:
        """The seed of the first of the ranks."""
        (group,) = self.groups
        return int(summed([torch.tensor(seed if torch.distributed.get_rank(group) == 0 else 0)], self.groups)[0])


def column_ranks(data: Any, name: str) -> ColumnRanks:
    """Where the columns of a DTensor are; a ValueError if that is not what is spread."""
    from torch.distributed.tensor import Replicate, Shard

    given, mesh = tuple(data.placements), data.device_mesh
    if given.count(Shard(1)) != 1 or any(one not in (Shard(1), Replicate()) for one in given):
        raise ValueError(
            f"{name} must have its columns spread over the ranks, placed as Shard(1); got {given}. "
            f"Use {name}.redistribute(placements=[Shard(1)])"
        )
    dim = given.index(Shard(1))
    placements = tuple(Shard(0) if one == Shard(1) else one for one in given)
    return ColumnRanks(mesh, placements, (mesh.get_group(dim),), mesh.size(dim), int(data.shape[1]))
