"""Rounding in a step: the unit rounding of products, and how far a computed field is from tangent.

In exact arithmetic sym(X^H T) = 0 for every tangent part T. Computed, T = ½ (G S - X C^H) cancels terms as large
as C = X^H G, so a gradient almost normal to the manifold leaves a drift ‖sym(X^H T)‖ of order u ‖C‖ that no
lemma knows of. The step charges itself for that drift.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glideslope.formulas.arguments import REAL_TYPE
from glideslope.formulas.orthogonality import frobenius, per_matrix


def drift_rate(X: Tensor, metric: str = "canonical", *, rows: int | None = None) -> float:
    """The r with ‖sym(X^H T)‖ <= r ‖X^H G‖ for the computed tangent part T; `rows` is n where X is only a part of it.

    Sums of n and p terms lose up to one unit rounding per term: half of that was measured, for columns of one
    repeated value and p <= 16; random columns lose about five units whatever n. The Euclidean T is twice as long.
    """
    n, p = X.shape[-2:] if rows is None else (rows, X.shape[-1])
    once = torch.finfo(X.dtype).eps / 2 * (n + p + 8) + 8 * reduced_rounding(X)
    return once if metric == "canonical" else 2 * once


def reduced_rounding(X: Tensor) -> float:
    """Unit rounding of the factors of products with X where torch may round them to TF32 or bfloat16, else 0."""
    precision = product_precision()
    if X.dtype not in (torch.float32, torch.complex64) or precision == "highest":
        return 0.0
    if precision == "high":
        return 0.0 if X.device.type == "cpu" else 2.0**-11
    return 2.0**-8


def product_precision() -> str:
    """The setting of torch for float32 products, read once by a compiled step."""
    return torch.get_float32_matmul_precision()


# What torch.compiler.assume_constant_result sets; calling that would import the compiler.
product_precision._dynamo_marked_constant = True  # type: ignore[attr-defined]


def distance_margin(X: Tensor, *, rows: int | None = None) -> float:
    """By how much rounding in a step of length about one can change ‖X^H X - I‖."""
    return 2 * drift_rate(X, rows=rows) + torch.finfo(X.dtype).eps * math.sqrt(X.shape[-1])


def smallest_norm(X: Tensor, *, rows: int | None = None) -> float:
    """The norm of a field below which the squares in it underflow."""
    return math.sqrt((X.shape[-2] if rows is None else rows) * X.shape[-1] * torch.finfo(X.dtype).tiny)


def overflow_free_norm(M: Tensor) -> Tensor:
    """Frobenius norm of each matrix, for entries up to the largest number of the type."""
    if not (M.shape[-2] and M.shape[-1]):
        return frobenius(M)
    if type(M) is not Tensor or M.device.type != "cpu" or torch.compiler.is_compiling():
        if M.device.type == "mps" or M.dtype in (torch.float64, torch.complex128):
            return _scaled_norm(M)
        wide = torch.complex128 if M.is_complex() else torch.float64
        norms: Tensor = torch.linalg.vector_norm(M, dim=(-2, -1), dtype=wide)
        return norms.to(REAL_TYPE[M.dtype])
    narrow = frobenius(M)
    # On the host a look at the result is free.
    if math.isfinite((narrow if M.ndim == 2 else narrow.sum()).item()):
        return narrow
    return torch.where(torch.isfinite(narrow), narrow, _scaled_norm(M))


def _scaled_norm(M: Tensor) -> Tensor:
    largest = torch.linalg.vector_norm(M, ord=math.inf, dim=(-2, -1))
    scale = torch.where((largest > 0) & torch.isfinite(largest), largest, 1)
    norms: Tensor = torch.linalg.vector_norm(M / per_matrix(scale), dim=(-2, -1))
    return norms * scale


def zero_where_not_finite_(M: Tensor) -> Tensor:
    """M with zeros for its entries that are not finite, in place."""
    numbers = torch.view_as_real(M) if M.is_complex() else M
    torch.nan_to_num_(numbers, nan=0.0, posinf=0.0, neginf=0.0)
    return M
