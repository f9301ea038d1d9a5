"""Values that state_dicts hold, read from pickles without running anything that a file asks for.

`torch.load(weights_only=True)` does the reading: numbers, texts, bytes, lists, tuples, dictionaries, sets, tensors and
types of torch. On top of these come frozen sets, ranges, default dictionaries, dates and times, and NumPy numbers and
arrays of them. NumPy's types never get a state from a file, with which they could damage memory; a class here stands
for them. `torch.serialization.add_safe_globals` allows classes of one's own.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import io
import re
from collections.abc import Iterator
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch

NUMBERS = re.compile(r"b1|[iu][1248]|f2|f4|f8|f16|c8|c16|c32")


class NumberType:
    """Stands for a numpy.dtype of numbers or flags while its pickle is read."""

    def __init__(self, name: str, align: bool = False, copy: bool = True) -> None:
        if not NUMBERS.fullmatch(name):
            raise ValueError(f"of NumPy's values only numbers are read, not those of type {name!r}")
        self.name, self.order = name, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = ">" if state[1] == ">" else "="


def real_type(kind: Any) -> np.dtype[Any]:
    """The type that a stand-in describes, in the byte order of the file."""
    if not isinstance(kind, NumberType):
        raise ValueError(f"the type of a NumPy value is {kind!r}, which is none")
    return np.dtype(kind.order + kind.name)


class NumberArray(np.ndarray[Any, Any]):
    """An array whose pickled state may only name types of numbers."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        version, shape, kind, by_columns, data = state
        super().__setstate__((version, shape, real_type(kind), by_columns, data))


def number_array(*_: Any) -> Any:
    """An array whose state is read next."""
    return NumberArray(0)


def number(kind: NumberType, data: bytes) -> Any:
    """A NumPy number."""
    (value,) = np.frombuffer(data, real_type(kind))
    return value


def default_dictionary(factory: Any = None) -> Any:
    """A default dictionary, as the kind of dictionary that torch fills."""
    found: Any = collections.OrderedDict()
    found.default_factory = factory
    return found


FACTORIES = {f"builtins.{kind.__name__}": kind for kind in (int, float, bool, str, bytes, list, dict, tuple)}
READ: dict[str, Any] = {
    **FACTORIES,
    "builtins.frozenset": frozenset,
    "builtins.range": range,
    "collections.defaultdict": default_dictionary,
    **{
        f"datetime.{kind.__name__}": kind
        for kind in (datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone)
    },
    "numpy.dtype": NumberType,
    "numpy.ndarray": NumberArray,
    **{f"numpy.{core}.multiarray._reconstruct": number_array for core in ("core", "_core")},
    **{f"numpy.{core}.multiarray.scalar": number for core in ("core", "_core")},
}


def read_value(data: bytes, *, device: str | None = None) -> Any:
    """The value that `torch.save` wrote; an UnpicklingError that names anything in it that is not on the list.

    Args:
        data: The bytes that `torch.save` wrote.
        device: Where to put tensors. Default: where they were.
    """
    with allowing(READ):
        try:
            return finished(torch.load(io.BytesIO(data), map_location=device, weights_only=True))
        except Exception as error:
            raise UnpicklingError(why_refused(data, error)) from None


@contextlib.contextmanager
def allowing(names: dict[str, Any]) -> Iterator[None]:
    """Let torch.load read these besides what the user has allowed, which stays as it was."""
    serialization = torch.serialization
    given = serialization.get_safe_globals()
    others = [one for one in given if full_name(one) not in names]
    serialization.clear_safe_globals()
    try:
        serialization.add_safe_globals([*others, *((value, name) for name, value in names.items())])
        yield
    finally:
        serialization.clear_safe_globals()
        serialization.add_safe_globals(given)


def full_name(allowed: Any) -> str:
    """The name by which torch.load finds what was allowed."""
    return allowed[1] if isinstance(allowed, tuple) else f"{allowed.__module__}.{allowed.__qualname__}"


def finished(value: Any) -> Any:
    """A value with what only stands for types, arrays and default dictionaries replaced."""
    if isinstance(value, NumberType):
        return real_type(value)
    if isinstance(value, NumberArray):
        return value.view(np.ndarray)
    if type(value) in (list, tuple):
        return type(value)(map(finished, value))
    if type(value) in (dict, collections.OrderedDict):
        for key in value:
            value[key] = finished(value[key])
        if hasattr(value, "default_factory"):
            return collections.defaultdict(value.default_factory, value)
    return value


def why_refused(data: bytes, error: Exception) -> str:
    """The error of torch.load in words; its own advise to read the file unsafely."""
    with contextlib.suppress(Exception):
        if names := torch.serialization.get_unsafe_globals_in_checkpoint(io.BytesIO(data)):
            return f"holds {', '.join(names)}, not read unless torch.serialization.add_safe_globals allows it"
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return f"is not readable ({lines[-2] if lines[0].startswith('Weights only') else lines[-1]})"
