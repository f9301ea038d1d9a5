"""DTensors: whether a tensor is one, what this rank holds of it, how one is made, and over which ranks it is spread."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup

Groups = tuple["ProcessGroup", ...]


def is_sharded(tensor: object) -> bool:
    """Whether a tensor is a DTensor; importing that type only to ask would take longer than importing this package."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: Tensor) -> Tensor:
    """The part of a DTensor that this rank holds; any other tensor as it is."""
    held: Any = tensor
    with torch.no_grad():
        part: Tensor = held.to_local() if is_sharded(tensor) else tensor
    return part


def whole(tensor: Any) -> Tensor:
    """A tensor in one piece; a DTensor is gathered, to be called on all of its ranks."""
    gathered: Tensor = tensor.full_tensor() if is_sharded(tensor) else tensor
    return gathered


def from_parts(
    local: Tensor, mesh: Any, placements: Sequence[Any], shape: Sequence[int], stride: Sequence[int] | None = None
) -> Tensor:
    """A DTensor of this shape from the part of each rank; nothing is sent. Contiguous, if no stride is given."""
    from torch.distributed.tensor import DTensor

    strides = tuple(torch.empty(shape, device="meta").stride() if stride is None else stride)
    return DTensor.from_local(local, mesh, placements, run_check=False, shape=torch.Size(shape), stride=strides)


def placed(tensor: Any, mesh: Any, placements: Sequence[Any]) -> Tensor:
    """A DTensor with these placements, from one with others, or from a tensor that every rank has in one piece."""
    from torch.distributed.tensor import distribute_tensor

    if not is_sharded(tensor):
        # torch 2.6 has no such option: there the first rank sends the others what they have.
        parameters = inspect.signature(distribute_tensor).parameters
        nobody_sends = {"src_data_rank": None} if "src_data_rank" in parameters else {}
        return distribute_tensor(tensor, mesh, placements, **nobody_sends)
    moved: Tensor = tensor.redistribute(mesh, placements)
    return moved


def meshes_of(params: Iterable[Any]) -> list[Any]:
    """The device meshes of the DTensors among parameters, each once, in order."""
    return list(dict.fromkeys(param.device_mesh for param in params if is_sharded(param)))


def groups_of(mesh: Any) -> Groups:
    """The groups of ranks of a mesh, one for each of its dimensions."""
    return tuple(mesh.get_group(dim) for dim in range(mesh.ndim))
