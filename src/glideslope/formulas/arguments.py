"""Checks of arguments with readable errors, and half precision computed in float32."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])

HALF_TYPES = (torch.bfloat16, torch.float16)
REAL_TYPE = {
    torch.float32: torch.float32,
    torch.float64: torch.float64,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
METRICS = ("canonical", "euclidean")
NORMAL_STEPS = ("landing", "newton-schulz", "polar")
SAFEGUARDS = ("lemma", "exact", None)
AUTOMATIC = "auto"


def check_matrices(**tensors: Tensor) -> None:
    """Raise a ValueError unless all are floating (*batch, n, p) with n >= p, of one shape, type and device."""
    first_name, first = next(iter(tensors.items()))
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{name} must be a torch.Tensor of shape (*batch, n, p); got {type(tensor).__name__}")
        if not (tensor.is_floating_point() or tensor.is_complex()):
            raise ValueError(
                f"{name} must be floating point or complex; got {tensor.dtype}. Convert it, e.g. {name}.float()"
            )
        if tensor.ndim < 2:
            raise ValueError(f"{name} must have shape (*batch, n, p); got {tuple(tensor.shape)}")
        if tensor.shape[-2] < tensor.shape[-1] or tensor.shape[-1] == 0:
            raise ValueError(
                f"{name} must be tall, (*batch, n, p) with n >= p >= 1; got {tuple(tensor.shape)}. "
                f"For a wide matrix pass its transpose, {name}.mT"
            )
        if tensor.shape != first.shape:
            raise ValueError(
                f"{name} must have the shape of {first_name}, {tuple(first.shape)}; got {tuple(tensor.shape)}"
            )
        if tensor.dtype != first.dtype or tensor.device != first.device:
            raise ValueError(
                f"{name} must have the type and device of {first_name}, {first.dtype} on {first.device}; "
                f"got {tensor.dtype} on {tensor.device}"
            )


def check_positive(**numbers: float | Tensor) -> None:
    """Raise a ValueError unless every number is finite and > 0. Values of tensors are not read."""
    for name, number in numbers.items():
        if isinstance(number, Tensor):
            continue
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            raise ValueError(f"{name} must be a number > 0; got {number!r}")
        if not (number > 0 and math.isfinite(number)):
            raise ValueError(f"{name} must be finite and > 0; got {number!r}")


def check_attraction(attraction: float | str) -> None:
    """Raise a ValueError unless attraction is "auto", or finite and > 0."""
    if isinstance(attraction, (str, Tensor)):
        if not isinstance(attraction, str) or attraction != AUTOMATIC:
            raise ValueError(f"attraction must be a number > 0 or {AUTOMATIC!r}; got {attraction!r}")
    else:
        check_positive(attraction=attraction)


def check_step_size(step_size: float | Tensor, batch: torch.Size) -> None:
    """Raise a ValueError unless step_size is a finite number >= 0, or a tensor that broadcasts to the batch.

    A tensor's values are not read: that would be a host synchronisation.
    """
    if isinstance(step_size, Tensor):
        trailing = batch[len(batch) - step_size.ndim :]
        fits = step_size.ndim <= len(batch) and all(s in (1, b) for s, b in zip(step_size.shape, trailing, strict=True))
        if not fits:
            raise ValueError(
                f"step_size must be a number or broadcast to the batch shape {tuple(batch)}; "
                f"got {tuple(step_size.shape)}"
            )
        return
    if isinstance(step_size, bool) or not isinstance(step_size, (int, float)):
        raise ValueError(f"step_size must be a number >= 0 or a tensor; got {step_size!r}")
    if not (step_size >= 0 and math.isfinite(step_size)):
        raise ValueError(f"step_size must be finite and >= 0; got {step_size!r}")


def check_radius(safe_radius: float) -> None:
    """Raise a ValueError unless 0 < safe_radius < 1."""
    if isinstance(safe_radius, bool) or not isinstance(safe_radius, (int, float)) or not 0 < safe_radius < 1:
        raise ValueError(f"safe_radius must be a number in the open interval (0, 1); got {safe_radius!r}")


def check_whole_number(
    name: str, number: Any, *, least: int, most: int | None = None, most_is: str | None = None
) -> None:
    """Raise a ValueError unless a number is an int from least to most; `most_is` says in the error what most is."""
    is_int = isinstance(number, int) and not isinstance(number, bool)
    if not is_int or number < least or (most is not None and number > most):
        limits = f">= {least}" if most is None else f"from {least} to {most}" + (f", {most_is}" if most_is else "")
        raise ValueError(f"{name} must be a whole number {limits}; got {number!r}")


def check_option(name: str, value: object, accepted: tuple[object, ...]) -> None:
    """Raise a ValueError unless value is one of the accepted ones."""
    if value not in accepted:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, accepted))}; got {value!r}")


def in_full_precision(function: Function) -> Function:
    """Compute bfloat16 and float16 tensor arguments in float32 and return tensors in the type that came in."""
    first_name = next(iter(inspect.signature(function).parameters))

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else kwargs.get(first_name)
        if not (isinstance(first, Tensor) and first.dtype in HALF_TYPES):
            return function(*args, **kwargs)
        half = first.dtype

        def widen(value: Any) -> Any:
            return value.float() if isinstance(value, Tensor) and value.dtype == half else value

        result = function(*map(widen, args), **{key: widen(value) for key, value in kwargs.items()})
        return result.to(half)

    return wrapper  # type: ignore[return-value]
