"""Principal components, section 4.1 of the paper: f(X) = -1/(2N) ‖A X‖_F², the rows of A the samples."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from glideslope.solve.problem import Optimum, RowSum
from glideslope.theory import Constants, quadratic_constants

# The covariance is kept up to this width.
LARGEST_COVARIANCE = 4096


class PCA(RowSum):
    """The p directions of largest variance of centred data: f_i(X) = -½ ‖a_i X‖².

    Args:
        data: Samples, one per row, shape (N, n); torch tensor, NumPy array or memory map, real or complex.
        n_components: p; None means as many as X0 has columns.
        mean: Mean of the samples, shape (n,), subtracted as they are read; None if they are centred.

    Examples:
        >>> data = torch.randn(200, 10) * torch.arange(10.0)
        >>> gs.minimize(gs.problems.PCA(data - data.mean(0), 2)).converged
        True
    """

    kept = ("_passes",)

    def __init__(self, data: Any, n_components: int | None = None, *, mean: Tensor | None = None) -> None:
        super().__init__(data, n_components, mean=mean)
        self._passes = 0
        self._covariance: Tensor | None = None

    def loss(self, Y: Tensor, index: Tensor | slice) -> Tensor:
        """Sum of -½ ‖y_i‖²."""
        return -Y.abs().square().sum() / 2

    def scores(self, Y: Tensor, index: Tensor | slice) -> Tensor:
        """The derivatives -y_i."""
        return -Y

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """f(X) and its gradient: by the data, and after n/(2p) passes by the covariance, which has paid by then."""
        self._passes += 1
        if not self._covariance_pays(X):
            return super().value_and_gradient(X)
        if self._covariance is None:
            self._covariance = self.covariance().to(X.device)
        G = self._covariance @ -X
        return (X.conj() * G).real.sum() / 2, G

    def value(self, X: Tensor) -> Tensor:
        """f(X)."""
        return self.value_and_gradient(X)[0] if self._covariance_pays(X) else super().value(X)

    def begin(self) -> None:
        """Count passes anew, so that a run changes from data to covariance at the same step every time."""
        self._passes = 0

    def _covariance_pays(self, X: Tensor) -> bool:
        n, p = X.shape
        return self.rows.ranks is None and n <= min(LARGEST_COVARIANCE, self.n_terms) and self._passes > n / (2 * p)

    def covariance(self) -> Tensor:
        """A^H A / N, shape (n, n), in the data's type."""
        self.refuse_ranks("its covariance")
        return self.second_moment()

    def optimum(self) -> Optimum:
        """The leading eigenvectors of the covariance and f there, from a float64 decomposition. Cost O(n³)."""
        self.refuse_ranks("its optimum")
        _, p = self.known_shape()
        wide = torch.promote_types(self.rows.dtype, torch.float64)
        eigenvalues, vectors = torch.linalg.eigh(self.second_moment(wide))
        X = vectors[:, -p:].flip(-1).to(self.dtype)
        return Optimum(X, -float(eigenvalues[-p:].sum()) / 2)

    def constants(self, safe_radius: float, *, each_term: bool = False) -> Constants:
        """Constants of f; or of the terms, from the longest row: L = ‖a‖², L' = sqrt(1+ε) ‖a‖², s = (1+ε) ‖a‖²."""
        _, p = self.known_shape()
        if not each_term:
            return quadratic_constants(-self.covariance(), columns=p, safe_radius=safe_radius)
        longest = self.largest_row_norm() ** 2
        stretch = math.sqrt(1 + safe_radius)
        return Constants(smoothness=longest, gradient_bound=stretch * longest, symmetric_bound=stretch**2 * longest)
