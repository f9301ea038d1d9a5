"""Checks of the options that torch's optimizers have too."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

Group = dict[str, Any]


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
