"""Independent components from batches, or from data of any size: whitening, then a rotation learnt by landing."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from glideslope.estimators.inputs import (
    as_array,
    check_share,
    check_tolerance,
    check_whole,
    compute_device,
    generator_of,
    new_samples,
    training_rows,
)
from glideslope.estimators.streaming import Progress, StreamEstimator
from glideslope.formulas.arguments import check_option
from glideslope.solve.rows import Rows
from glideslope.stiefel.points import project, random_stiefel
from glideslope.streams.arrays import native
from glideslope.streams.ica_contrast import CONTRASTS
from glideslope.streams.ica_passes import BLOCK_NUMBERS, Descent, separate
from glideslope.streams.ica_rotation import Unmixing
from glideslope.streams.ica_stream import SourceStream
from glideslope.streams.moments import Moments
from glideslope.streams.threads import LEAST_PIECES, Apply, one_thread_if
from glideslope.streams.whitening import whitening_of

# More features than this, and than samples, are most likely signals in rows; their covariance would fill the memory.
WIDE = 8192
WHITENINGS = ("unit-variance", "arbitrary-variance", False)


class OnlineICA(StreamEstimator):
    """Independent sources of mixed signals, with the interface of `sklearn.decomposition.FastICA`.

    Super- and sub-Gaussian sources may be mixed; `fit` and `fit_stream` warn of sources that are too Gaussian to be
    separated. `fit` needs a few passes over the data, which may be a memory map larger than memory; `partial_fit` and
    `fit_stream` need one, batch by batch. Features may have any scales.

    Args:
        n_components: How many sources; None means as many as the data have independent directions.
        whiten: "unit-variance", "arbitrary-variance" (sources of variance 1/samples), or False for data that are
            white and centred already.
        fun: "logcosh", "exp" or "cube": how distance from a Gaussian is measured. Not a callable: the rule
            that decides signs needs the deviation of its curvature on Gaussian noise, known for these three.
        tol: Stop when the root mean square angle that a Newton step would turn by is below it, in radians.
        max_iter: Passes over the data at most, besides the one for whitening.
        forgetting: In a stream, the share of the past that a batch replaces, in (0, 1], for mixtures that change over
            time; None weighs every sample alike.
        n_restarts: Random starts; the least Gaussian result is kept.
        w_init: First rotation, shape (n_components, n_components); random unless given.
        device: Where to compute, such as "cuda".
        dtype: "float32" or "float64"; None means the type of the data.
        random_state: Seed of the starts and of the order of the samples.
        verbose: 1 shows progress.

    Attributes:
        components_: The unmixing matrix, shape (n_components, n): sources are (X - mean_) @ components_.T.
        mixing_: How strongly every source is in every feature, shape (n, n_components): features are mean_ + sources @
            mixing_.T. The pseudo-inverse of components_, unless features repeat others. The largest entry of every
            column is positive.
        whitening_: The map to white data, shape (n_components, n). Not there with whiten=False.
        mean_: Mean of every feature. Not there with whiten=False.
        n_iter_: Passes made by the last `fit`; 1 for a stream.
        n_samples_seen_: Samples so far.

    Examples:
        >>> signals = (torch.rand(1000, 3) @ torch.randn(3, 3)).numpy()
        >>> gs.estimators.OnlineICA(n_components=3, random_state=0).fit_transform(signals).shape
        (1000, 3)
    """

    def __init__(
        self,
        n_components: int | None = None,
        *,
        whiten: str | bool = "unit-variance",
        fun: str = "logcosh",
        tol: float = 1e-3,
        max_iter: int = 200,
        forgetting: float | None = None,
        n_restarts: int = 1,
        w_init: Any = None,
        device: Any = None,
        dtype: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.whiten = whiten
        self.fun = fun
        self.tol = tol
        self.max_iter = max_iter
        self.forgetting = forgetting
        self.n_restarts = n_restarts
        self.w_init = w_init
        self.device = device
        self.dtype = dtype
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> OnlineICA:
        """Learn from all samples, forgetting what was learnt before.

        Args:
            X: Samples, one per row: an array, data frame, torch tensor, or a memory map of any size.
            y: Ignored.
        """
        rows = training_rows(self, X, reset=True, least=2)
        few = one_thread_if(len(rows.slices(BLOCK_NUMBERS)) < LEAST_PIECES)
        with few, self._side_by_side(rows, BLOCK_NUMBERS) as apply, torch.inference_mode():
            self._fit(rows, apply)
        return self

    def _fit(self, rows: Rows, apply: Apply) -> None:
        self._begin(rows, whole=True)
        generator = self._stream.generator
        progress = Progress(type(self).__name__, self.verbose)
        moments = self._moments(rows, apply, progress)
        mean, K, unwhitening = self._whitening(moments, rows.dtype)
        best: tuple[float, Descent] | None = None
        for _ in range(self.n_restarts):
            start = self._start(K.shape[1], generator, rows.dtype)
            model = Unmixing(native(mean), native(K), native(start), CONTRASTS[self.fun])
            found = separate(
                model,
                rows,
                tolerance=float(self.tol),
                max_passes=int(self.max_iter),
                report=lambda passes, angle: progress.say(f"pass {passes}, angle {angle:.1e}"),
                apply=apply,
            )
            score = model.negentropy(found.sweep) if self.n_restarts > 1 else 0.0
            if best is None or score > best[0]:
                best = (score, found)
        assert best is not None
        found = best[1]
        self.n_samples_seen_, self.n_iter_ = len(rows), found.steps
        self._stream.go_on_from(moments, found.model, unwhitening)
        self._set_attributes()
        progress.end(f"{found.steps} passes, angle {found.angle:.1e}")
        self._warn(self._left(found), stacklevel=4)

    def fit_stream(self, batches: Iterable[Any]) -> OnlineICA:
        """Learn from an iterable of batches, such as a generator or a DataLoader, forgetting what was learnt before.

        Args:
            batches: Samples, or tuples of samples and labels.
        """
        super().fit_stream(batches)
        self._warn([], stacklevel=3)
        return self

    def _left(self, found: Descent) -> list[str]:
        """Why a fit ended above `tol`, unless that is because sources look Gaussian."""
        if found.ending == "rounding":
            name = str(self._stream.dtype).removeprefix("torch.")
            wider = ", or give dtype='float64'" if name == "float32" else ""
            return [
                f"after {found.steps} passes the angle stays at {found.angle:.1e}, the rounding of {name}, which is "
                f"above tol={self.tol:g}. Raise tol{wider}"
            ]
        if found.ending == "limit":
            return [
                f"the angle left after {found.steps} passes is {found.angle:.1e}, above tol={self.tol:g}. "
                "Raise max_iter or tol; fewer n_components help where some sources are nearly Gaussian"
            ]
        return []

    def _warn(self, reasons: list[str], *, stacklevel: int) -> None:
        """Say why the result is not what was asked for, and which sources cannot be found at all."""
        model = self._stream.model
        alike = [number for number, gaussian in enumerate(model.like_noise().tolist()) if gaussian]
        if len(alike) > 1:
            reasons.append(
                f"components {', '.join(map(str, alike))} of 0 to {len(model.X) - 1} are no less Gaussian than noise "
                "of this many samples, which cannot separate such sources from each other. "
                "Give more samples, or fewer n_components"
            )
        if reasons:
            warnings.warn(f"OnlineICA: {'. '.join(reasons)}", ConvergenceWarning, stacklevel=stacklevel)

    def _begin(self, rows: Rows, *, whole: bool) -> None:
        N, n = rows.shape
        if whole and n > N and n > WIDE:
            raise ValueError(
                f"OnlineICA needs the covariance of all features, and X has only {N} samples (rows) of {n} features "
                f"(columns). If signals are rows, give X.T; otherwise reduce the features first, by OnlinePCA"
            )
        self._check_parameters(n, N if whole else None)
        generator = generator_of(self.random_state)
        p = self._count(n)
        self._stream = SourceStream(
            n,
            p,
            contrast=CONTRASTS[self.fun],
            whiten=bool(self.whiten),
            weight=None if self.forgetting is None else float(self.forgetting),
            start=None if self.w_init is None else self._start(p or n, generator, rows.dtype),
            generator=generator,
            dtype=rows.dtype,
            device=compute_device(self),
        )

    def _count(self, n_features: int) -> int | None:
        if not self.whiten:
            if self.n_components not in (None, n_features):
                warnings.warn("OnlineICA: n_components is ignored with whiten=False", UserWarning, stacklevel=5)
            return n_features
        return None if self.n_components is None else int(self.n_components)

    def _whitening(self, moments: Moments, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None]:
        """Mean, whitening matrix K (n x p) and its inverse map."""
        n = len(moments.mean)
        if not self.whiten:
            eye = torch.eye(n, dtype=dtype, device=moments.mean.device)
            return eye.new_zeros(n), eye, None
        K, inverse = whitening_of(moments.covariance(), moments.mean, self._count(n), dtype)
        return moments.mean.to(dtype), K.to(dtype), inverse

    def _start(self, p: int, generator: torch.Generator, dtype: torch.dtype) -> Tensor:
        """The first rotation: X = W^T for the W of FastICA."""
        if self.w_init is None:
            return random_stiefel(p, p, generator=generator, dtype=dtype).to(compute_device(self))
        given = torch.as_tensor(np.asarray(self.w_init), dtype=dtype)
        if given.shape != (p, p):
            raise ValueError(f"w_init must have shape {(p, p)}; got {tuple(given.shape)}")
        return project(given.T.contiguous()).to(compute_device(self))

    def _set_attributes(self) -> None:
        model = self._stream.model
        if model is None:  # too few samples so far
            return
        dtype = self._stream.dtype
        components = torch.as_tensor(model.unmixing.T).double().cpu().numpy()
        mixing = self._stream.mixing.cpu().numpy()
        if self.whiten == "arbitrary-variance":
            root = math.sqrt(self.n_samples_seen_)
            components, mixing = components / root, mixing * root
        signs = np.sign(mixing[np.abs(mixing).argmax(0), np.arange(mixing.shape[1])])
        signs[signs == 0] = 1
        self.components_ = as_array(torch.from_numpy(components * signs[:, np.newaxis]), dtype)
        self.mixing_ = as_array(torch.from_numpy(mixing * signs), dtype)
        if self.whiten:
            self.whitening_ = as_array(torch.as_tensor(model.whitening.T), dtype)
            self.mean_ = as_array(torch.as_tensor(model.mean), dtype)

    def transform(self, X: Any) -> np.ndarray:
        """Sources of samples, shape (samples, n_components)."""
        self._check_fitted()
        rows = new_samples(self, X)
        if self.whiten:
            rows = rows - torch.from_numpy(self.mean_).to(rows)
        return as_array(rows @ torch.from_numpy(self.components_).to(rows).T, rows.dtype)

    def inverse_transform(self, X: Any) -> np.ndarray:
        """Mixed signals from their sources, shape (samples, n)."""
        self._check_fitted()
        sources = new_samples(self, X, of_components=True)
        mixed = sources @ torch.from_numpy(self.mixing_).to(sources).T
        return as_array(mixed + torch.from_numpy(self.mean_).to(sources) if self.whiten else mixed, sources.dtype)

    def _check_fitted(self) -> None:
        if getattr(self, "n_samples_seen_", 0) and not hasattr(self, "components_"):
            raise NotFittedError(
                f"OnlineICA has seen {self.n_samples_seen_} samples, which do not vary in enough directions yet: it "
                f"needs {self._stream.n_wanted} different samples or more. Call partial_fit with more of them"
            )
        check_is_fitted(self)

    def _check_parameters(self, n_features: int, n_samples: int | None) -> None:
        most, limit = n_features, "n_features"
        if n_samples is not None and n_samples <= n_features and self.whiten:
            most, limit = n_samples - 1, "n_samples - 1, samples being rows,"
        check_whole("n_components", self.n_components, most=most, limit=limit, optional=True)
        check_whole("max_iter", self.max_iter)
        check_whole("n_restarts", self.n_restarts)
        check_tolerance("tol", self.tol)
        check_share("forgetting", self.forgetting)
        check_option("whiten", self.whiten, WHITENINGS)
        check_option("fun", self.fun, tuple(CONTRASTS))
