"""What estimators are given: parameters, and samples as arrays, data frames, tensors, memory maps or batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_array, check_random_state, validate_data
from torch import Tensor

from glideslope.ranks.agreement import agree
from glideslope.ranks.columns import ColumnRanks, column_ranks
from glideslope.ranks.dtensors import is_sharded
from glideslope.solve.rows import Rows, refuse_what_is_not_finite
from glideslope.streams.centred import SparseRows

TYPES = {"float32": torch.float32, "float64": torch.float64}


def training_rows(estimator: BaseEstimator, X: Any, *, reset: bool, least: int = 1) -> Rows:
    """Samples to learn from, with scikit-learn's checks; a memory map stays on disk and is read in pieces.

    Args:
        estimator: Gets `n_features_in_` and, of a data frame, `feature_names_in_`, or is compared with them.
        X: Samples, one per row.
        reset: Whether this is the first data of a fit.
        least: Samples there must be.
    """
    wanted = compute_type(estimator)
    X = without_half(X)
    sharded = is_sharded(X)
    if sharded:
        refuse_ranks(estimator)
        if X.ndim == 2:
            check_alike(estimator, X)
    if sharded or isinstance(X, np.memmap) or (isinstance(X, Tensor) and X.device.type != "cpu"):
        if X.ndim != 2:
            raise ValueError(f"Expected 2D array, one sample per row; got shape {tuple(X.shape)}. Reshape your data.")
        if X.shape[0] < least or X.shape[1] < 1:
            raise ValueError(f"Found array with {X.shape[0]} sample(s) while a minimum of {least} is required.")
        if np.dtype(str(X.dtype).removeprefix("torch.")).kind == "c":
            raise ValueError(f"Complex data not supported: X has the type {X.dtype}")
        if wanted is None and str(X.dtype).removeprefix("torch.") not in TYPES:
            raise ValueError(f"X has the type {X.dtype}: give dtype='float32' to read it as such, piece by piece")
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        data: Any = X
    else:
        data = validate_data(
            estimator,
            X.detach().numpy() if isinstance(X, Tensor) else X,
            dtype=[np.float64, np.float32],
            reset=reset,
            ensure_min_samples=least,
            ensure_all_finite=False,
            accept_sparse="csr" if getattr(estimator, "takes_sparse", False) else False,
        )
        if not isinstance(data, np.ndarray):  # sparse, CSR
            return SparseRows(data, name="X", dtype=wanted)
    # Of NaN in a part of the columns all ranks must hear at once.
    return Rows(data, name="X", dtype=wanted, checked=not sharded)


def new_samples(estimator: BaseEstimator, X: Any, *, of_components: bool = False) -> Any:
    """Samples to transform, as a tensor of the estimator's type on its device, or sparse rows; finite.

    Args:
        estimator: Fitted.
        X: Samples, or, with `of_components`, their components. Of a DTensor, the columns of this rank.
        of_components: Do not compare the width with that of the training data.
    """
    X = without_half(X)
    if is_sharded(X) and not of_components:
        refuse_ranks(estimator)
        validate_data(estimator, X, reset=False, skip_check_array=True)
        return Rows(X, name="X", dtype=compute_type(estimator)).take(slice(None))
    array = X.detach().cpu().numpy() if isinstance(X, Tensor) else X
    kinds: dict[str, Any] = {"dtype": [np.float64, np.float32], "ensure_all_finite": False}
    kinds["accept_sparse"] = "csr" if getattr(estimator, "takes_sparse", False) and not of_components else False
    array = check_array(array, **kinds) if of_components else validate_data(estimator, array, reset=False, **kinds)
    if not isinstance(array, np.ndarray):  # sparse, CSR
        return SparseRows(array, name="X", dtype=compute_type(estimator))
    width, expected = array.shape[1], len(estimator.components_)
    if of_components and width != expected:
        raise ValueError(f"X has {width} columns, but {type(estimator).__name__} has {expected} components")
    rows = Rows(array, name="X", dtype=compute_type(estimator), checked=True).take(slice(None))
    refuse_what_is_not_finite(rows, "X")
    return rows.to(compute_device(estimator))


def refuse_ranks(estimator: Any) -> None:
    """Raise a ValueError if an estimator takes no samples with columns on many ranks."""
    if not getattr(estimator, "takes_ranks", False):
        name = type(estimator).__name__
        raise ValueError(f"{name} takes samples in one place; X is a DTensor. Give X.full_tensor(), or use OnlinePCA")


def check_alike(estimator: Any, X: Any) -> None:
    """Raise a ValueError on all ranks where they have other numbers of samples, types or parameters."""
    words = {"the shape of X": str(tuple(X.shape)), "the type of X": str(X.dtype)}
    words |= {name: repr(value) for name, value in estimator.get_params().items() if name != "random_state"}
    agree(type(estimator).__name__, words, column_ranks(X, "X").groups)


def without_half(X: Any) -> Any:
    """Tensors of half precision in float32, as NumPy knows no bfloat16."""
    return X.float() if isinstance(X, Tensor) and X.dtype in (torch.bfloat16, torch.float16) else X


def compute_type(estimator: Any) -> torch.dtype | None:
    """The type that `dtype=` asks for; None where the data decide."""
    wanted: Any = estimator.dtype
    if wanted is None:
        return None
    if isinstance(wanted, torch.dtype) and wanted in TYPES.values():
        return wanted
    try:
        return TYPES[np.dtype(wanted).name]
    except (TypeError, KeyError):
        raise ValueError(f"dtype must be None, 'float32' or 'float64'; got {wanted!r}") from None


def compute_device(estimator: Any) -> torch.device:
    """The device that `device=` asks for; the CPU by default."""
    return torch.device("cpu" if estimator.device is None else estimator.device)


def batches_of(rows: Rows, size: int, estimator: Any, generator: torch.Generator | None) -> Iterator[Tensor]:
    """All rows in batches on the estimator's device: shuffled where they are in memory, in order from a file."""
    device = compute_device(estimator) if rows.ranks is None else rows.device
    n = len(rows)
    order = torch.randperm(n, generator=generator) if generator is not None and rows.in_memory else None
    for start in range(0, n, size):
        stop = min(start + size, n)
        batch = rows.take(slice(start, stop) if order is None else order[start:stop].to(rows.device))
        refuse_what_is_not_finite(batch, "X", start) if order is None else _refuse(batch, order[start:stop])
        yield batch.to(device)


