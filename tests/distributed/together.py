"""The jobs of two ranks that are not slow, in one start: processes and imports take longer than most of them."""

import torch
from distributed.components import learnt
from distributed.minimizing import minimized
from distributed.steps import small_checks
from distributed.trajectories import everything

QUICK = {"optimizers": ["momentum"], "minimize": ["saga", "auto saga"], "components": ["passes"]}


def quick_jobs(folder):
    """Results by job; `folder` is for checkpoints."""
    return {
        "steps": small_checks(),
        "trajectories": everything(QUICK["optimizers"], torch.float64),
        "minimize": minimized(folder, QUICK["minimize"]),
        "components": learnt(QUICK["components"]),
    }
