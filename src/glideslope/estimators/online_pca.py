"""Principal components: of a stream by a step for each batch, of whole data by an exact decomposition or passes."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from glideslope.estimators.inputs import (
    as_array,
    batches_of,
    check_share,
    check_tolerance,
    check_whole,
    compute_device,
    generator_of,
    training_rows,
)
from glideslope.estimators.principal_model import PrincipalModel
from glideslope.estimators.streaming import Progress
from glideslope.solve.rows import Rows
from glideslope.stiefel.geometry import Whole
from glideslope.streams.centred import Centred, CentredSparse, SparseRows
from glideslope.streams.moments import PIECE_NUMBERS
from glideslope.streams.pca_passes import Refinement
from glideslope.streams.pca_stream import Subspace
from glideslope.streams.threads import one_thread_if

# Samples of a batch by default: smaller ones take longer, larger ones find less in the same pass.
SMALLEST_BATCH = 256
# Up to this many features the covariance is decomposed, and up to this many samples their products: eigenvectors of
# that size take less time than a few passes.
NARROW = 512
# So are larger ones of at most this many times the directions followed: passes hold as much as the matrix has.
FEW_TIMES = 4
# Multiplications below which a fit takes one thread, which does them in a few milliseconds.
LITTLE_WORK = 3e7
# Passes by default, at most: with the start and the end twelve products with the data, where the randomized solver of
# scikit-learn has sixteen. Momentum makes up for the others on every spectrum.
MOST_PASSES = 6


class OnlinePCA(PrincipalModel):
    """Principal components of data that come in batches, do not fit in memory, or are too wide for a covariance.

    `fit` has all data and finds the components of an exact decomposition: at once for up to 512 features, or samples in
    memory; otherwise by passes over the data, until what is missing is below `tol`. `partial_fit` and `fit_stream` see
    every sample once: each batch, of any size, turns the components a little, and the result is an estimate.

    For more features than one machine holds, give DTensors whose columns are on many ranks, `Shard(1)`, on all of them:
    `components_` and `mean_` are then DTensors spread alike, and so are the samples that `inverse_transform` gives.

    Args:
        n_components: How many components; None means as many as samples or features, whichever are fewer. A number in
            (0, 1) means as many as explain more than this share of the variance: `fit` only, by an exact decomposition.
        batch_size: Samples per batch in the first pass of `fit`; None means 256, or twice `n_components`.
        forgetting: In a stream, the share of the past that a batch replaces, in (0, 1], for data that change over time;
            None weighs every sample alike.
        n_epochs: Passes of `fit` over the data at most; the first learns batch by batch. None means as many as needed,
            at most six, and one where an exact decomposition is cheaper: up to 512 features or samples, or four times
            `n_components` of either.
        whiten: Whether `transform` gives components of unit variance.
        tol: `fit` stops when, relative to its variance, what is missing of a component is below it.
        device: Where to compute, such as "cuda".
        dtype: "float32" or "float64"; None means the type of the data. float32 finds no components of less than 1e-6 of
            the largest variance, such as those next to a feature in much smaller units.
        random_state: Seed of the start and of the order of the samples.
        verbose: 1 shows progress.

    Attributes:
        components_: Orthonormal rows by falling variance, the entry of largest size positive; (n_components, n).
        explained_variance_: Variances of the components: exact after `fit`, running estimates in a stream.
        explained_variance_ratio_: Their shares of the whole variance.
        singular_values_: sqrt(variance x (samples - 1)).
        noise_variance_: Mean variance of the directions left out.
        mean_: Mean of every feature.
        n_samples_seen_: Samples so far, those of one pass.
        n_iter_: Passes made by the last `fit`.

    Examples:
        >>> data = (torch.randn(300, 10) * torch.arange(1.0, 11.0)).numpy()
        >>> gs.estimators.OnlinePCA(n_components=2).fit(data).components_.shape
        (2, 10)
    """

    takes_ranks = True
    takes_sparse = True

    def __sklearn_tags__(self) -> Any:
        """Sparse samples are taken."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __init__(
        self,
        n_components: float | None = None,
        *,
        batch_size: int | None = None,
        forgetting: float | None = None,
        n_epochs: int | None = None,
        whiten: bool = False,
        tol: float = 2e-3,
        device: Any = None,
        dtype: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.batch_size = batch_size
        self.forgetting = forgetting
        self.n_epochs = n_epochs
        self.whiten = whiten
        self.tol = tol
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> OnlinePCA:
        """Learn from all samples, forgetting what was learnt before.

        Args:
            X: Samples, one per row: an array, data frame, torch tensor, SciPy sparse matrix (which stays sparse), or a
                memory map of any size.
            y: Ignored.
        """
        rows = training_rows(self, X, reset=True, least=2)
        self._begin(rows, whole=True)
        progress = Progress(type(self).__name__, self.verbose)
        self.n_samples_seen_, self.n_iter_ = len(rows), 1
        N, n = rows.shape
        # Few samples in memory are decomposed by their products with each other, all others by their covariance.
        self._by_products = rows.in_memory and n > N and n > NARROW
        exact = min(N, n) if self._by_products else n
        with torch.inference_mode(), one_thread_if(N * n * min(N, n) < LITTLE_WORK):
            if self.n_epochs is not None or rows.ranks is not None:
                self._learn_and_refine(rows, progress)
            elif self._share is not None or exact <= max(NARROW, FEW_TIMES * self._stream.followed):
                self._decompose(rows, progress)
            elif self._by_products or isinstance(rows, SparseRows):
                # A pass batch by batch takes as long as four others, and few samples repay it with one.
                self._sketch_and_refine(rows, progress)
            else:
                self._learn_and_refine(rows, progress)
            self._set_attributes()
        progress.end(f"{self.n_iter_} passes, {100 * self.explained_variance_ratio_.sum():.2f} % of the variance")
        return self

    def _decompose(self, rows: Rows, progress: Progress) -> None:
        """All eigenvectors of the covariance, or of the products of few samples: exact."""
        stream = self._stream
        if self._by_products:
            data = self._centred(rows, progress)
            if float(stream.moments.scatter.max()) > 0:
                stream.take_over_left(
                    data.down(torch.linalg.eigh(data.products())[1][:, -stream.followed :].to(rows.dtype))
                )
        else:
            with self._side_by_side(rows, PIECE_NUMBERS) as apply:
                moments = self._moments(rows, apply, progress)
            stream.take_over(moments)
        if self._share is not None and stream.X is not None:
            captured = stream.ordered()[1].cumsum(0) / stream.moments.covariance().sum()
            stream.keep(min(int((captured <= self._share).sum()) + 1, stream.n_components))

    def _sketch_and_refine(self, rows: Rows, progress: Progress) -> None:
        """Passes of one step each from random combinations of the data, on the side that is shorter."""
        stream, data = self._stream, self._centred(rows, progress)
        if float(stream.moments.scatter.max()) == 0:
            return
        size = rows.shape[1] if self._by_products else len(rows)
        draw = torch.randn((size, stream.followed), generator=stream.generator, dtype=rows.dtype).to(data.device)
        if self._by_products:
            U = self._refined(Whole().orthonormal(data.across(draw)), data.products_times, progress)
            stream.take_over_left(data.down(U))
        else:
            stream.X = self._refined(Whole().orthonormal(data.down(draw)), data.covariance_times, progress)
            stream.power = data.power(stream.X)

    def _learn_and_refine(self, rows: Rows, progress: Progress) -> None:
        """A pass batch by batch, as of a stream, then passes of one step each."""
        stream = self._stream
        for batch in batches_of(rows, self._batch_size(), self, stream.generator):
            stream.update(batch)
            progress.say(f"{stream.moments.count:.0f} of {len(rows)} samples")
        if stream.X is None:
            return
        stream.drop_scratch()
        data = self._products(rows)
        X, stream.X = stream.X, None
        stream.X = self._refined(X, data.covariance_times, progress) if self.n_epochs != 1 else X
        stream.power = data.power(stream.X)

    def _refined(self, X: Tensor, times: Callable[[Tensor], Tensor], progress: Progress) -> Tensor:
        stream = self._stream
        refinement = Refinement(
            X,
            times,
            total=float(stream.geometry.total(stream.moments.covariance().sum())),
            n_components=stream.n_components,
            geometry=stream.geometry,
            tolerance=float(self.tol),
            passes=(self.n_epochs or MOST_PASSES) - 1,
            report=lambda number: progress.say(f"pass {1 + number}"),
        )
        self.n_iter_ = 1 + refinement.run()
        if refinement.gradient > self.tol:
            warnings.warn(
                f"OnlinePCA: after {self.n_iter_} passes the gradient is {refinement.gradient:.1e} of the "
                f"variance, above tol={self.tol:g}. Raise n_epochs for closer components, or tol if these will do",
                ConvergenceWarning,
                stacklevel=4,
            )
        return refinement.X

    def _centred(self, rows: Rows, progress: Progress) -> Centred:
        """All samples, in memory, less their mean; the stream gets mean and variances."""
        if isinstance(rows, SparseRows):
            self._stream.moments = rows.moments(compute_device(self))
        else:
            for batch in batches_of(rows, max(1, PIECE_NUMBERS // rows.shape[1]), self, None):
                self._stream.moments.update(batch)
        progress.say(f"{len(rows)} samples")
        return self._products(rows)

    def _products(self, rows: Rows) -> Centred:
        moments = self._stream.moments
        return (CentredSparse if isinstance(rows, SparseRows) else Centred)(rows, moments.mean, moments.mean.device)

    def _begin(self, rows: Rows, *, whole: bool) -> None:
        N, n = rows.shape
        most, limit = (min(N, n), f"min(n_samples={N}, n_features={n})") if whole else (n, "n_features")
        self._share = self._checked_share(rows, whole=whole)
        if self._share is None:
            check_whole("n_components", self.n_components, most=most, limit=limit, optional=True)
        check_whole("batch_size", self.batch_size, optional=True)
        check_whole("n_epochs", self.n_epochs, optional=True)
        check_share("forgetting", self.forgetting)
        check_tolerance("tol", self.tol)
        self._stream = Subspace(
            n,
            most if self.n_components is None or self._share is not None else int(self.n_components),
            weight=None if self.forgetting is None else float(self.forgetting),
            geometry=rows.geometry,
            generator=generator_of(self.random_state, rows.ranks),
            dtype=rows.dtype,
            device=compute_device(self) if rows.ranks is None else rows.device,
        )
        self._ranks = rows.ranks

    def _checked_share(self, rows: Rows, *, whole: bool) -> float | None:
        """`n_components` as a share of the variance in (0, 1), None where it is a number of components."""
        share = self.n_components
        if not (isinstance(share, float) and 0 < share < 1):
            return None
        told = f"n_components={share:g} is a share of the variance, which takes an exact decomposition of all samples: "
        if not whole:
            raise ValueError(told + "use fit, or give partial_fit and fit_stream a whole number of components")
        if self.n_epochs is not None:
            raise ValueError(told + f"leave n_epochs at None; got {self.n_epochs!r}")
        if rows.ranks is not None:
            raise ValueError(told + "with features on many ranks, give a whole number of components")
        return share

    def _batch_size(self) -> int:
        return self.batch_size or max(SMALLEST_BATCH, 2 * self._stream.n_components)

    def _set_attributes(self) -> None:
        stream, dtype = self._stream, self._stream.dtype
        moments, geometry, p, n = stream.moments, stream.geometry, stream.n_components, stream.n_columns
        unbiased = self.n_samples_seen_ / max(self.n_samples_seen_ - 1, 1)
        total = float(geometry.total(moments.covariance().sum())) * unbiased
        if total > torch.finfo(dtype).max:
            raise ValueError(f"X varies by {total:.0e}, too much for {dtype}: scale it, or give dtype='float64'")
        if stream.X is None:  # nothing but equal samples so far
            directions = torch.eye(n, p, dtype=torch.float64)[geometry.held(n)]
            variances = torch.zeros(p, dtype=torch.float64)
        else:
            directions, variances = stream.ordered()
        directions = directions * torch.sign(geometry.largest(directions))
        variances = variances * unbiased
        self.components_ = self._attribute(directions.T, (p, n))
        self.explained_variance_ = as_array(variances, dtype)
        self.explained_variance_ratio_ = as_array(variances / total if total > 0 else variances * 0, dtype)
        self.singular_values_ = as_array((variances * max(self.n_samples_seen_ - 1, 0)).sqrt(), dtype)
        self.noise_variance_ = max(total - float(variances.sum()), 0.0) / max(min(n, self.n_samples_seen_) - p, 1)
        self.mean_ = self._attribute(moments.mean, (n,))
        self.n_components_ = p

    def _attribute(self, local: Tensor, shape: tuple[int, ...]) -> Any:
        """An array, or a DTensor where the columns of the samples are on many ranks."""
        dtype = self._stream.dtype
        if self._ranks is None:
            return as_array(local, dtype)
        return self._ranks.spread(local.to(dtype), shape, dim=len(shape) - 1)
