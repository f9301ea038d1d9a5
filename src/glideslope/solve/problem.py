"""Problems for `minimize`: one torch function, a mean of terms, or a mean of terms φ(a_i X) over rows of data."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glideslope.engine.gradient import Factored
from glideslope.formulas.arguments import check_whole_number
from glideslope.solve.checkpoint import Resumable
from glideslope.solve.rows import Rows
from glideslope.stiefel.geometry import Whole
from glideslope.theory import Constants


class Optimum(NamedTuple):
    """A known solution."""

    X: Tensor
    value: float


class Problem(Resumable, ABC):
    """A function f(X) = (1/N) Σ f_i(X) of one n x p matrix.

    What changes in it during a run, and would change its values, is named in `kept`.
    """

    n_terms: int = 1
    shape: tuple[int, int] | None = None
    """(n, p), or None where only X0 knows it."""
    dtype: torch.dtype | None = None
    device: torch.device | None = None
    geometry: Whole = Whole()
    """How norms and products of X are computed: where its rows are on many ranks, by sums over them."""
    from_numpy: bool = False
    """Whether the data came as NumPy arrays, so that solutions go back as such."""

    @abstractmethod
    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """f(X), of shape (), and the Euclidean gradient, of the shape of X."""

    def value(self, X: Tensor) -> Tensor:
        """f(X), of shape ()."""
        return self.value_and_gradient(X)[0]

    def gradient(self, X: Tensor) -> Tensor:
        """Euclidean gradient of f at X."""
        return self.value_and_gradient(X)[1]

    def batch_gradient(self, X: Tensor, index: Tensor | slice) -> Tensor | Factored:
        """Euclidean gradient of the mean of the terms of an index, or its factors."""
        raise NotImplementedError(f"{type(self).__name__} is not a sum of terms")

    def optimum(self) -> Optimum | None:
        """A known minimiser on the Stiefel manifold, or None."""
        return None

    def constants(self, safe_radius: float, *, each_term: bool = False) -> Constants | None:
        """Bounds on f over the safe region, or on every term f_i; None where they are not known.

        Args:
            safe_radius: Radius ε of the safe region.
            each_term: Bounds that hold for every f_i, as SGD and SAGA need them.
        """
        return None

    def begin(self) -> None:
        """Called before a run: what was counted in another must not change the iterates of this one."""
        return

    def refresh(self, X: Tensor) -> bool:
        """Called before the first step and after every pass over the data, for what a problem adapts to X.

        Returns True where f is another function from now on, so that gradients and values kept are renewed.
        """
        return False


class Differentiated(Problem):
    """A problem whose gradient comes from automatic differentiation."""

    _depends_on_X = False

    def begin(self) -> None:
        """Whether the function depends on X is to be seen again."""
        self._depends_on_X = False


class Function(Differentiated):
    """A torch function of X.

    Args:
        function: Maps an n x p tensor to a real number, a tensor of shape ().

    Examples:
        >>> problem = gs.problems.Function(lambda X: X.sum())
        >>> round(gs.minimize(problem, gs.random_stiefel(4, 1)).value, 3)
        -2.0
    """

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        self.function = function

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """f(X) and its gradient; a ValueError if the function never depended on X."""
        value, G = differentiate(self.function, X)
        self._depends_on_X = self._depends_on_X or G is not None
        refuse_constant(self._depends_on_X)
        return value, torch.zeros_like(X) if G is None else G

    def value(self, X: Tensor) -> Tensor:
        """f(X) without a gradient."""
        with torch.no_grad():
            return self.function(X)


class FiniteSum(Differentiated):
    """A mean of N terms given by a torch function of X and of the terms wanted.

    Args:
        function: Maps X and an index tensor to the mean of those terms at X, a tensor of shape ().
        n_terms: N.
        shape: (n, p), so that a random start can be made; otherwise X0 must be given.
        dtype: Type of that start. Default: torch's.
        chunk: How many terms a pass over all of them evaluates at once.

    Examples:
        >>> data = torch.randn(100, 5)
        >>> problem = gs.problems.FiniteSum(lambda X, i: (data[i] @ X).square().mean(), 100, shape=(5, 2))
        >>> solution = gs.minimize(problem, gradient="saga", max_epochs=5)
    """

    def __init__(
        self,
        function: Callable[[Tensor, Tensor], Tensor],
        n_terms: int,
        *,
        shape: tuple[int, int] | None = None,
        dtype: torch.dtype | None = None,
        chunk: int = 4096,
    ) -> None:
        check_whole_number("n_terms", n_terms, least=1)
        self.function, self.n_terms, self.shape, self.dtype, self.chunk = function, n_terms, shape, dtype, chunk

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """f(X) and its gradient, a chunk of terms at a time; a ValueError if no term ever depended on X."""
        value, G = torch.zeros((), device=X.device), torch.zeros_like(X)
        for index in torch.split(torch.arange(self.n_terms, device=X.device), self.chunk):
            part, gradient = differentiate(functools.partial(self._mean, index), X)
            share = len(index) / self.n_terms
            value = value + share * part
            if gradient is not None:
                self._depends_on_X = True
                G.add_(gradient, alpha=share)
        refuse_constant(self._depends_on_X)
        return value, G

    def _mean(self, index: Tensor, X: Tensor) -> Tensor:
        return self.function(X, index)

    def batch_gradient(self, X: Tensor, index: Tensor | slice) -> Tensor:
        """Gradient of the mean of the terms of an index."""
        if isinstance(index, slice):
            index = torch.arange(self.n_terms, device=X.device)[index]
        G = differentiate(functools.partial(self._mean, index), X)[1]
        return torch.zeros_like(X) if G is None else G


class RowSum(Problem):
    """A mean of terms f_i(X) = φ_i(a_i X), a_i a row of data: derived classes say what φ and its derivative are.

    A batch of b terms has the gradient A^H φ'(Y) / b of rank b, and SAGA remembers N x p numbers, not N x n x p.

    Args:
        data: One row a_i per term, shape (N, n); torch tensor, NumPy array or memory map; or a DTensor whose columns
            are on many ranks, and with them the rows of X.
        n_columns: p; None where only X0 knows it.
        name: What to call the data in errors.
        mean: Subtracted from every row, shape (n,).
    """

    def __init__(self, data: Any, n_columns: int | None, *, name: str = "data", mean: Tensor | None = None) -> None:
        rows = data if isinstance(data, Rows) else Rows(data, name=name)
        self.rows = rows if mean is None else rows.centred(mean)
        n = self.rows.shape[1]
        if n_columns is not None:
            check_whole_number("the number of columns", n_columns, least=1, most=n)
        self.n_terms = len(self.rows)
        self.shape = None if n_columns is None else (n, n_columns)
        self.geometry = self.rows.geometry
        self.dtype, self.device, self.from_numpy = self.rows.dtype, self.rows.device, self.rows.from_numpy

    def known_shape(self) -> tuple[int, int]:
        """(n, p), or a ValueError where p was not given."""
        if self.shape is None:
            raise ValueError("the number of columns is not known: give n_components")
        return self.shape

    def largest_row_norm(self) -> float:
        """Length of the longest row of data."""
        self.refuse_ranks("the length of its rows")
        return max(float(torch.linalg.vector_norm(A, dim=1).max()) for _, A in self.rows.blocks())

    def second_moment(self, dtype: torch.dtype | None = None) -> Tensor:
        """A^H A / N by one pass over the data, shape (n, n), in the type of the data or another."""
        total = torch.zeros((self.rows.shape[1],) * 2, dtype=dtype or self.dtype, device=self.device)
        for _, block in self.rows.blocks():
            A = block.to(total.dtype)
            total.addmm_(A.mH, A)
        return total / self.n_terms

    def refuse_ranks(self, what: str) -> None:
        """Raise a ValueError if the data are spread over ranks."""
        if self.rows.ranks is not None:
            raise ValueError(
                f"{type(self).__name__} does not know {what} when the columns of its data are on many ranks; "
                "give step_size as a number"
            )

    @abstractmethod
    def loss(self, Y: Tensor, index: Tensor | slice) -> Tensor:
        """Sum of φ_i(y_i) over the rows y_i of Y, shape (); `index` says which terms they are."""

    @abstractmethod
    def scores(self, Y: Tensor, index: Tensor | slice) -> Tensor:
        """The derivatives φ_i'(y_i), same shape as Y."""

    def column_weights(self) -> Tensor | None:
        """Weights of the columns in f and in its gradient, shape (p,), or None; `loss` has them, `scores` does not."""
        return None

    def weigh(self, scores: Tensor) -> Tensor:
        """Scores, or a gradient made of them, with the weights of the columns."""
        weights = self.column_weights()
        return scores if weights is None else scores * weights

    def product(self, A: Tensor, X: Tensor) -> Tensor:
        """A X for rows A of the data."""
        return self.geometry.product(A, X)

    def products(self, X: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """One pass over the data in blocks: which rows, the rows A on the device of X, and A X."""
        for where, block in self.rows.blocks():
            A = block.to(X.device)
            yield where, A, self.product(A, X)

    def batch_scores(self, X: Tensor, index: Tensor | slice) -> tuple[Tensor, Tensor, Tensor]:
        """Rows A, products Y = A X and derivatives φ'(Y) of some terms."""
        A = self.rows.take(index).to(X.device)
        Y = self.product(A, X)
        return A, Y, self.scores(Y, index)

    def batch_gradient(self, X: Tensor, index: Tensor | slice) -> Factored:
        """Factors of the gradient of the mean of the terms of an index."""
        A, Y, scores = self.batch_scores(X, index)
        return Factored(A, self.weigh(scores) / len(Y), Y)

    def value(self, X: Tensor) -> Tensor:
        """f(X) by one pass over the data."""
        total = torch.zeros((), dtype=torch.float64)
        for where, _, Y in self.products(X):
            total += self.loss(Y, where).double().cpu()
        return total / self.n_terms

    def value_and_gradient(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """f(X) and its gradient by one pass over the data."""
        total, G = torch.zeros((), dtype=torch.float64), torch.zeros_like(X)
        for where, A, Y in self.products(X):
            total += self.loss(Y, where).double().cpu()
            G.addmm_(A.mH, self.scores(Y, where))
        return total / self.n_terms, self.weigh(G.div_(self.n_terms))


def differentiate(function: Callable[[Tensor], Tensor], X: Tensor) -> tuple[Tensor, Tensor | None]:
    """Value and gradient of a torch function, None where no way leads from the value back to X. Writes nothing of X."""
    with torch.inference_mode(False), torch.enable_grad():
        point = X.detach().clone().requires_grad_()
        try:
            value = function(point)
        except RuntimeError as error:
            if type(error) is not RuntimeError:
                raise  # out of memory, and errors of the caller's own
            where = f"{point.dtype} of shape {tuple(point.shape)}"
            raise RuntimeError(f"the function cannot be evaluated at X, {where}: {error}") from error
        if not isinstance(value, Tensor) or value.shape != () or value.is_complex():
            got = f"{value.dtype} of shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise ValueError(f"the function must return a real scalar, a tensor of shape (); got {got}")
        if not value.requires_grad:
            return value, None
        (G,) = torch.autograd.grad(value, point, allow_unused=True)
    return value.detach(), G


def refuse_constant(depends_on_X: bool) -> None:
    """Raise a ValueError for a function whose result has no gradient with respect to X."""
    if not depends_on_X:
        raise ValueError(
            "the function's result does not depend on X by automatic differentiation. Compute it from X by torch "
            "operations, without .detach(), .item(), NumPy or integers"
        )


def as_problem(problem: Any) -> Problem:
    """A problem as it is; a function as a problem of one term."""
    if isinstance(problem, Problem):
        return problem
    if callable(problem):
        return Function(problem)
    raise ValueError(
        f"problem must be a torch function of X, or one of gs.problems; got {type(problem).__name__}. "
        "A sum of terms is gs.problems.FiniteSum(function, n_terms)"
    )
