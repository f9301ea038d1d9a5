"""The loop that learns rotations, resumable after a kill."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

import glideslope as gs
from recipes.rotations.rotations import Objective, Rotations


def landing(rotations: Rotations, lr: float, scale_lr: float = 0.0) -> torch.optim.Optimizer:
    """One optimizer for rotations and, with their own learning rate, free scales; scale_lr = 0 leaves them at one."""
    rotations.scales.requires_grad_(scale_lr > 0)
    groups = [{"params": [rotations.R1]}, {"params": [rotations.R2]}]
    if scale_lr:
        groups.append({"params": [rotations.scales], "orthogonal": False, "lr": scale_lr})
    return gs.LandingAdam(groups, lr=lr)


def linear(done: float) -> float:
    """Share of the learning rate that is left after this share of the steps: falls evenly to zero."""
    return 1 - done


def cosine(done: float) -> float:
    """The same, flat at both ends: the decay of the code in use for rotations."""
    return (1 + math.cos(math.pi * done)) / 2


class Values:
    """The objective at every step, NaN where there was none yet. Checkpoints hold it, so a resume loses nothing."""

    def __init__(self, steps: int) -> None:
        self.of_steps = torch.full((steps,), torch.nan, dtype=torch.float64)

    def state_dict(self) -> dict[str, Tensor]:
        """For checkpoints."""
        return {"of_steps": self.of_steps}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """From a checkpoint of a run of as many steps."""
        self.of_steps = state["of_steps"]


def learn(
    rotations: Rotations,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    steps: int,
    *,
    checkpoints: str | os.PathLike[str] | None = None,
    every: int = 10,
    decay: Callable[[float], float] = linear,
    report: Callable[[int, float], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> list[float]:
    """Minimise the objective with learning rates that fall to zero; returns its value at every step done.

    Args:
        rotations: Changed in place.
        objective: From `cross_entropy` or `rounding_error`; its value may depend on the step.
        optimizer: Of the rotations, as from `landing`.
        steps: In all, those before a resume included.
        checkpoints: Folder; a run that finds checkpoints there goes on from the latest, to the same rotations.
        every: Steps from one checkpoint to the next.
        decay: `linear` or `cosine`.
        report: Called with every step and value.
        stop: Asked after every step; True ends the run early, with a checkpoint.
    """
    schedule, values = LambdaLR(optimizer, lambda step: decay(step / steps)), Values(steps)
    done = 0
    if checkpoints:
        done = gs.load_checkpoint(checkpoints, rotations, optimizer, schedule=schedule, values=values)
    while done < steps:
        optimizer.zero_grad()
        value = objective(rotations, done)
        optimizer.step()
        schedule.step()
        values.of_steps[done] = value
        if report:
            report(done, value)
        done += 1
        stopped = stop is not None and stop()
        if checkpoints and (done % every == 0 or done == steps or stopped):
            gs.save_checkpoint(checkpoints, done, rotations, optimizer, schedule=schedule, values=values)
        if stopped:
            break
    return values.of_steps[:done].tolist()
