"""What a model of principal components does with samples: components, samples from them, likelihood, covariance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from glideslope.estimators.inputs import as_array, new_samples
from glideslope.estimators.probabilistic import covariance, log_likelihood, precision
from glideslope.estimators.streaming import StreamEstimator
from glideslope.ranks.dtensors import is_sharded, local_part
from glideslope.streams.centred import CentredSparse, SparseRows
from glideslope.streams.pca_stream import Subspace


class PrincipalModel(StreamEstimator):
    """Base of `OnlinePCA`, which learns the components, mean and variances that are used here."""

    _stream: Subspace
    _ranks: Any
    whiten: bool
    components_: Any
    explained_variance_: np.ndarray
    mean_: Any
    noise_variance_: float

    def _projected(self, X: Any, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        """Squared lengths of samples less their mean, and their components."""
        check_is_fitted(self)
        if is_sharded(X) != (self._ranks is not None):
            here, there = ("on many ranks", "in one place") if is_sharded(X) else ("in one place", "on many ranks")
            raise ValueError(f"X is {here}, but OnlinePCA has learnt from samples {there}: give samples like those")
        rows = new_samples(self, X)
        if isinstance(rows, SparseRows):
            components, mean = self._on(torch.empty(0, dtype=dtype or rows.dtype))
            rows = rows if dtype is None else SparseRows(rows.matrix, dtype=dtype)
            data = CentredSparse(rows, mean, mean.device)
            return data.squares(), data.across(components.T.contiguous())
        rows = rows if dtype is None else rows.to(dtype)
        components, mean = self._on(rows)
        centred = rows - mean
        squares = self._stream.geometry.total(centred.square().sum(1))
        return squares, self._stream.geometry.product(centred, components.T)

    def transform(self, X: Any) -> np.ndarray:
        """Components of samples, shape (samples, n_components)."""
        _, Y = self._projected(X)
        return as_array(Y / self._scale(Y) if self.whiten else Y, Y.dtype)

    def inverse_transform(self, X: Any) -> Any:
        """Samples from their components, shape (samples, n): an array, or a DTensor if `components_` is one."""
        check_is_fitted(self)
        Y = new_samples(self, X, of_components=True)
        components, mean = self._on(Y)
        Y = Y * self._scale(Y) if self.whiten else Y
        samples = Y @ components + mean
        if self._ranks is None:
            return as_array(samples, Y.dtype)
        return self._ranks.spread(samples, (len(Y), self._stream.n_columns), dim=1)

    def score_samples(self, X: Any) -> np.ndarray:
        """Log-likelihood of every sample under the probabilistic model of the components and equal noise besides."""
        squares, Y = self._projected(X, torch.float64)
        variances = torch.from_numpy(self.explained_variance_).to(Y)
        n = self._stream.n_columns
        return as_array(log_likelihood(Y, squares, variances, self.noise_variance_, n), Y.dtype)

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of samples, as of `sklearn.decomposition.PCA`."""
        return float(self.score_samples(X).mean())

    def get_covariance(self) -> np.ndarray:
        """The covariance of the same model, shape (n, n)."""
        return self._of_model(covariance)

    def get_precision(self) -> np.ndarray:
        """Its inverse, shape (n, n)."""
        return self._of_model(precision)

    def _of_model(self, matrix: Callable[[np.ndarray, np.ndarray, float], np.ndarray]) -> np.ndarray:
        check_is_fitted(self)
        if self._ranks is not None:
            raise ValueError("a matrix of features x features has no place where features are on many ranks")
        V, variances = self.components_.astype(np.float64), self.explained_variance_.astype(np.float64)
        return matrix(V, variances, self.noise_variance_).astype(self.components_.dtype, copy=False)

    def _on(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Components and mean, of the type and on the device of rows."""
        held = (local_part(one) if is_sharded(one) else torch.from_numpy(one) for one in (self.components_, self.mean_))
        components, mean = (one.to(rows) for one in held)
        return components, mean

    def _scale(self, rows: Tensor) -> Tensor:
        scale = torch.from_numpy(self.explained_variance_).to(rows).sqrt()
        return scale.clamp(min=torch.finfo(rows.dtype).eps)
