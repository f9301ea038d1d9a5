"""The inverse square root of a p x p matrix near the identity, in the fewest products: its binomial series.

`formulas.normal.inverse_square_root` is the same root by Newton-Schulz iterations, which need no bound below 1.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from glideslope.formulas.normal import inverse_square_root, newton_schulz_iterations

# Coefficients of (1 + e)^{-1/2} in powers of e.
BINOMIAL = tuple((-1) ** k * math.comb(2 * k, k) / 4**k for k in range(64))
# Largest |e| for which the series is used: at 0.4 it has 40 terms in float64.
SERIES_REACH = 0.4


def inverse_square_root_series(E: Tensor, error: float, rounding: float, factor: float = 1.0) -> Tensor:
    """Factor (I + E)^{-1/2} for a Hermitian p x p matrix E with ‖E‖_2 <= error < 1, up to rounding.

    The binomial series in blocks of four powers: k blocks take k + 2 products, one takes two, where Newton-Schulz
    iterations of the same accuracy take half as many again. They take over where the series converges slowly.
    """
    p = E.shape[0]
    identity, coefficients = series_constants(p, E.dtype, E.device)
    if error > SERIES_REACH:
        iterations = newton_schulz_iterations(error, rounding)
        return inverse_square_root(E + identity, iterations=iterations) * factor
    blocks = series_blocks(error, rounding)
    square = torch.mm(E, E)
    powers = torch.stack([identity, E, square, torch.mm(square, E)]).view(4, -1)
    weights = coefficients[:blocks] if factor == 1 else coefficients[:blocks] * factor
    *lower, result = torch.mm(weights, powers).view(blocks, p, p).unbind()
    if lower:
        fourth = torch.mm(square, square)
        for part in reversed(lower):
            result = torch.addmm(part, result, fourth)
    return result


@functools.lru_cache(maxsize=8)
def series_constants(p: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """The identity, and the coefficients of (1 + e)^{-1/2} in rows of four."""
    with torch.inference_mode(False):
        return torch.eye(p, dtype=dtype, device=device), torch.tensor(BINOMIAL, dtype=dtype, device=device).view(-1, 4)


def series_blocks(error: float, rounding: float) -> int:
    """How many blocks of four terms of the series of (1 + e)^{-1/2} leave less than the rounding: at least one."""
    return max(1, math.ceil(math.log(rounding) / math.log(error) / 4)) if error > 0 else 1
