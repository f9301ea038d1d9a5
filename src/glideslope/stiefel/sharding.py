"""Parameters spread over ranks as DTensors: what each rank holds of their matrices, in which view.

A rank can hold some rows of every matrix (then p x p matrices are summed over the ranks), or some whole matrices of a
batch (then nothing is). A parameter sharded in another way is brought into one of these for a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from glideslope.formulas.normal import inverse_square_root
from glideslope.formulas.orthogonality import frobenius, per_matrix, subtract_identity_
from glideslope.ranks.dtensors import Groups, from_parts, local_part, placed, whole
from glideslope.ranks.sums import summed
from glideslope.stiefel.marks import named
from glideslope.stiefel.points import project
from glideslope.stiefel.scales import own_scale
from glideslope.stiefel.views import as_matrices, copy_matrices_, cuts_columns, flattened_shape, matrix_shape, parse

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.tensor import DTensor, Placement, Shard


def meaning_of_shard(shape: Sequence[int], view: str, dim: int, ranks: int) -> str | None:
    """The meaning of a part of one dimension: "rows" of all matrices, whole matrices of a "batch", or None.

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
        self.is_wide = rows < columns
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
        self.local_shape: tuple[int, ...] = ()

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
        """This rank's part of a DTensor of the parameter's shape, brought to where a step wants it."""
        held: DTensor = tensor  # type: ignore[assignment]
        if tuple(held.placements) != self.wanted:
            held = held.redistribute(self.mesh, self.wanted)
        with torch.no_grad():
            return held.to_local()

    def matrices(self, local: Tensor) -> Tensor:
        """A local part as tall (matrices, rows, p) or (rows, p): in its own memory where that is contiguous."""
        kind, blocks = parse(self.view)
        self.local_shape = tuple(local.shape)
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

    def from_matrices(self, matrices: Tensor) -> Tensor:
        """The inverse of `matrices`: the local parts of a parameter have one shape."""
        blocks = matrices.mT if self.is_wide else matrices
        shape = self.local_shape
        return blocks.reshape(shape[::-1]).mT if cuts_columns(self.view) else blocks.reshape(shape)

    def spread(self, local: Tensor) -> Tensor:
        """A local part as a DTensor placed as a step wants it."""
        return from_parts(local, self.mesh, self.wanted, self.shape, self.stride)

    def returned(self, local: Tensor) -> Tensor:
        """A local part as a DTensor placed as the parameter is."""
        return placed(self.spread(local), self.mesh, self.given) if self.moves else self.spread(local)

    def numbers(self, local: Tensor, count: int) -> Tensor:
        """One number per matrix of this rank as a tensor that a checkpoint of another number of ranks can hold."""
        return from_parts(local, self.mesh, self.placements_of_numbers, (count,)) if self.batch_dims else local

    @property
    def placements_of_numbers(self) -> list[Placement]:
        """Where one number per matrix is: with its matrix."""
        from torch.distributed.tensor import Replicate, Shard

        return [Shard(0) if dim in self.batch_dims else Replicate() for dim in range(self.mesh.ndim)]


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
    return whole(layout.numbers(numbers.reshape(-1), count))


def sharded_distances(
    point: Tensor, view: str, sigma: float | Tensor | None = 1.0, *, spectral: bool = False
) -> list[float]:
    """‖X^H X/σ² - I‖ of every matrix of a DTensor, in float64; to be called on all ranks.

    Args:
        point: The DTensor.
        view: How it is read as matrices.
        sigma: σ: a number, one for each matrix of all ranks, or None for ‖X‖_F/√p.
        spectral: Whether the norm is the spectral one, and not Frobenius'.
    """
    layout, _, gram = sharded_gram(point, view)
    if isinstance(sigma, Tensor) and layout.batch_dims:
        sigma = local_part(placed(sigma, layout.mesh, layout.placements_of_numbers))
    gram = gram / per_matrix(squared_scale(gram, sigma))
    shape = matrix_shape(tuple(point.shape), view)
    Delta = subtract_identity_(gram)
    norms = torch.linalg.eigvalsh(Delta).abs().amax(-1) if spectral else frobenius(Delta)
    numbers: list[float] = all_matrices(layout, norms, shape[0] if len(shape) == 3 else 1).tolist()
    return numbers


def squared_scale(gram: Tensor, sigma: float | Tensor | None) -> Tensor:
    """σ² of matrices with this Gram matrix: of a number, a tensor, or None for tr(X^H X)/p."""
    mean = gram.diagonal(dim1=-2, dim2=-1).real.mean(-1)
    if sigma is None:
        return torch.where(torch.isfinite(mean) & (mean > 0), mean, 1.0)
    return torch.as_tensor(sigma, dtype=mean.dtype, device=mean.device).square().expand_as(mean)


def projected(X: Tensor, sigma: float | None) -> Tensor:
    """σ times the nearest orthonormal matrices, None being ‖X‖_F/√p; in float64 unless σ = 1, to be rounded once."""
    if sigma == 1:
        return project(X)
    device = torch.device("cpu") if X.device.type == "mps" else X.device
    wide = X.to(device=device, dtype=torch.complex128 if X.is_complex() else torch.float64)
    factor = per_matrix(own_scale(wide)) if sigma is None else sigma
    return project(wide / factor) * factor


@torch.no_grad()
def project_sharded_(parameter: Tensor, view: str, sigma: float | None = 1.0) -> None:
    """Replace a DTensor by σ times the nearest orthonormal one; to be called on all ranks.

    Close to orthonormal a p x p sum is enough; from far away it is gathered, one parameter at a time.
    """
    given: DTensor = parameter.detach()  # type: ignore[assignment]
    layout, X, gram = sharded_gram(given, view)
    shape = matrix_shape(given.shape, view)
    square = per_matrix(squared_scale(gram, sigma))
    gram = gram / square
    far = all_matrices(layout, frobenius(subtract_identity_(gram.clone())), shape[0] if len(shape) == 3 else 1)
    if bool((far <= 0.5).all()):
        # X (X^H X/σ²)^{-1/2} is σ times the polar factor.
        moved = layout.from_matrices(X @ inverse_square_root(gram)).to(given.dtype)
        local_part(given).copy_(local_part(layout.returned(moved)))
    else:
        gathered = whole(given)
        copy_matrices_(gathered, projected(as_matrices(gathered, view), sigma), view)
        local_part(given).copy_(local_part(placed(gathered, given.device_mesh, given.placements)))


def shard_placement(model: nn.Module, *, ranks: int | None = None) -> Callable[[nn.Parameter], Shard | None]:
    """Placement of every parameter of a model for `fully_shard(..., shard_placement_fn=gs.shard_placement(model))`.

    Marked weights are cut along the rows of their tall matrices, or between matrices, so that a landing step needs no
    more than p x p sums; all others along dimension 0. Call it before `fully_shard`, with the marks of
    `orthogonalize_` in place.

    Args:
        model: The model, not yet sharded.
        ranks: Number of ranks. Default: those of the default group. FSDP2 cuts other dimensions than the
            first into equal parts only: where that is impossible, dimension 0 is cut, and the optimizer says so.

    Examples:
        >>> model = torch.nn.Linear(8, 4)
        >>> names = gs.orthogonalize_(model)
        >>> gs.shard_placement(model, ranks=2)(model.weight)
        Shard(dim=1)
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
