"""Parameters spread over ranks as DTensors: what each rank holds of their matrices, and sums over the ranks.

A rank can hold some rows of every matrix (then p x p matrices are summed over the ranks), or some whole matrices of a
batch (then nothing is). A parameter sharded in another way is brought into one of these for a step.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from glideslope.formulas.normal import inverse_square_root
from glideslope.formulas.orthogonality import frobenius, subtract_identity_
from glideslope.stiefel.marks import named
from glideslope.stiefel.points import project
from glideslope.stiefel.views import as_matrices, copy_matrices_, cuts_columns, flattened_shape, matrix_shape, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed import ProcessGroup
    from torch.distributed.tensor import DTensor, Placement, Shard

Groups = tuple["ProcessGroup", ...]


def is_sharded(tensor: object) -> bool:
    """Whether a tensor is a DTensor; importing that type only to ask would take longer than importing this package."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def local_part(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor: all of it unless it is a DTensor."""
    held: Any = tensor
    with torch.no_grad():
        part: Tensor = held.to_local() if is_sharded(tensor) else tensor
    return part


def meaning_of_shard(shape: Sequence[int], view: str, dim: int, ranks: int) -> str | None:
    """What a rank has that holds a part of one dimension: "rows" of all matrices, whole matrices of a "batch", or None.

    None means parts of columns, or parts of some matrices.

    Args:
        shape: Shape of the parameter.
        view: How it is read as matrices.
        dim: The dimension that is cut.
        ranks: Into how many parts.
    """
    kind, blocks = parse(view)
    *_, rows, columns = flattened_shape(shape, view)
    if kind == "matrix" and dim < len(shape) - 2:
        return "batch" if dim == 0 and (len(shape) == 3 or shape[0] % ranks == 0) else None
    first = len(shape) - 2 if kind == "matrix" else 1 if cuts_columns(view) else 0
    cuts_rows = dim == first
    if cuts_rows and blocks > 1:
        return "batch" if blocks % ranks == 0 else None
    return "rows" if cuts_rows == (rows >= columns) else None


def dimension_of_rows(shape: Sequence[int], view: str) -> int | None:
    """The dimension to cut so that every rank has rows of all matrices; None where there is none."""
    return next((dim for dim in range(len(shape)) if meaning_of_shard(shape, view, dim, 2) == "rows"), None)


