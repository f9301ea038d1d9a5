"""The rotations of a model: where they start, and what is minimised over them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

import glideslope as gs
from recipes.rotations.fold import ROLES, places, rotated, sizes
from recipes.rotations.quantise import Grid, Quantisation, fake_quantise, quantised
from recipes.rotations.texts import generator_of


class Rotations(nn.Module):
    """R1, hidden x hidden, and R2, layers x head_dim x head_dim, as parameters; scales as free ones."""

    def __init__(self, R1: Tensor, R2: Tensor) -> None:
        super().__init__()
        self.R1, self.R2 = nn.Parameter(R1), nn.Parameter(R2)
        self.scales = nn.Parameter(torch.ones(len(R2), len(ROLES), 2, dtype=R1.dtype, device=R1.device))

    @classmethod
    def start(cls, model: Any, kind: str, seed: int = 0, dtype: torch.dtype = torch.float32) -> Rotations:
        """Rotations of the sizes of a model: "identity", "random" or "hadamard" (see `hadamard_like`)."""
        hidden, layers, head = sizes(model)
        if kind not in STARTS:
            raise ValueError(f"kind must be one of {', '.join(STARTS)}; got {kind!r}")
        generator = torch.Generator().manual_seed(seed)
        R1, *R2 = (STARTS[kind](n, generator) for n in [hidden] + layers * [head])
        device = model.lm_head.weight.device
        return cls(R1.to(device, dtype), torch.stack(R2).to(device, dtype))


def identity(n: int, generator: torch.Generator) -> Tensor:
    """No rotation."""
    return torch.eye(n, dtype=torch.float64)


def random_rotation(n: int, generator: torch.Generator) -> Tensor:
    """Uniform over the orthogonal n x n matrices."""
    return gs.random_stiefel(n, n, generator=generator, dtype=torch.float64)


def hadamard_like(n: int, generator: torch.Generator) -> Tensor:
    """diag(signs) (H ⊗ Q): H a Hadamard matrix of the largest power of two that divides n, Q random for the rest."""
    H = torch.ones(1, 1, dtype=torch.float64)
    while n % (2 * len(H)) == 0:
        H = torch.cat([torch.cat([H, H], 1), torch.cat([H, -H], 1)]) / 2**0.5
    signs = torch.randint(0, 2, (n, 1), generator=generator) * 2.0 - 1
    rest = n // len(H)
    return signs * torch.kron(H, random_rotation(rest, generator) if rest > 1 else torch.eye(1, dtype=torch.float64))


STARTS = {"identity": identity, "random": random_rotation, "hadamard": hadamard_like}
Objective = Callable[["Rotations", int], float]


def cross_entropy(model: Any, grids: Quantisation, batches: Callable[[int], Tensor]) -> Objective:
    """Loss of the next token under quantisation, on the step's batch of token ids.

    An objective takes rotations and the number of a step, adds to the gradients and returns the value.
    """

    def objective(rotations: Rotations, step: int) -> float:
        ids = batches(step)
        with quantised(model, grids, rotations, scales=rotations.scales):
            logits = model(ids, use_cache=False).logits
            loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
            loss.backward()  # inside: layers are computed again
        return loss.item()

    return objective


def rounding_error(
    model: Any, grids: Quantisation, layers_per_step: int | None = None, seed: int = 0, *, stream: bool = True
) -> Objective:
    """Without data: mean over the linears of ‖Y - Q(Y)‖² / ‖Y‖², Y the rotated weight; Q(Y) is held fixed.

    With `stream`, plus the same mean over what is written to the residual stream, rounded as inputs are: columns of o
    and down. One weight at a time, so memory is that of the largest.

    Args:
        model: As `fuse_norms_` returns it.
        grids: Those of the weights, and with `stream` those of the inputs.
        layers_per_step: Layers drawn per step, by its number and the seed; None for all of them.
        seed: Of the draws.
        stream: Whether inputs count. It makes no difference if they have 16 bits.
    """
    writers = sum(not role.reads for role in ROLES.values())

    def objective(rotations: Rotations, step: int) -> float:
        order = torch.randperm(len(rotations.R2), generator=generator_of(seed, step))
        drawn = set(order[:layers_per_step].tolist())
        total = 0.0
        for i, place, linear in places(model):
            if i in drawn:
                W = linear.weight.to(rotations.R1.dtype)
                Y, _ = rotated(W, None, ROLES[place], rotations.R1, rotations.R2[i])
                loss = squared_error(Y, grids.weights) / len(ROLES)
                if stream and not ROLES[place].reads:
                    loss = loss + squared_error(Y.mT, grids.inputs) / writers
                loss = loss / (W.square().sum() * len(drawn))
                if torch.is_grad_enabled():
                    loss.backward()
                total += loss.item()
        return total

    return objective


def squared_error(Y: Tensor, grid: Grid) -> Tensor:
    """‖Y - Q(Y)‖² with Q(Y) held fixed."""
    return (Y - fake_quantise(Y.detach(), grid)).square().sum()