def _refuse(batch: Tensor, rows: Tensor) -> None:
    """As `refuse_what_is_not_finite`, for rows with these numbers."""
    if not bool(torch.isfinite(batch.sum(dtype=torch.float64))):
        for row, line in zip(rows.tolist(), batch, strict=True):
            refuse_what_is_not_finite(line.unsqueeze(0), "X", row)


def first_of(batch: Any) -> Any:
    """The samples of what a DataLoader gives: a batch, or a batch with labels."""
    return batch[0] if isinstance(batch, (tuple, list)) and len(batch) and hasattr(batch[0], "shape") else batch


def numbered(batches: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Batches with their number."""
    if hasattr(batches, "shape"):
        raise ValueError("batches must be an iterable of arrays, one sample per row each; for one array use fit")
    return ((number, first_of(batch)) for number, batch in enumerate(batches))


def generator_of(random_state: Any, ranks: ColumnRanks | None = None) -> torch.Generator:
    """A torch generator seeded by scikit-learn's `random_state`, alike on all ranks."""
    seed = int(check_random_state(random_state).randint(np.iinfo(np.int32).max))
    return torch.Generator().manual_seed(seed if ranks is None else ranks.common_seed(seed))


def as_array(tensor: Tensor, dtype: torch.dtype) -> np.ndarray:
    """A tensor as an array of its own memory, of the estimator's type."""
    return np.array(tensor.detach().to(dtype).cpu().numpy())


def check_whole(name: str, value: Any, *, most: int | None = None, limit: str = "", optional: bool = False) -> None:
    """A whole number from 1 to `most`; None too where it is optional.

    Args:
        name: Of the parameter.
        value: What was given.
        most: The largest allowed.
        limit: What that is, in words.
        optional: Whether None is allowed.
    """
    if value is None and optional:
        return
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if most is None and (not whole or value < 1):
        raise ValueError(f"{name} must be a whole number >= 1; got {value!r}")
    if most is not None and (not whole or not 1 <= value <= most):
        raise ValueError(f"{name} must be a whole number from 1 to {limit} = {most}; got {value!r}")


def is_number(value: Any) -> bool:
    """Whether a value is a real number, and no bool."""
    return not isinstance(value, bool) and isinstance(value, Real)


def check_share(name: str, value: Any) -> None:
    """None, or a number in (0, 1]."""
    if value is not None and (not is_number(value) or not 0 < value <= 1):
        raise ValueError(f"{name} must be None or a number in (0, 1]; got {value!r}")


def check_tolerance(name: str, value: Any) -> None:
    """A number above zero."""
    if not is_number(value) or not value > 0:
        raise ValueError(f"{name} must be a number > 0; got {value!r}")
