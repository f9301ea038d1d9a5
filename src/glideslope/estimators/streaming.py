"""What both estimators share: learning from one batch, or from an iterable of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

from glideslope.estimators.inputs import batches_of, numbered, training_rows
from glideslope.estimators.progress import Progress
from glideslope.solve.rows import Rows

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
            batches: Samples, or tuples of samples and labels; read `n_epochs` times where there is such a parameter.
        """
        progress = Progress(type(self).__name__, self.verbose)
        self.__dict__.pop("_stream", None)
        passes = getattr(self, "n_epochs", 1)
        for number, batch in numbered(batches, passes):
            try:
                self._learn(batch)
            except ValueError as error:
                raise ValueError(f"batch {number}: {error}") from error
            progress.say(f"{self.n_samples_seen_} samples")
        if not hasattr(self, "_stream"):
            raise ValueError("batches has no batch: give an iterable of arrays, one sample per row")
        self.n_samples_seen_, self.n_iter_ = self.n_samples_seen_ // passes, passes
        with torch.inference_mode():
            self._stream.finish()
        self._set_attributes()
        progress.end(f"{self.n_samples_seen_} samples")
        return self

    def _learn(self, X: Any) -> None:
        first = not hasattr(self, "_stream")
        try:
            rows = training_rows(self, X, reset=first)
            (batch,) = batches_of(rows, len(rows), self, None)
            if first:
                self._begin(rows, whole=False)
                self.n_samples_seen_ = 0
        except Exception:
            if first:  # a batch that was refused leaves nothing behind
                for name in ("_stream", "n_features_in_", "feature_names_in_"):
                    self.__dict__.pop(name, None)
            raise
        with torch.inference_mode():  # many small operations, each without autograd's bookkeeping
            self._stream.update(batch.to(self._stream.dtype))
        self.n_samples_seen_ += len(rows)
        self.n_iter_ = 1

    def __sklearn_is_fitted__(self) -> bool:
        """Whether there are components."""
        return hasattr(self, "components_")

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)
