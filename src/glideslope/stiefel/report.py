"""How orthonormal the weights of a model or of a saved state are: a report of one row per weight."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter

from glideslope.formulas.orthogonality import distance, frobenius, per_matrix, subtract_identity_
from glideslope.ranks.dtensors import is_sharded
from glideslope.stiefel.marks import marked
from glideslope.stiefel.scales import Scale, divided_by_scale, fixed_scale, own_scale
from glideslope.stiefel.sharding import all_matrices, sharded_gram, squared_scale
from glideslope.stiefel.views import as_matrices, matrix_shape

HEADINGS = ("name", "matrix", "view", "count", "distance", "smallest", "largest")
LEFT_ALIGNED = ("name", "view", "orthonormal")


class OrthogonalityRow(NamedTuple):
    """One weight: shape (n, p) and number of its matrices, largest ‖X^H X/σ² - I‖_F, extreme singular values, σ.

    σ is 1 unless the mark of the weight has a scale; of free ones it is the largest. The numbers are computed in
    float64 and are the worst over the matrices; NaN if an entry is not finite.
    """

    name: str
    shape: tuple[int, int]
    view: str
    count: int  # type: ignore[assignment]  # hides tuple.count, which nobody asks of a row
    distance: float
    smallest: float
    largest: float
    scale: float = 1.0


class OrthogonalityReport(Sequence[OrthogonalityRow]):
    """Rows of a report, in the order of the model; prints as an aligned table."""

    def __init__(self, rows: Sequence[OrthogonalityRow] = ()) -> None:
        self.rows = tuple(rows)

    @overload
    def __getitem__(self, index: int) -> OrthogonalityRow: ...
    @overload
    def __getitem__(self, index: slice) -> OrthogonalityReport: ...
    def __getitem__(self, index: int | slice) -> OrthogonalityRow | OrthogonalityReport:
        return OrthogonalityReport(self.rows[index]) if isinstance(index, slice) else self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def largest_distance(self) -> float:
        """Largest distance of all rows, 0 without rows, NaN if any is."""
        distances = [row.distance for row in self.rows]
        return math.nan if any(map(math.isnan, distances)) else max(distances, default=0.0)

    def cells(self, tolerance: float | None = None) -> list[tuple[str, ...]]:
        """Headings and rows as text; with a tolerance, a last column says whether the distance is within it.

        That is "yes", "no", or "scaled" for a weight that is orthonormal up to its scale.
        """
        scaled = any(row.scale != 1 for row in self.rows)  # a column that most reports do not need
        headings = (*HEADINGS, "scale") if scaled else HEADINGS
        lines: list[tuple[str, ...]] = [headings if tolerance is None else (*headings, "orthonormal")]
        for row in self.rows:
            numbers: tuple[str, ...] = (f"{row.distance:.1e}", f"{row.smallest:.6f}", f"{row.largest:.6f}")
            numbers = (*numbers, f"{row.scale:.6f}") if scaled else numbers
            line = (row.name, f"{row.shape[0]} x {row.shape[1]}", row.view, str(row.count), *numbers)
            verdict = "no" if not row.distance <= (tolerance or 0) else "yes" if row.scale == 1 else "scaled"
            lines.append(line if tolerance is None else (*line, verdict))
        return lines

    def table(self, tolerance: float | None = None) -> str:
        """The report as aligned text; see `cells`."""
        lines = self.cells(tolerance)
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        left = [heading in LEFT_ALIGNED for heading in lines[0]]
        aligned = (
            "  ".join(text.ljust(width) if on_left else text.rjust(width) for text, width, on_left in layout)
            for layout in (zip(line, widths, left, strict=True) for line in lines)
        )
        return "\n".join(line.rstrip() for line in aligned)

    def __str__(self) -> str:
        return self.table()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head, *body = ["".join(f"<td>{html.escape(text)}</td>" for text in line) for line in self.cells()]
        rows = "".join(f"<tr>{line}</tr>" for line in body)
        return f"<table><thead><tr>{head.replace('td>', 'th>')}</tr></thead><tbody>{rows}</tbody></table>"


def orthogonality(
    model: nn.Module | Mapping[str, Tensor], views: Mapping[str, str] | None = None
) -> OrthogonalityReport:
    """Report of every marked weight of a model: distance and extreme singular values, computed in float64.

    The distance is that to orthonormal matrices times the scale of the mark.

    Args:
        model: A model after `orthogonalize_`; or tensors by name, as in a state_dict, which holds no marks.
        views: For tensors by name only: {name: view} of those to report. Without it all that can be matrices are
            reported, in the view that `view_of_tensor` guesses.

    Examples:
        >>> model = torch.nn.Linear(8, 4)
        >>> names = gs.orthogonalize_(model)
        >>> gs.orthogonality(model).largest_distance < 1e-5
        True
    """
    if isinstance(model, nn.Module):
        if views is not None:
            raise ValueError("views are for tensors by name; those of a model are its marks, set by orthogonalize_")
        entries = marked(model, "orthogonality")
        return OrthogonalityReport([row_of(name, parameter, *mark) for name, parameter, mark in entries])
    if views is None:
        guesses = {name: view_of_tensor(name, tensor) for name, tensor in model.items()}
        views = {name: view for name, view in guesses.items() if view is not None}
    unknown = [name for name in views if name not in model]
    if unknown:
        raise ValueError(f"orthogonality: views name {unknown[0]!r}, which is not among the tensors")
    return OrthogonalityReport([row_of(name, model[name], view) for name, view in views.items()])


def view_of_tensor(name: str, tensor: object) -> str | None:
    """View of a tensor of a state_dict, guessed from its name and shape; None if it holds no matrix.

    Two dimensions are a matrix, three or more a kernel. Names that torch's modules give are known: in_proj_weight is
    three matrices, and weight_hh... is one square matrix per gate; and GPT-2's c_attn.weight, three side by side. The
    groups of a convolution cannot be guessed.
    """
    if not isinstance(tensor, Tensor) or isinstance(tensor, UninitializedParameter):
        return None
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.layout is not torch.strided or tensor.is_meta:
        return None
    if tensor.ndim < 2 or tensor.numel() == 0:
        return None
    if tensor.ndim > 2:
        return "conv"
    rows, columns = tensor.shape
    local_name = name.rpartition(".")[2]
    if local_name == "in_proj_weight" and rows == 3 * columns:
        return "split:3"
    if name.endswith("c_attn.weight") and columns in (2 * rows, 3 * rows):
        return f"split_columns:{columns // rows}"
    if re.fullmatch(r"weight_hh(_l\d+(_reverse)?)?", local_name) and rows in (3 * columns, 4 * columns):
        return f"split:{rows // columns}"
    return "matrix"


@torch.no_grad()
def row_of(name: str, tensor: Tensor, view: str, scale: Scale = 1.0) -> OrthogonalityRow:
    """Row of one tensor; of a DTensor by p x p sums, to be called on all ranks."""
    sigma = fixed_scale(scale, tuple(tensor.shape), view)
    if is_sharded(tensor):
        return measure_sharded(name, tensor, view, sigma)
    # On the CPU: not every device has float64.
    wide = tensor.to(device="cpu", dtype=torch.complex128 if tensor.is_complex() else torch.float64)
    X = as_matrices(wide, view)
    n, p = X.shape[-2:]
    count = X.shape[0] if X.ndim == 3 else 1
    if not bool(torch.isfinite(X).all()):
        return OrthogonalityRow(name, (n, p), view, count, math.nan, math.nan, math.nan)
    singular_values = torch.linalg.svdvals(X)
    scales = own_scale(X) if sigma is None else torch.tensor(sigma, dtype=torch.float64)
    far = distance(divided_by_scale(X, scales))
    worst = (far.max(), singular_values.min(), singular_values.max(), scales.max())
    return OrthogonalityRow(name, (n, p), view, count, *(number.item() for number in worst))


def measure_sharded(name: str, tensor: Tensor, view: str, sigma: float | None) -> OrthogonalityRow:
    """Row of one DTensor: singular values as roots of the eigenvalues of the Gram matrix, exact to 1e-16 near one."""
    *batch, n, p = matrix_shape(tensor.shape, view)
    count = batch[0] if batch else 1
    layout, _, gram = sharded_gram(tensor, view)
    square = squared_scale(gram, sigma)
    far = all_matrices(layout, frobenius(subtract_identity_(gram / per_matrix(square))), count)
    if not bool(torch.isfinite(far).all()):
        return OrthogonalityRow(name, (n, p), view, count, math.nan, math.nan, math.nan)
    eigenvalues = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    smallest, largest = (all_matrices(layout, eigenvalues[..., end], count) for end in (0, -1))
    worst = (far.max(), smallest.min(), largest.max(), all_matrices(layout, square, count).max().sqrt())
    return OrthogonalityRow(name, (n, p), view, count, *(number.item() for number in worst))
