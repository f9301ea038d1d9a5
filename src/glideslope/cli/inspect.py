"""`glideslope inspect CHECKPOINT`: how orthonormal the matrices of a saved model or state_dict are."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor, nn

from glideslope.stiefel.marks import matching, named
from glideslope.stiefel.report import OrthogonalityReport, orthogonality, row_of, view_of_tensor

STATE_KEYS = ("model", "state_dict", "model_state_dict")


def inspect(
    checkpoint: Annotated[Path, typer.Argument(help="File of torch.save or safetensors.", show_default=False)],
    pattern: Annotated[
        list[str] | None, typer.Option(help="Report only the names this matches, e.g. 'layer*.weight'; repeatable.")
    ] = None,
    view: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN=VIEW", help="How to read some of them: '*.dw.weight=grouped_conv:32'; repeatable."
        ),
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Largest distance that counts as orthonormal.")] = 1e-3,
) -> None:
    """Report how orthonormal the matrices of a checkpoint are.

    The checkpoint is a .safetensors file, a state_dict, a dict that holds one or several at any depth (one under
    "model", "state_dict" or "model_state_dict" goes first, states of optimizers are left out), or a whole model of
    torch.nn layers. It is loaded with weights_only=True, so no foreign code in it runs.

    A state_dict does not say which weights were constrained: every floating tensor of 2 dimensions or more is reported.
    Two dimensions are read as a matrix, three or more as a convolution kernel of one group, flattened to out x rest;
    in_proj_weight as three matrices, and weight_hh* as one per gate. Other readings, such as grouped kernels and
    batches, need --view.

    The distance is the norm of X'X - I, the largest over the matrices of a weight. A weight of two columns or more that
    is a multiple of an orthonormal one, up to the tolerance, is reported with that scale: the norm of X'X/scale^2 - I.
    """
    try:
        report = report_on(load(checkpoint), pattern or [], view or [], tolerance)
    except ValueError as error:
        typer.echo(f"glideslope inspect: {checkpoint}: {' '.join(str(error).split())}", err=True)
        raise typer.Exit(2) from None
    typer.echo(report.table(tolerance) if report else "no floating-point tensor of 2 dimensions or more")


def report_on(
    loaded: object, patterns: Sequence[str], views: Sequence[str], tolerance: float = 0.0
) -> OrthogonalityReport:
    """Report of the weights whose name matches a pattern (all, without patterns), with views given as PATTERN=VIEW.

    Weights that are beyond the tolerance, and multiples of orthonormal ones within it, are measured as such.
    """
    state, readings = tensors_and_views(loaded)
    for assignment in views:
        pattern, equals, view = assignment.rpartition("=")
        if not equals:
            raise ValueError(f"--view must be PATTERN=VIEW; got {assignment!r}")
        readings.update(dict.fromkeys(matching(pattern, readings, "--view"), view))
    if patterns:
        wanted = {name for pattern in patterns for name in matching(pattern, readings, "--pattern")}
        readings = {name: view for name, view in readings.items() if name in wanted}
    rows = []
    for row in orthogonality(state, readings):
        if row.distance > tolerance and row.shape[1] > 1:  # a single column is always a multiple
            multiple = row_of(row.name, state[row.name], row.view, "free")
            row = multiple if multiple.distance <= tolerance else row
        rows.append(row)
    return OrthogonalityReport(rows)


def tensors_and_views(loaded: object) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors by name, and the views of those to report: the marks of a model if it has any, else guesses."""
    state: dict[str, Tensor] = {}
    if isinstance(loaded, nn.Module):
        parameters = named(loaded)
        state = {one.name: one.parameter for one in parameters}
        marks = {one.name: one.view for one in parameters if one.view is not None}
        if marks:
            return state, marks
    elif isinstance(loaded, Mapping):
        state = dict(tensors_in(loaded))
    if not state:
        raise ValueError("holds no state_dict: no tensor by name, at any depth")
    guesses = {name: view_of_tensor(name, tensor) for name, tensor in state.items()}
    return state, {name: view for name, view in guesses.items() if view is not None}


def tensors_in(mapping: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of nested state_dicts by dotted name, without those of optimizers; of a model's own key alone."""
    for key in STATE_KEYS:
        if isinstance(mapping.get(key), Mapping):
            yield from tensors_in(mapping[key], prefix)
            return
    if {"state", "param_groups"} <= mapping.keys():
        return
    for key, value in mapping.items():
        if isinstance(value, Tensor):
            yield f"{prefix}{key}", value
        elif isinstance(value, Mapping):
            yield from tensors_in(value, f"{prefix}{key}.")


def load(path: Path) -> object:
    """The contents of a file; a one-sentence ValueError if reading it would run foreign code."""
    if path.suffix == ".safetensors":
        return load_safetensors(path)
    layers = [value for value in vars(nn).values() if isinstance(value, type) and issubclass(value, nn.Module)]
    known: list[Any] = [
        *layers,
        nn.modules.linear.NonDynamicallyQuantizableLinear,
        nn.functional.relu,
        nn.functional.gelu,
    ]
    if path.is_dir():
        raise ValueError(
            "is a folder. A checkpoint of gs.save_checkpoint, one folder per step, becomes a file by: "
            "python -m torch.distributed.checkpoint.format_utils dcp_to_torch FOLDER file.pt"
        )
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(known):
            warnings.simplefilter("ignore")  # torch warns of what the errors below say
            return torch.load(path, map_location="cpu", weights_only=True)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise ValueError(error.strerror) from error
    except pickle.UnpicklingError as error:
        raise ValueError(
            "is no checkpoint, or holds more than tensors and layers of torch.nn; save model.state_dict()"
        ) from error
    except Exception as error:  # a damaged file can fail anywhere in the unpickler
        raise ValueError(f"is not a readable checkpoint ({type(error).__name__})") from error


def load_safetensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a file of the safetensors package."""
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError:
        raise ValueError("needs the package that reads such files: pip install safetensors") from None
    try:
        path.open("rb").close()  # whose errors say why
        return dict(load_file(path))
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        raise ValueError(error.strerror) from error
    except SafetensorError as error:
        raise ValueError(f"is not a readable checkpoint ({error})") from error
