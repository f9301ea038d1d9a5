"""What both estimators share: learning from one batch, or from an iterable of them."""

from __future__ import annotations

import sys
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import chain
from typing import Any, TypeVar

import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from glideslope.estimators.inputs import batches_of, compute_device, numbered, training_rows
from glideslope.solve.rows import BLOCK_NUMBERS, Rows, refuse_what_is_not_finite
from glideslope.streams.centred import SparseRows
from glideslope.streams.moments import PIECE_NUMBERS, Moments
from glideslope.streams.threads import Apply, side_by_side


class Progress:
    """One line on stderr that says how far a fit is; silent unless verbose.

    Args:
        name: Of the estimator.
        verbose: Its parameter.
    """

    def __init__(self, name: str, verbose: int) -> None:
        self.name, self.verbose, self._started, self._last = name, verbose, time.perf_counter(), 0.0

    def say(self, text: str) -> None:
        """Show a state of the fit, at most ten times a second."""
        now = time.perf_counter()
        if self.verbose and now - self._last > 0.1:
            self._last = now
            self._write(text)

    def end(self, text: str) -> None:
        """Show the last state and end the line."""
        if self.verbose:
            self._write(text)
            sys.stderr.write("\n")

    def _write(self, text: str) -> None:
        line = f"{self.name}: {text}, {time.perf_counter() - self._started:.1f} s"
        sys.stderr.write(f"\r{line:<78}")
        sys.stderr.flush()


Estimator = TypeVar("Estimator", bound="StreamEstimator")


class StreamEstimator(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A transformer whose `_stream` learns from batches of rows."""

    verbose: int
    components_: Any
    n_samples_seen_: int
    n_iter_: int
    _stream: Any

    @abstractmethod
    def _begin(self, rows: Rows, *, whole: bool) -> None:
        """Check the parameters and make a new `_stream` for rows like these; `whole` if they are all there are."""

    @abstractmethod
    def _set_attributes(self) -> None:
        """scikit-learn's attributes from the state of the stream."""

    def partial_fit(self: Estimator, X: Any, y: Any = None) -> Estimator:
        """Learn from one batch of a stream.

        Args:
            X: Samples, one per row; at least one.
            y: Ignored.
        """
        self._learn(X)
        self._set_attributes()
        return self

    def fit_stream(self: Estimator, batches: Iterable[Any]) -> Estimator:
        """Learn from an iterable of batches, such as a generator or a DataLoader, forgetting what was learnt before.

        Args:
            batches: Samples, or tuples of samples and labels; read once.
        """
        progress = Progress(type(self).__name__, self.verbose)
        self.__dict__.pop("_stream", None)
        for number, batch in numbered(batches):
            try:
                self._learn(batch)
            except ValueError as error:
                raise ValueError(f"batch {number}: {error}") from error
            progress.say(f"{self.n_samples_seen_} samples")
        if not hasattr(self, "_stream"):
            raise ValueError("batches has no batch: give an iterable of arrays, one sample per row")
        with torch.inference_mode():
            self._stream.finish()
        self._set_attributes()
        progress.end(f"{self.n_samples_seen_} samples")
        return self

    def _learn(self, X: Any) -> None:
        first = not hasattr(self, "_stream")
        try:
            rows = training_rows(self, X, reset=first)
            # A sparse batch becomes dense, and is learnt from, a piece at a time.
            size = max(1, BLOCK_NUMBERS // rows.shape[1]) if isinstance(rows, SparseRows) else len(rows)
            pieces = batches_of(rows, size, self, None)
            piece = next(pieces)
            if first:
                self._begin(rows, whole=False)
                self.n_samples_seen_ = 0
        except Exception:
            if first:  # a batch that was refused leaves nothing behind
                for name in ("_stream", "n_features_in_", "feature_names_in_"):
                    self.__dict__.pop(name, None)
            raise
        with torch.inference_mode():  # many small operations, each without autograd's bookkeeping
            for batch in chain([piece], pieces):
                self._stream.update(batch.to(self._stream.dtype))
        self.n_samples_seen_ += len(rows)
        self.n_iter_ = 1

    def _side_by_side(self, rows: Rows, numbers: int) -> AbstractContextManager[Apply]:
        """`side_by_side` for blocks of so many numbers, but one by one where sums of a block are larger than it."""
        wide = rows.shape[1] ** 2 > numbers
        return side_by_side(compute_device(self), 0 if wide else len(rows.slices(numbers)))

    def _moments(self, rows: Rows, apply: Apply, progress: Progress) -> Moments:
        """Mean and covariance by one pass over the data, which also looks for NaN and infinity."""
        device = compute_device(self)
        if rows.shape[1] ** 2 > PIECE_NUMBERS:  # the scatter matrix of a piece would be larger than the piece
            whole = Moments(rows.shape[1], covariance=True, device=device)
            for batch in batches_of(rows, max(1, PIECE_NUMBERS // rows.shape[1]), self, None):
                whole.update(batch)
                progress.say(f"covariance, {whole.count:.0f} of {len(rows)} samples")
            return whole

        def of_block(where: slice) -> Moments:
            block = rows.take(where)
            refuse_what_is_not_finite(block, "X", where.start)
            found = Moments(rows.shape[1], covariance=True, device=device)
            found.update(block.to(device))
            return found

        parts: Iterator[Moments] = iter(apply(of_block, rows.slices(PIECE_NUMBERS)))
        moments = next(parts)
        for part in parts:
            moments.merge(part)
            progress.say(f"covariance, {moments.count:.0f} of {len(rows)} samples")
        return moments

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there are components."""
        return hasattr(self, "components_")

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)
