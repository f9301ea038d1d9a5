"""Fake quantisation with straight-through gradients, and a model that runs with it and with rotations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from recipes.rotations.fold import ROLES, places, rotated


@dataclass(frozen=True)
class Grid:
    """The numbers a tensor is rounded to. Entries of the last dimension share a step: all of them, or `group` each.

    So inputs are rounded per token, weights per output channel, or both in groups.
    """

    bits: int
    symmetric: bool = True
    group: int | None = None


@dataclass(frozen=True)
class Quantisation:
    """Grids of the weights and of the inputs of all linears between the embedding and the head; 16 bits: unrounded."""

    weights: Grid
    inputs: Grid

    @classmethod
    def named(cls, name: str, group: int | None = None) -> Quantisation:
        """From a name like "W4A8": weights symmetric, inputs asymmetric."""
        found = re.fullmatch(r"W(\d+)A(\d+)", name)
        if not found or not all(2 <= int(bits) <= 16 for bits in found.groups()):
            raise ValueError(f"a quantisation is named like W4A8, with 2 to 16 bits; got {name!r}")
        return cls(Grid(int(found[1]), True, group), Grid(int(found[2]), False, group))


class Round(torch.autograd.Function):
    """round(x) with the gradient of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        """To the nearest whole number."""
        return x.round()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        """Straight through."""
        return grad


def fake_quantise(x: Tensor, grid: Grid, clip: Tensor | float = 1.0) -> Tensor:
    """X rounded to the grid. Its derivative is that of step * round(x / step) with round' = 1, the step's included.

    Args:
        x: Any shape; the last dimension a multiple of `grid.group`.
        grid: 16 bits return x itself.
        clip: The grid ends at this multiple of the extreme entries, which are clipped.
    """
    if grid.bits >= 16:
        return x
    if grid.group and x.shape[-1] % grid.group:
        raise ValueError(f"group={grid.group} must divide the last dimension, {x.shape[-1]}")
    grouped = x.unflatten(-1, (-1, grid.group)) if grid.group else x
    if grid.symmetric:
        bottom, top = 1 - 2 ** (grid.bits - 1), 2 ** (grid.bits - 1) - 1
        reach = grouped.abs().amax(-1, keepdim=True) * clip
    else:
        bottom, top = 0, 2**grid.bits - 1
        low = grouped.amin(-1, keepdim=True).clamp(max=0) * clip
        reach = grouped.amax(-1, keepdim=True).clamp(min=0) * clip - low
    step = (reach / top).clamp(min=torch.finfo(x.dtype).tiny)
    zero = 0.0 if grid.symmetric else Round.apply(-low / step)
    result = ((Round.apply(grouped / step) + zero).clamp(bottom, top) - zero) * step
    return result.flatten(-2) if grid.group else result


def check_groups(model: Any, grids: Quantisation) -> None:
    """A ValueError that names a linear whose inputs the group does not divide."""
    group = grids.weights.group
    for i, place, linear in places(model):
        if group and linear.in_features % group:
            raise ValueError(f"group={group} must divide {linear.in_features}, the inputs of model.layers.{i}.{place}")


@contextmanager
def quantised(
    model: Any, grids: Quantisation, rotations: Any = None, *, scales: Tensor | None = None, recompute: bool = True
) -> Iterator[Any]:
    """Inside, the model computes as if folded with the rotations and rounded; gradients reach rotations and scales.

    Args:
        model: As `fuse_norms_` returns it. Its own weights are never written, and may be bfloat16: rotations are
            applied and rounded in the rotations' dtype.
        grids: What to round to.
        rotations: `Rotations`; None for a model that is folded already, or to be taken as it is.
        scales: Multiples of the extreme entries at which grids end, shape layers x 7 x 2 (linears, weight and input).
        recompute: Keep one hidden state per layer for the backward pass instead of all activations.
    """
    replaced: list[nn.Module] = [linear for _, _, linear in places(model)]
    for i, place, linear in places(model):
        clips = (1.0, 1.0) if scales is None else scales[i, list(ROLES).index(place)]
        linear.forward = partial(rounded_linear, linear, place, grids, rotations, i, clips)  # type: ignore[method-assign]
    if rotations is not None:
        embedding, head = model.model.embed_tokens, model.lm_head
        embedding.forward = partial(rotated_embedding, embedding, rotations)
        head.forward = partial(rotated_head, head, rotations)
        replaced += [embedding, head]
    if recompute:
        for layer in model.model.layers:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
            replaced.append(layer)
    try:
        yield model
    finally:
        for module in replaced:
            del module.__dict__["forward"]


def rounded_linear(
    linear: nn.Linear, place: str, grids: Quantisation, rotations: Any, i: int, clips: Any, x: Tensor
) -> Tensor:
    """What a linear returns for inputs x that come from a rotated stream."""
    W, bias = linear.weight, linear.bias
    if rotations is not None:
        wide = rotations.R1.dtype
        W, bias = rotated(
            W.to(wide), None if bias is None else bias.to(wide), ROLES[place], rotations.R1, rotations.R2[i]
        )
    W = fake_quantise(W, grids.weights, clips[0]).to(x.dtype)
    return functional.linear(fake_quantise(x, grids.inputs, clips[1]), W, None if bias is None else bias.to(x.dtype))


def rotated_embedding(embedding: nn.Embedding, rotations: Any, ids: Tensor) -> Tensor:
    """Rows of E R1."""
    rows = functional.embedding(ids, embedding.weight)
    return (rows.to(rotations.R1.dtype) @ rotations.R1).to(rows.dtype)


def rotated_head(head: nn.Linear, rotations: Any, x: Tensor) -> Tensor:
    """X (W R1)ᵀ, by turning x back: the head is not rounded."""
    return functional.linear((x.to(rotations.R1.dtype) @ rotations.R1.mT).to(x.dtype), head.weight, head.bias)
