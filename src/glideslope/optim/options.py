"""Options of groups: checks of those that torch's optimizers have too, and the rule of a landing step."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from glideslope.engine.rule import StepRule

Group = dict[str, Any]
LANDING_OPTIONS = ("attraction", "safe_radius", "metric", "normal_step", "safeguard")


def check_number(group: Group, name: str, *, below: float = math.inf) -> None:
    """Raise a ValueError unless 0 <= group[name] < below."""
    number = group[name]
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number < below:
        accepted = "finite and >= 0" if below == math.inf else f"in [0, {below:g})"
        raise ValueError(f"{name} must be {accepted}; got {number!r}")


def check_learning_rate(group: Group) -> None:
    """Raise a ValueError unless lr is a finite number >= 0 or a tensor of one element."""
    lr = group["lr"]
    if not isinstance(lr, Tensor):
        check_number(group, "lr")
    elif lr.numel() != 1:
        raise ValueError(f"lr must be a number or a tensor of one element; got shape {tuple(lr.shape)}")


def learning_rate(group: Group) -> float | Tensor:
    """The learning rate, a number or a tensor of shape ()."""
    lr: float | Tensor = group["lr"]
    return lr.reshape(()) if isinstance(lr, Tensor) else lr


def check_sgd_options(group: Group) -> None:
    """Raise a ValueError for a bad momentum, dampening, weight_decay or nesterov."""
    for name in ("momentum", "dampening", "weight_decay"):
        check_number(group, name)
    if group["nesterov"] and (group["momentum"] <= 0 or group["dampening"] != 0):
        raise ValueError(
            f"nesterov=True needs momentum > 0 and dampening = 0; got momentum={group['momentum']!r}, "
            f"dampening={group['dampening']!r}"
        )


def check_adam_options(group: Group) -> None:
    """Raise a ValueError for bad betas, eps or weight_decay."""
    for name in ("eps", "weight_decay"):
        check_number(group, name)
    betas = group["betas"]
    numbers = isinstance(betas, (tuple, list)) and all(isinstance(beta, (int, float)) for beta in betas)
    if not numbers or len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        raise ValueError(f"betas must be two numbers in [0, 1); got {betas!r}")


def rule_of(group: Group, known: StepRule | None = None, sigma: float = 1.0) -> StepRule:
    """The landing options of a group, checked; `known` if they are the same.

    A number λ becomes λσ with the step size η/σ of X/σ, so that the pull ηλ of a step stays what it was.
    """
    options = tuple([group[option] for option in LANDING_OPTIONS])
    if sigma != 1 and not isinstance(options[0], str):
        options = (options[0] * sigma, *options[1:])
    if group["scale"] == "free" and group["normal_step"] == "landing" and group["attraction"] != "auto":
        raise ValueError(
            f'scale="free" needs attraction="auto" or another normal_step; got attraction={group["attraction"]!r}, '
            "whose pull would change with σ"
        )
    return known if known is not None and options == known.options else StepRule(*options)
