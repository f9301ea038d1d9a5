"""Checks of parameters, gradients, loaded state and keys of groups; refusals say the way out."""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from glideslope.formulas.arguments import HALF_TYPES, REAL_TYPE
from glideslope.formulas.orthogonality import distance, spectral_distance
from glideslope.optim.diagnostics import largest_distance
from glideslope.stiefel.scales import check_scale, fixed_scale
from glideslope.stiefel.views import matrix_shape

TYPES = (*HALF_TYPES, *REAL_TYPE)
# Keys of groups that are at least this similar to an option, 1 being equal, are taken for misspelt.
SIMILAR = 0.85


def check_writable(described: str, param: Tensor) -> None:
    """Raise a ValueError if no step could write the parameter."""
    if param.is_inference():
        raise ValueError(
            f"{described} was made inside torch.inference_mode, and cannot be changed outside of it; make it outside, "
            "or clone it there: torch.nn.Parameter(X.clone())"
        )


def check_dense_floats(described: str, param: Tensor) -> None:
    """Raise a ValueError unless the parameter is dense and of a type that steps compute with."""
    if param.is_nested:
        raise ValueError(f"{described} is a nested tensor; make each of its matrices a parameter of its own")
    if param.layout is not torch.strided:
        raise ValueError(
            f"{described} is {_short(param.layout)}; a constrained parameter must be dense: "
            "torch.nn.Parameter(X.to_dense())"
        )
    if not (param.is_floating_point() or param.is_complex()):
        raise ValueError(f"{described} is {param.dtype}; a constrained parameter must be floating point or complex")
    if param.dtype not in TYPES:
        raise ValueError(
            f"{described} is {_short(param.dtype)}; a constrained parameter must be one of "
            f"{', '.join(map(_short, TYPES))}. Train in one of them, e.g. bfloat16, and convert what was trained"
        )


def check_start(described: str, param: Tensor, group: dict[str, Any], *, spectral: bool) -> None:
    """Raise a ValueError unless a constrained parameter is in the safe region of its group, up to rounding.

    Args:
        described: The parameter as the error calls it.
        param: The parameter.
        group: Its group, with `view`, `safe_radius` and perhaps `scale`.
        spectral: Whether the region is a ball in the spectral norm, and not in Frobenius'.
    """
    rounding = 4 * torch.finfo(param.dtype).eps * matrix_shape(tuple(param.shape), group["view"])[-1] ** 0.5
    radius = group["safe_radius"]
    view, scale = group["view"], group.get("scale", 1.0)
    sigma = fixed_scale(scale, tuple(param.shape), view)
    judged = worst = largest_distance(param.detach(), view, sigma, distance)
    if radius + rounding < worst < math.inf and spectral:
        judged = largest_distance(param.detach(), view, sigma, spectral_distance)
    if not judged <= radius + rounding:
        wide_matrix = param.ndim >= 2 and param.shape[-2] < param.shape[-1]
        mended = "gs.project(X.mT).mT" if wide_matrix else "gs.project(X)"
        option, times = "", ""
        if scale != 1:
            mended += " * X.norm() / min(X.shape)**0.5" if sigma is None else f" * {sigma:.6g}"
            option, times = f", scale={scale!r}", f"{'σ' if sigma is None else format(sigma, '.6g')} times "
        raise ValueError(
            f"{described} starts at distance {worst:.3g} from {times or 'the '}orthonormal matrices, outside the safe "
            f"radius {radius:g}. Make it {times}orthonormal first: gs.orthogonalize_(model{option}) for the weights of "
            f"a model, or X.data = {mended} for a matrix X"
        )


def check_scale_of(who: str, group: dict[str, Any], *, known: bool) -> None:
    """Raise a ValueError for a bad scale of a group, or for any but 1 where the optimizer knows none."""
    scale = group.get("scale", 1.0)
    check_scale(scale)
    if scale != 1 and not known:
        raise ValueError(
            f"{who} has no scales, and this group has scale={scale!r}; use LandingSGD, LandingAdam or attach_landing"
        )


def check_dense_gradients(who: str, labels: Iterable[str], gradients: Sequence[Tensor | None]) -> None:
    """Raise a ValueError if any of the gradients is sparse, the one other layout that .grad of a dense tensor may have.

    The labels are read only then.
    """
    if not any(gradient.is_sparse for gradient in gradients if gradient is not None):
        return
    for label, gradient in zip(labels, gradients, strict=True):
        if gradient is not None and gradient.is_sparse:
            raise ValueError(
                f"{who}: {label} has a {_short(gradient.layout)} gradient, and takes dense ones only: use "
                "sparse=False in the layer, or X.grad = X.grad.to_dense() before the step. Nothing has been stepped"
            )


def check_entry(who: str, label: str, name: str, value: Tensor, expected: tuple[int, ...]) -> None:
    """Raise a ValueError unless an entry of a loaded state has the shape a step will give it."""
    if tuple(value.shape) != expected:
        raise ValueError(
            f"{who}: the entry {name!r} of {label} in the state to load must have shape {expected}; got "
            f"{tuple(value.shape)}. Load a state that was saved for parameters of these shapes, in this order; nothing "
            "has been loaded"
        )


def check_keys(who: str, keys: Iterable[str], options: Iterable[str]) -> None:
    """Raise a ValueError for a key that looks like a misspelt option.

    Other unknown keys pass, as in torch: schedulers and frameworks keep their own in the groups. So does an option
    with further words, like max_momentum.
    """
    known = list(options)
    for key in keys:
        if key in known or any(f"_{option}_" in f"_{key}_" for option in known):
            continue
        near = difflib.get_close_matches(key.lower(), known, n=3, cutoff=SIMILAR)
        if near:
            raise ValueError(f"{who} has no option {key!r}; did you mean {' or '.join(map(repr, near))}?")


def has_data(param: Tensor) -> bool:
    """Whether a parameter has values to look at: it is neither on the meta device nor a fake tensor."""
    fakes = sys.modules.get("torch._subclasses.fake_tensor")  # importing it would import the compiler
    return param.device.type != "meta" and not (fakes and isinstance(param, fakes.FakeTensor))


def _short(kind: object) -> str:
    """The name of a type or layout: torch.float8_e4m3fn -> float8_e4m3fn."""
    return str(kind).removeprefix("torch.")
