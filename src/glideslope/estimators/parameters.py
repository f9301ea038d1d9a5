"""Checks of parameters, made when an estimator is fitted, as scikit-learn wants it."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any


def check_whole(name: str, value: Any, *, most: int | None = None, limit: str = "", optional: bool = False) -> None:
    """A whole number from 1 to `most`; None too where it is optional.

    Args:
        name: Of the parameter.
        value: What was given.
        most: The largest allowed.
        limit: What that is, in words.
        optional: Whether None is allowed.
    """
    if value is None and optional:
        return
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if most is None and (not whole or value < 1):
        raise ValueError(f"{name} must be a whole number >= 1; got {value!r}")
    if most is not None and (not whole or not 1 <= value <= most):
        raise ValueError(f"{name} must be a whole number from 1 to {limit} = {most}; got {value!r}")


def is_number(value: Any) -> bool:
    """Whether a value is a real number, and no bool."""
    return not isinstance(value, bool) and isinstance(value, Real)


def check_share(name: str, value: Any) -> None:
    """The word "auto", or a number in (0, 1]."""
    if value != "auto" and (not is_number(value) or not 0 < value <= 1):
        raise ValueError(f"{name} must be 'auto' or a number in (0, 1]; got {value!r}")


def check_tolerance(name: str, value: Any) -> None:
    """A number above zero."""
    if not is_number(value) or not value > 0:
        raise ValueError(f"{name} must be a number > 0; got {value!r}")
