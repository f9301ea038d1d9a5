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
    """ψ(Y) of sources, one per row of Y, and the sum of ψ'(Y) along each."""
    value: Callable[[Tensor], Tensor]
    """G(Y)."""
    gaussian: float
    """E G(y) of a Gaussian y."""


def _tanh(Y: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.sigmoid(Y + Y).mul(2).sub_(1)  # tanh: a third of the time of torch.tanh, the same to a rounding of 1
    return scores, Y.shape[1] - torch.linalg.vecdot(scores, scores)


def _gauss(Y: Tensor) -> tuple[Tensor, Tensor]:
    square = Y.square()
    bell = torch.exp(square / -2)
    return Y * bell, ((1 - square) * bell).sum(1)


def _cube(Y: Tensor) -> tuple[Tensor, Tensor]:
    square = Y.square()
    return Y * square, 3 * square.sum(1)


CONTRASTS = {
    "logcosh": Contrast(_tanh, log_cosh, 0.3745672074914594),
    "exp": Contrast(_gauss, lambda Y: -torch.exp(Y.square() / -2), -1 / math.sqrt(2)),
    "cube": Contrast(_cube, lambda Y: Y.square().square() / 4, 0.75),
}
