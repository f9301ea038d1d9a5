"""Contrast functions of independent components: how far from Gaussian a direction of whitened data is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from glideslope.solve.problems.ica import log_cosh
from glideslope.streams.arrays import Array, namespace, squared_lengths


class Contrast(NamedTuple):
    """A function G of one direction y of unit variance, with its derivative ψ. Functions with names, so it pickles."""

    scores: Callable[[Array], tuple[Array, Array]]
    """ψ(Y) of sources, one per row of Y, and the sum of ψ'(Y) along each."""
    slopes: Callable[[Array], Array]
    """ψ'(Y)."""
    value: Callable[[Tensor], Tensor]
    """G(Y)."""
    gaussian: float
    """E G(y) of a Gaussian y."""
    deviation: float
    """Standard deviation of the mean of ψ'(y) - y ψ(y) over N Gaussian y scaled to unit variance, times sqrt(N)."""


def _tanh(Y: Array) -> tuple[Array, Array]:
    scores = namespace(Y).tanh(Y)
    return scores, Y.shape[1] - squared_lengths(scores)


def _tanh_slopes(Y: Array) -> Array:
    return 1 - namespace(Y).tanh(Y) ** 2


def _gauss(Y: Array) -> tuple[Array, Array]:
    square = Y * Y
    bell = namespace(Y).exp(square / -2)
    return Y * bell, ((1 - square) * bell).sum(1)


def _gauss_slopes(Y: Array) -> Array:
    square = Y * Y
    return (1 - square) * namespace(Y).exp(square / -2)


def _bell(Y: Tensor) -> Tensor:
    return -(Y.square() / -2).exp()


def _cube(Y: Array) -> tuple[Array, Array]:
    square = Y * Y
    return Y * square, 3 * square.sum(1)


def _cube_slopes(Y: Array) -> Array:
    return 3 * (Y * Y)


def _fourth(Y: Tensor) -> Tensor:
    return Y.square().square() / 4


CONTRASTS = {
    "logcosh": Contrast(_tanh, _tanh_slopes, log_cosh, gaussian=0.3745672074914594, deviation=0.3534672037421352),
    "exp": Contrast(_gauss, _gauss_slopes, _bell, gaussian=-1 / math.sqrt(2), deviation=0.5721453217405746),
    "cube": Contrast(_cube, _cube_slopes, _fourth, gaussian=0.75, deviation=math.sqrt(24)),
}
