"""Sums over ranks: one all-reduce for all tensors of a type, and one for many steps that go side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from glideslope.engine.row_blocks import Summed, run_together
from glideslope.ranks.dtensors import Groups, groups_of, is_sharded, local_part

# Steps are summed in one bundle as long as their numbers, and their memory, are not more than this.
BUNDLE_UP_TO = 2**24


class Spread(Protocol):
    """Matrices that are spread over ranks."""

    groups: Groups
    """The groups of ranks to sum over, one after the other."""
    size: int
    """Numbers it adds to a bundle of sums, or to the memory of a step, whichever is more."""


OfMatrices = TypeVar("OfMatrices", bound=Spread)


def summed(tensors: Sequence[Tensor], groups: Groups) -> list[Tensor]:
    """Sums over the ranks of each group in turn: one flat all-reduce for all tensors of a type."""
    import torch.distributed as dist

    if not groups:
        return list(tensors)
    results: list[Tensor] = list(tensors)
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        chosen = [i for i, tensor in enumerate(tensors) if tensor.dtype == dtype]
        flat = torch.cat([tensors[i].reshape(-1) for i in chosen])
        wire = torch.view_as_real(flat) if flat.is_complex() else flat
        for group in groups:
            dist.all_reduce(wire, group=group)
        parts = torch.split(flat, [tensors[i].numel() for i in chosen])
        for i, part in zip(chosen, parts, strict=True):
            results[i] = part.view(tensors[i].shape)
    return results


def is_finite(parameter: Tensor) -> bool:
    """Whether all entries are finite, on all ranks of a DTensor; to be called on all of them."""
    bad = torch.isfinite(local_part(parameter.detach())).logical_not().sum().reshape(1)
    if is_sharded(parameter):
        (bad,) = summed([bad], groups_of(parameter.device_mesh))  # type: ignore[attr-defined]
    return not bool(bad)


def run_in_bundles(matrices: Sequence[OfMatrices], step_of: Callable[[OfMatrices, int], Summed[None]]) -> None:
    """Run steps, each of some matrices and their position, with their sums in as few all-reduces as memory allows."""
    for positions in bundles([one.size for one in matrices]):
        groups = [matrices[i].groups for i in positions]
        run_together([step_of(matrices[i], i) for i in positions], partial(bundled, groups=groups))


def bundles(sizes: Sequence[int]) -> list[range]:
    """Consecutive positions whose sizes add up to no more than a bundle, or single ones."""
    found, start, total = [], 0, 0
    for position, size in enumerate(sizes):
        if position > start and total + size > BUNDLE_UP_TO:
            found.append(range(start, position))
            start, total = position, 0
        total += size
    return [*found, range(start, len(sizes))] if sizes else []


def bundled(asked: dict[int, list[Tensor]], groups: Sequence[Groups]) -> dict[int, list[Tensor]]:
    """The sums that steps ask for, in one all-reduce for all steps over the same ranks.

    Args:
        asked: Tensors by position of the step.
        groups: The groups of ranks of every step.
    """
    sums: dict[int, list[Tensor]] = {}
    for over in dict.fromkeys(groups[position] for position in asked):
        together = [position for position in asked if groups[position] == over]
        flat = iter(summed([tensor for position in together for tensor in asked[position]], over))
        for position in together:
            sums[position] = [next(flat) for _ in asked[position]]
    return {position: sums[position] for position in asked}
