"""The methods that are compared: how each steps the hidden matrices. The rate of all other parameters is fixed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import AdamW, Muon, Optimizer

import glideslope as gs
from benchmarks.muon.manifold_muon import ManifoldMuon

FREE: dict[str, Any] = {"lr": 1e-2, "weight_decay": 0.0}


@dataclass(frozen=True)
class Method:
    """`build(model, lr)` makes the optimizers of one training; lr is that of the hidden matrices.

    `signs` is the number of matrix signs per matrix and step, of methods that do not count them.
    """

    name: str
    build: Callable[[nn.Module, float], list[Optimizer]]
    rates: tuple[float, ...]
    keeps_orthonormal: bool = True
    signs: int = 0


def hidden_matrices(model: nn.Module) -> list[nn.Parameter]:
    """The weights of the blocks that are matrices."""
    return [param for name, param in model.named_parameters() if name.startswith("blocks.") and param.ndim == 2]


def others(model: nn.Module) -> list[nn.Parameter]:
    """All other parameters."""
    hidden = set(hidden_matrices(model))
    return [param for param in model.parameters() if param not in hidden]


def adamw(model: nn.Module, lr: float) -> list[Optimizer]:
    """One AdamW for everything."""
    return [AdamW([{"params": hidden_matrices(model)}, {"params": others(model), **FREE}], lr=lr)]


def adamw_landing(model: nn.Module, lr: float) -> list[Optimizer]:
    """The same with landing attached."""
    return [gs.attach_landing(optimizer, gs.param_groups(model)) for optimizer in adamw(model, lr)]


def muon(model: nn.Module, lr: float) -> list[Optimizer]:
    """Muon for the hidden matrices."""
    return [Muon(hidden_matrices(model), lr=lr), AdamW(others(model), **FREE)]


def muon_landing(model: nn.Module, lr: float) -> list[Optimizer]:
    """The same with landing attached to Muon."""
    optimizer, free = muon(model, lr)
    return [gs.attach_landing(optimizer, gs.param_groups(model)), free]


def manifold_muon(model: nn.Module, lr: float) -> list[Optimizer]:
    """Dual ascent for the hidden matrices."""
    return [ManifoldMuon(hidden_matrices(model), lr=lr), AdamW(others(model), **FREE)]


def landing_adam(model: nn.Module, lr: float) -> list[Optimizer]:
    """One LandingAdam for everything."""
    groups = [group if group["orthogonal"] else group | FREE for group in gs.param_groups(model)]
    return [gs.LandingAdam(groups, lr=lr)]


def landing_of(optimizers: list[Optimizer]) -> gs.LandingAdam | None:
    """The landing optimizer among them, attached or not, which has diagnostics; None if there is none."""
    found = (opt if isinstance(opt, gs.LandingAdam) else getattr(opt, "landing", None) for opt in optimizers)
    return next((each for each in found if each is not None), None)


METHODS = (
    Method("AdamW", adamw, (1e-3, 3e-3, 1e-2, 3e-2), keeps_orthonormal=False),
    Method("Muon", muon, (1e-2, 3e-2, 1e-1, 3e-1), keeps_orthonormal=False, signs=1),
    Method("Muon + landing", muon_landing, (1e-2, 3e-2, 1e-1, 3e-1), signs=1),
    Method("manifold Muon, dual ascent", manifold_muon, (1e-2, 3e-2, 1e-1, 3e-1)),
    Method("AdamW + landing", adamw_landing, (3e-3, 1e-2, 3e-2, 1e-1)),
    Method("LandingAdam", landing_adam, (3e-3, 1e-2, 3e-2, 1e-1)),
)
