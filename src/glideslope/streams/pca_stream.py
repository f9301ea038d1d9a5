"""The leading directions of a stream: one landing step for every batch, scaled by the variances found so far."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glideslope.engine.gradient import Factored
from glideslope.engine.products import Workspace
from glideslope.engine.rule import StepRule
from glideslope.formulas.normal import newton_schulz_factor
from glideslope.stiefel.geometry import Whole
from glideslope.streams.moments import PIECE_NUMBERS, Moments

# Directions with less than this share of the mean variance are scaled as if they had it.
LEAST_VARIANCE = 1e-5
# Directions followed beside those asked for: they keep the last of them apart from the rest of the spectrum.
SPARE = 10
# The first batch turns a random start towards the data, in several steps.
FIRST_STEPS = 5
# Steps are long, and variances are read off X as orthonormal: so it is exactly that after every step.
RULE = StepRule(metric="euclidean", normal_step="polar")


class Subspace:
    """Orthonormal X (n x q) that follows the leading subspace of the covariance of a stream; q is a little above p.

    With R the rows that a batch adds to the scatter matrix and Λ the running X^T C X, the gradient estimate is
    -R^T (R X) Λ^{-1} / b and the step size the batch's share of all rows: directions of every scale turn at the same
    pace, and no step size needs to be chosen. The estimate has rank b + 1 and is never formed.

    Args:
        n_columns: n, on all ranks together.
        n_components: p <= n.
        weight: Share of the past that a batch replaces, in (0, 1]; None means its share of the rows so far.
        generator: Of the random start.
        dtype: float32 or float64.
        device: Of the rows.
        geometry: Where the columns of the rows of the stream are, and with them the rows of X.
    """

    def __init__(
        self,
        n_columns: int,
        n_components: int,
        *,
        geometry: Whole | None = None,
        weight: float | None = None,
        generator: torch.Generator,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        self.geometry, self.n_columns = geometry or Whole(), n_columns
        held = self.geometry.held(n_columns)
        self.moments = Moments(held.stop - held.start, covariance=False, weight=weight, device=device)
        self.generator = generator
        self.n_components, self.dtype = n_components, dtype
        self.X: Tensor | None = None
        self.power: Tensor | None = None
        """Λ, shape (q, q)."""
        self.n_steps = 0
        self._other: Tensor | None = None
        self._workspace = Workspace()

    def __getstate__(self) -> dict[str, object]:
        """Without scratch memory."""
        return self.__dict__ | {"_workspace": Workspace(), "_other": None}

    def drop_scratch(self) -> None:
        """Give back the memory that only steps along batches need."""
        self._workspace, self._other = Workspace(), None

    @property
    def followed(self) -> int:
        """How many directions: q, a few more than p."""
        return min(self.n_components + SPARE, self.n_columns)

    def take_over(self, moments: Moments) -> None:
        """Begin with the exact decomposition of a whole covariance matrix."""
        variances, directions = torch.linalg.eigh(moments.covariance())
        q = self.followed
        self.moments.count, self.moments.mean = moments.count, moments.mean
        self.moments.scatter = moments.scatter.diagonal().clone()
        if float(self.moments.scatter.max()) > 0:
            self.X = directions[:, -q:].to(self.dtype).contiguous()
            self.power = torch.diag(variances[-q:].clamp(min=0))

    def take_over_left(self, W: Tensor) -> None:
        """Begin with the directions of N rows from W = A^T U: A the rows less their mean, U orthonormal (N x q).

        With W^T W = R Σ² R^T they are W R Σ^-1, for as many as have a variance that is more than rounding; the others
        are completed at random.
        """
        gram = torch.zeros((W.shape[1],) * 2, dtype=torch.float64, device=W.device)
        for block in torch.split(W, PIECE_NUMBERS // W.shape[1] or 1):
            wide = block.double()
            gram.addmm_(wide.T, wide)
        squares, rotation = torch.linalg.eigh(gram)
        q, N = self.followed, self.moments.count
        found = min(q, int((squares > N * torch.finfo(self.dtype).eps ** 2 * squares[-1]).sum()))
        leading = self.geometry.orthonormal(W @ (rotation[:, -found:] / squares[-found:].sqrt()).to(self.dtype))
        if found < q:
            rest = self.geometry.gaussian(self.n_columns, q - found, self.generator, self.dtype).to(W.device)
            rest -= leading @ (leading.T @ rest)
            leading = self.geometry.orthonormal(torch.cat((rest, leading), 1))
        self.X = leading
        self.power = torch.zeros((q, q), dtype=torch.float64, device=W.device)
        self.power.diagonal()[q - found :] = squares[-found:] / N

    def keep(self, n_components: int) -> None:
        """Follow fewer directions, those of largest variance, after an exact decomposition."""
        self.n_components = n_components
        if self.X is not None:
            assert self.power is not None
            q = self.followed
            self.X, self.power = self.X[:, -q:].contiguous(), self.power[-q:, -q:].contiguous()

    def update(self, rows: Tensor) -> None:
        """One step along a batch of rows, shape (b, n), of any b >= 1."""
        R = self.moments.update(rows)
        share = len(rows) / self.moments.count
        # The size of the batch is taken out, so that neither tiny nor huge data leaves the range of the type.
        length = math.sqrt(float(self.geometry.total(torch.linalg.vector_norm(R, dtype=torch.float64).square())))
        if length == 0:  # rows all alike say nothing of directions, but that there is less variance
            if self.power is not None:
                self.power *= 1 - share
            return
        R /= length
        variance = length * length / len(rows)
        first = self.X is None
        for _ in range(FIRST_STEPS if first else 1):
            self._step(R, variance, 1.0 if first else share)
        self.n_steps += 1

    def _step(self, R: Tensor, variance: float, share: float) -> None:
        """Add `variance` R^T R to Λ and turn X along it."""
        if self.X is None:
            self.X = self._start(R)
            self.power = torch.zeros((self.X.shape[1],) * 2, dtype=torch.float64, device=R.device)
        assert self.power is not None
        Y = self.geometry.product(R, self.X)
        self.power = self.power * (1 - share) + (Y.T @ Y).double() * (share * variance)
        self._move(Factored(R, self._scaled(Y, variance), Y), share)

    def _move(self, G: Tensor | Factored, weight: float) -> None:
        """A landing step, with Λ in the turned basis."""
        assert self.X is not None
        assert self.power is not None
        if self._other is None:
            self._other = torch.empty_like(self.X)
        after = self.geometry.step(self.X, G, weight, RULE, out=self._other, workspace=self._workspace).X
        turned = self.geometry.cross(self.X, after)
        turned = (turned @ newton_schulz_factor(turned.T @ turned)).double()
        self.power = turned.T @ self.power @ turned
        self.X, self._other = after, self.X

    def _scaled(self, Y: Tensor, variance: float) -> Tensor:
        """-Y Λ^{-1} in units of the batch, with a floor under the eigenvalues of Λ."""
        assert self.power is not None
        power = self.power / variance
        power.diagonal().add_(LEAST_VARIANCE * power.diagonal().mean())
        factor, _ = torch.linalg.cholesky_ex(power)
        return -torch.cholesky_solve(Y.T.double(), factor).T.to(Y.dtype)

    def _start(self, R: Tensor) -> Tensor:
        """A random combination of the first rows, completed at random where they are too few."""
        n, q, geometry = self.n_columns, self.followed, self.geometry
        draw = torch.randn((len(R), q), generator=self.generator, dtype=self.dtype).to(R.device)
        start = R.T @ draw
        rest = geometry.gaussian(n, q, self.generator, self.dtype).to(R.device)
        start += rest * (geometry.norm(start) / math.sqrt(n * q) * (1e-2 if len(R) > q else 1))
        return geometry.orthonormal(start)

    def finish(self) -> None:
        """Called after the last batch of a stream."""

    def ordered(self) -> tuple[Tensor, Tensor]:
        """Orthonormal directions (n x p) by falling variance, and their variances (float64): the Ritz pairs of X."""
        assert self.X is not None
        assert self.power is not None
        variances, rotation = torch.linalg.eigh(self.power)
        X = self.geometry.orthonormal(self.X) @ rotation.flip(1).to(self.dtype)
        p = self.n_components
        return X[:, :p], variances.flip(0)[:p].clamp(min=0)
