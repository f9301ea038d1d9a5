"""Contrast functions of independent components: how far from Gaussian a direction of whitened data is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from glideslope.solve.problems.ica import log_cosh


class Contrast(NamedTuple):
    """A function G of one direction y of unit variance, with its derivative ψ."""

    scores: Callable[[Tensor], tuple[Tensor, Tensor]]
    """ψ(Y), and the sum over rows of ψ'(Y)."""
    value: Callable[[Tensor], Tensor]
    """G(Y)."""
    gaussian: float
    """E G(y) of a Gaussian y."""


def _tanh(Y: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.tanh(Y)
    return scores, len(Y) - torch.linalg.vector_norm(scores, dim=0).square()


def _gauss(Y: Tensor) -> tuple[Tensor, Tensor]:
    square = Y.square()
    bell = torch.exp(square / -2)
    return Y * bell, ((1 - square) * bell).sum(0)


def _cube(Y: Tensor) -> tuple[Tensor, Tensor]:
    square = Y.square()
    return Y * square, 3 * square.sum(0)


CONTRASTS = {
    "logcosh": Contrast(_tanh, log_cosh, 0.3745672074914594),
    "exp": Contrast(_gauss, lambda Y: -torch.exp(Y.square() / -2), -1 / math.sqrt(2)),
    "cube": Contrast(_cube, lambda Y: Y.square().square() / 4, 0.75),
}
