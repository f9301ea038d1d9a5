"""The loop that learns rotations, resumable after a kill."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch
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


def learn(
    rotations: Rotations,
    objective: Objective,
    optimizer: torch.optim.Optimizer,
    steps: int,
    *,
    checkpoints: str | os.PathLike[str] | None = None,
    every: int = 10,
    report: Callable[[int, float], None] | None = None,
) -> None:
    """Minimise the objective with learning rates that fall linearly to zero.

    Args:
        rotations: Changed in place.
        objective: From `cross_entropy` or `rounding_error`; its value may depend on the step.
        optimizer: Of the rotations, as from `landing`.
        steps: In all, those before a resume included.
        checkpoints: Folder; a run that finds checkpoints there goes on from the latest, to the same rotations.
        every: Steps from one checkpoint to the next.
        report: Called with every step and value.
    """
    schedule = LambdaLR(optimizer, lambda step: 1 - step / steps)
    done = gs.load_checkpoint(checkpoints, rotations, optimizer, schedule=schedule) if checkpoints else 0
    for step in range(done, steps):
        optimizer.zero_grad()
        value = objective(rotations, step)
        optimizer.step()
        schedule.step()
        if report:
            report(step, value)
        if checkpoints and ((step + 1) % every == 0 or step + 1 == steps):
            gs.save_checkpoint(checkpoints, step + 1, rotations, optimizer, schedule=schedule)