class Layout:
    """How the matrices of one DTensor lie over the ranks, and how a step wants them.

    Args:
        parameter: The DTensor.
        view: How it is read as matrices.
    """

    def __init__(self, parameter: Tensor, view: str) -> None:
        from torch.distributed.tensor import Replicate, Shard

        given: DTensor = parameter  # type: ignore[assignment]
        self.mesh, self.given = given.device_mesh, tuple(given.placements)
        self.shape, self.stride, self.view = tuple(given.shape), tuple(given.stride()), view
        *_, rows, columns = flattened_shape(self.shape, view)
        self.is_wide, self.rows = rows < columns, max(rows, columns)
        rows_dim = dimension_of_rows(self.shape, view)
        self.wanted: tuple[Placement, ...] = ()
        self.row_dims: list[int] = []
        self.batch_dims: list[int] = []
        for mesh_dim, placement in enumerate(self.given):
            meaning = None
            if isinstance(placement, Shard):
                alike = [i for i, one in enumerate(self.given) if isinstance(one, Shard) and one.dim == placement.dim]
                ranks = math.prod(self.mesh.size(i) for i in alike)
                meaning = meaning_of_shard(self.shape, view, placement.dim, ranks)
                if meaning == "batch" and type(placement) is not Shard:
                    meaning = None
            if meaning is not None:
                self.wanted += (placement,)
            elif isinstance(placement, Shard) and rows_dim is not None:
                self.wanted, meaning = (*self.wanted, Shard(rows_dim)), "rows"
            else:
                self.wanted += (Replicate(),)
            if meaning is not None:
                (self.row_dims if meaning == "rows" else self.batch_dims).append(mesh_dim)
        self.moves = self.wanted != self.given

    @property
    def shape_of_part(self) -> torch.Size:
        """Shape of the largest part that a rank holds in a step."""
        shape = list(self.shape)
        for mesh_dim, placement in enumerate(self.wanted):
            dim = getattr(placement, "dim", None)
            if dim is not None:
                shape[dim] = -(-shape[dim] // self.mesh.size(mesh_dim))
        return torch.Size(shape)

    @property
    def groups(self) -> Groups:
        """The groups of ranks over which p x p matrices are summed, one after the other."""
        return tuple(self.mesh.get_group(dim) for dim in self.row_dims)

    def local(self, tensor: Tensor) -> Tensor:
        """What this rank holds of a DTensor of the parameter's shape, after it is brought to where a step wants it."""
        held: DTensor = tensor  # type: ignore[assignment]
        if tuple(held.placements) != self.wanted:
            held = held.redistribute(self.mesh, self.wanted)
        with torch.no_grad():
            return held.to_local()

    def matrices(self, local: Tensor) -> Tensor:
        """A local part as tall (matrices, rows, p) or (rows, p): in its own memory where that is contiguous."""
        kind, blocks = parse(self.view)
        if cuts_columns(self.view):
            local = local.mT
        shape: tuple[int, ...] = tuple(local.shape)
        if kind == "matrix":
            flat = shape if len(shape) == 2 else (math.prod(shape[:-2]), *shape[-2:])
        else:
            whole = self.shape[1] if cuts_columns(self.view) else self.shape[0]
            held, rest = blocks * shape[0] // whole, math.prod(shape[1:])
            flat = (shape[0], rest) if kind == "conv" else (held, shape[0] // max(held, 1), rest)
        matrices = local.reshape(flat)
        return matrices.mT if self.is_wide else matrices

    def from_matrices(self, matrices: Tensor, like: Tensor) -> Tensor:
        """The inverse of `matrices`, in the shape of a local part."""
        blocks = matrices.mT if self.is_wide else matrices
        return blocks.reshape(like.shape[::-1]).mT if cuts_columns(self.view) else blocks.reshape(like.shape)

    def spread(self, local: Tensor) -> Tensor:
        """A local part as a DTensor placed as a step wants it."""
        from torch.distributed.tensor import DTensor

        return DTensor.from_local(
            local, self.mesh, self.wanted, run_check=False, shape=torch.Size(self.shape), stride=self.stride
        )

    def returned(self, local: Tensor) -> Tensor:
        """A local part as a DTensor placed as the parameter is."""
        spread: Any = self.spread(local)
        back: Tensor = spread.redistribute(self.mesh, self.given) if self.moves else spread
        return back

    def numbers(self, local: Tensor, count: int) -> Tensor:
        """One number per matrix of this rank as a tensor that a checkpoint of another number of ranks can hold."""
        from torch.distributed.tensor import DTensor, Replicate, Shard

        if not self.batch_dims:
            return local
        placements = [Shard(0) if dim in self.batch_dims else Replicate() for dim in range(self.mesh.ndim)]
        return DTensor.from_local(
            local, self.mesh, placements, run_check=False, shape=torch.Size((count,)), stride=(1,)
        )


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


@torch.no_grad()
def sharded_gram(parameter: Tensor, view: str) -> tuple[Layout, Tensor, Tensor]:
    """The layout, this rank's part and the Gram matrices of a DTensor in float64; to be called on all ranks."""
    layout = Layout(parameter, view)
    X = layout.matrices(layout.local(parameter.detach()))
    X = X.to(torch.complex128 if X.is_complex() else torch.float64)
    (gram,) = summed([X.mH @ X], layout.groups)
    return layout, X, gram


def all_matrices(layout: Layout, numbers: Tensor, count: int) -> Tensor:
    """One number per matrix of all ranks, from those of this rank."""
    spread: Any = layout.numbers(numbers.reshape(-1), count)
    whole: Tensor = spread.full_tensor() if is_sharded(spread) else spread
    return whole


def is_finite(parameter: Tensor) -> bool:
    """Whether all entries are finite, on all ranks of a DTensor; to be called on all of them."""
    bad = torch.isfinite(local_part(parameter.detach())).logical_not().sum().reshape(1)
    if is_sharded(parameter):
        mesh = parameter.device_mesh  # type: ignore[attr-defined]
        (bad,) = summed([bad], tuple(mesh.get_group(dim) for dim in range(mesh.ndim)))
    return not bool(bad)


@torch.no_grad()
def project_sharded_(parameter: Tensor, view: str) -> None:
    """Replace a DTensor by the nearest orthonormal one; to be called on all ranks.

    Close to orthonormal a p x p sum is enough; from far away it is gathered, one parameter at a time.
    """
    from torch.distributed.tensor import distribute_tensor

    given: DTensor = parameter.detach()  # type: ignore[assignment]
    layout, X, gram = sharded_gram(given, view)
    shape = matrix_shape(given.shape, view)
    far = all_matrices(layout, frobenius(subtract_identity_(gram.clone())), shape[0] if len(shape) == 3 else 1)
    if bool((far <= 0.5).all()):
        held = layout.local(given)
        moved = layout.from_matrices(X @ inverse_square_root(gram), held).to(given.dtype)
        local_part(given).copy_(local_part(layout.returned(moved)))
    else:
        whole = given.full_tensor()
        copy_matrices_(whole, project(as_matrices(whole, view)), view)
        spread = distribute_tensor(whole, given.device_mesh, given.placements, src_data_rank=None)
        local_part(given).copy_(local_part(spread))


def shard_placement(model: nn.Module, *, ranks: int | None = None) -> Callable[[nn.Parameter], Shard | None]:
    """Placement of every parameter of a model for `fully_shard(..., shard_placement_fn=gs.shard_placement(model))`.

    Marked weights are cut along the rows of their tall matrices, or between matrices, so that a landing step needs no
    more than p x p sums; all others along dimension 0. Call it before `fully_shard`, with the marks of
    `orthogonalize_` in place.

    Args:
        model: The model, not yet sharded.
        ranks: Over how many ranks; those of the default group unless given. FSDP2 cuts other dimensions than the
            first into equal parts only: where that is impossible, dimension 0 is cut, and the optimizer says so.
    """
    from torch.distributed import get_world_size
    from torch.distributed.tensor import Shard

    size = get_world_size() if ranks is None else ranks
    known = [(one.parameter, one.view) for one in named(model)]

    def placement(parameter: nn.Parameter) -> Shard | None:
        view = next((view for one, view in known if one is parameter), None)
        if view is None or meaning_of_shard(parameter.shape, view, 0, size) is not None:
            return None
        dim = dimension_of_rows(parameter.shape, view)
        return Shard(dim) if dim is not None and parameter.shape[dim] % size == 0 else None

    return placement
