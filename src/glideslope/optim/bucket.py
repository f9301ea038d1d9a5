"""Parameters as batches of tall matrices: gathered, given state and scratch, stepped together and written back.

One large parameter is stepped in its own memory. Many small ones of one shape, or parameters in half precision,
are stepped in a stack; their state entries are slices of stacks too, so that only what changes outside of the
optimizer is gathered: the parameters and their gradients.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import is_
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from glideslope.engine.point import products_of
from glideslope.engine.production import take_step
from glideslope.engine.products import Workspace
from glideslope.engine.rounding import overflow_free_norm
from glideslope.formulas.arguments import HALF_TYPES
from glideslope.formulas.field import without_normal_part
from glideslope.formulas.orthogonality import per_matrix
from glideslope.optim.momentum_and_adam import Estimate, Products
from glideslope.ranks.dtensors import is_sharded, whole
from glideslope.stiefel.views import as_matrices, copy_matrices_, cuts_columns, flattened_shape, matrix_shape

Function = TypeVar("Function", bound=Callable[..., Any])
State = dict[str, Any]
Workspaces = dict[tuple[Any, ...], Workspace]


def outside_inference_mode(function: Function) -> Function:
    """Run outside of torch.inference_mode: state and scratch made inside could not be written by a later step."""

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
            return function(*args, **kwargs)
        with torch.inference_mode(False), torch.no_grad():
            return function(*args, **kwargs)

    return cast(Function, wrapper)


class Bucket(ABC):
    """Parameters of one shape, type, device and view that take a step together.

    Everything is in one layout: (n, p) for one matrix, else (matrices, n, p), with n >= p. Methods that return `Any`
    return what they say here, and of matrices with rows on many ranks a `Summed` of it.
    """

    def __init__(self, params: Sequence[Tensor], view: str, states: Sequence[State]) -> None:
        first = params[0]
        self.params, self.view, self.states = list(params), view, list(states)
        self.positions: list[int] = []
        """Which of the parameters of a step these are."""
        self.device = first.device
        self.dtype = torch.float32 if first.dtype in HALF_TYPES else first.dtype
        self.matrix_shape = matrix_shape(tuple(first.shape), view)
        self.count = self.matrix_shape[0] if len(self.matrix_shape) == 3 else 1
        self.workspace = Workspace()
        self.rule: Any = None
        """What the optimizer made of the group's options in the last step."""
        self.sigma: float | Tensor = 1.0
        """The scale σ in this step: a number, or one for each matrix."""
        self.watched: tuple[int, Tensor | None] = (0, None)
        """Steps since the counters of shortened steps were looked at, and what they were then."""

    @abstractmethod
    def points(self) -> Tensor:
        """The iterates, to be written in place."""

    def divide_(self, X: Tensor, sigma: float | Tensor) -> None:
        """Make the iterates X/σ, in their own memory, until `multiply_`: a step knows orthonormal matrices only."""
        self.sigma = sigma
        if isinstance(sigma, Tensor) or sigma != 1:
            X.div_(per_matrix(sigma) if isinstance(sigma, Tensor) else sigma)

    def multiply_(self, X: Tensor) -> None:
        """Make X/σ iterates again, with σ as it is now."""
        sigma, self.sigma = self.sigma, 1.0
        if isinstance(sigma, Tensor) or sigma != 1:
            X.mul_(per_matrix(sigma) if isinstance(sigma, Tensor) else sigma)

    @abstractmethod
    def matrices_of(self, tensors: list[Tensor]) -> Tensor:
        """Tensors like the parameters, one each, as matrices in the compute type, not to be written."""

    @abstractmethod
    def tensors_of(self, matrices: Tensor) -> list[Tensor]:
        """The inverse of `matrices_of`, in the type and placed as the parameters."""

    def gradients(self, given: list[Tensor]) -> Tensor:
        """The gradients of the parameters as matrices, until the next step."""
        return self.matrices_of(given)

    @abstractmethod
    def buffer(self, name: str) -> Tensor:
        """A state entry with the shape of each parameter, zero at first."""

    @abstractmethod
    def numbers(self, name: str, dtype: torch.dtype) -> Tensor:
        """A state entry of one number per matrix, zero at first; shape () or (matrices,)."""

    @abstractmethod
    def write(self) -> None:
        """Bring the stepped points to the parameters."""

    @abstractmethod
    def is_current(self) -> bool:
        """Whether the parameters are as they were, and the state entries still those this bucket writes to."""

    def products(self, X: Tensor, D: Tensor, active: Tensor) -> Any:
        """The `Products` of X and a direction, which may be written."""
        square = self.rule.has_square_form(*X.shape[-2:])
        return Products(D, active, products_of(X, D, square=square, workspace=self.workspace), square)

    def norm_and_slope(self, X: Tensor, G: Tensor) -> Any:
        """‖X‖_F and Re<G, X> of each matrix."""
        return overflow_free_norm(X), (X.conj() * G).real.sum(dim=(-2, -1))

    def tangent(self, X: Tensor, G: Tensor, active: Tensor) -> Any:
        """G - X sym(X^H G), which may be written to G, and which matrices are active on all ranks."""
        return G.copy_(without_normal_part(X, G)), active

    def tangent_and_norm(self, X: Tensor, G: Tensor, active: Tensor) -> Any:
        """The same and its Frobenius norm for each matrix."""
        return *self.tangent(X, G, active), overflow_free_norm(G)

    def step(self, X: Tensor, estimate: Estimate) -> Any:
        """The `StepOutcome` of a landing step along an estimate, from X and written to it."""
        G, step_size, active, known = estimate
        pair, memory = None if known is None else known.pair, self.workspace
        return take_step(X, G, step_size, self.rule, out=X, workspace=memory, active=active, products=pair)


class InPlace(Bucket):
    """One parameter, stepped in its own memory; scratch is shared with all parameters of its matrix shape."""

    def __init__(self, param: Tensor, view: str, state: State, workspaces: Workspaces) -> None:
        super().__init__([param], view, [state])
        self.param, self.state = param, state
        self.memory = (param.dtype, param.stride())
        key = (self.matrix_shape, self.dtype, self.device)
        self.workspace = workspaces.setdefault(key, self.workspace)

    def points(self) -> Tensor:
        return as_matrices(self.param.detach(), self.view)

    def matrices_of(self, tensors: list[Tensor]) -> Tensor:
        return as_matrices(tensors[0], self.view, strides_of=self.param)

    def tensors_of(self, matrices: Tensor) -> list[Tensor]:
        return [copy_matrices_(torch.empty_like(self.param), matrices, self.view)]

    def buffer(self, name: str) -> Tensor:
        given = self.state.get(name)
        if given is None or given.stride() != self.param.stride() or given.dtype != self.dtype:
            entry = torch.zeros_like(self.param, dtype=self.dtype, memory_format=torch.preserve_format)
            self.state[name] = entry if given is None else entry.copy_(given)
        return as_matrices(self.state[name], self.view, strides_of=self.param)

    def numbers(self, name: str, dtype: torch.dtype) -> Tensor:
        if name not in self.state:
            self.state[name] = torch.zeros(self.count, dtype=dtype, device=self.device)
        elif self.state[name].dtype != dtype:
            self.state[name] = self.state[name].to(dtype)
        entry: Tensor = self.state[name]
        return entry if len(self.matrix_shape) == 3 else entry.squeeze(0)

    def write(self) -> None:
        pass

    def is_current(self) -> bool:
        return (self.param.dtype, self.param.stride()) == self.memory


class Stack(Bucket):
    """Parameters stepped as one stack; half precision keeps its float32 masters there, as state."""

    def __init__(self, params: Sequence[Tensor], view: str, states: Sequence[State]) -> None:
        super().__init__(params, view, states)
        self.shape, self.types = params[0].shape, {params[0].dtype}
        self.half = params[0].dtype in HALF_TYPES
        self.entries: dict[str, tuple[Tensor, list[Tensor]]] = {}
        self.scratches: dict[str, Tensor] = {}
        self.pieces: list[Tensor] = []

    def points(self) -> Tensor:
        if not self.half:
            return self.matrices(torch.stack(self.params, out=self._scratch("points")))
        masters = self._entry("master", self.params)
        given = torch.stack(self.params).to(masters.dtype)
        # Where a parameter is further from its master than rounding, it was changed from outside: follow it. (Not by
        # comparing with the master rounded: a compiler may leave out the rounding.)
        half = torch.finfo(self.params[0].dtype)
        unchanged = (given - masters).abs() <= half.eps * given.abs() + half.tiny
        masters.copy_(torch.where(unchanged, masters, given))
        return self.matrices(masters)

    def matrices_of(self, tensors: list[Tensor]) -> Tensor:
        return self.matrices(torch.stack(tensors).to(self.dtype).contiguous())

    def tensors_of(self, matrices: Tensor) -> list[Tensor]:
        shape = self.params[0].shape
        *_, rows, columns = flattened_shape(shape, self.view)
        blocks = matrices.mT if rows < columns else matrices
        stack = blocks.reshape(-1, *shape[::-1]).mT if cuts_columns(self.view) else blocks.reshape(-1, *shape)
        return list(stack.to(self.params[0].dtype).unbind(0))

    def gradients(self, given: list[Tensor]) -> Tensor:
        if self.half:
            return self.matrices_of(given)
        return self.matrices(torch.stack(given, out=self._scratch("gradients")))

    def buffer(self, name: str) -> Tensor:
        return self.matrices(self._entry(name, None))

    def numbers(self, name: str, dtype: torch.dtype) -> Tensor:
        if name not in self.entries:
            stack = torch.zeros(len(self.params), self.count, dtype=dtype, device=self.device)
            self._link(name, stack, None)
        return self.entries[name][0].view(-1)

    def write(self) -> None:
        if self.half:
            torch._foreach_copy_(self.params, self.entries["master"][1])
        else:
            self.pieces = self.pieces or list(self._scratch("points").unbind(0))
            torch._foreach_copy_(self.params, self.pieces)

    def is_current(self) -> bool:
        # Of parameters that no longer have one shape, torch says so when they are stacked.
        if self.params[0].shape != self.shape or {param.dtype for param in self.params} != self.types:
            return False
        for name, (_, pieces) in self.entries.items():
            if not all(map(is_, [state.get(name) for state in self.states], pieces)):
                return False
        return True

    def matrices(self, stack: Tensor) -> Tensor:
        """(number, *shape) as (number * count, n, p)."""
        *_, rows, columns = flattened_shape(self.params[0].shape, self.view)
        # Only a stack of one parameter, as the optimizers make it, has its blocks of columns in its own memory.
        blocks = (stack.mT if cuts_columns(self.view) else stack).view(-1, rows, columns)
        return blocks.mT if rows < columns else blocks

    def _scratch(self, name: str) -> Tensor:
        if name not in self.scratches:
            shape = (len(self.params), *self.params[0].shape)
            self.scratches[name] = torch.empty(shape, dtype=self.dtype, device=self.device)
        return self.scratches[name]

    def _entry(self, name: str, start: Sequence[Tensor] | None) -> Tensor:
        if name not in self.entries:
            shape = (len(self.params), *self.params[0].shape)
            self._link(name, torch.zeros(shape, dtype=self.dtype, device=self.device), start)
        return self.entries[name][0]

    def _link(self, name: str, stack: Tensor, start: Sequence[Tensor] | None) -> None:
        """Make the slices of a new stack the state entries, with the values they had, or `start`, or zero."""
        pieces = list(stack.unbind(0))
        for i, (state, piece) in enumerate(zip(self.states, pieces, strict=True)):
            given = state.get(name, None if start is None else start[i])
            if given is not None:
                piece.copy_(given)
            state[name] = piece
        self.entries[name] = (stack, pieces)


def loaded_entries(param: Tensor, saved: State) -> State:
    """Entries of a saved state as a bucket of this parameter wants them: copies in its compute type, none shared."""
    half = param.dtype in HALF_TYPES
    compute_type = torch.float32 if half else param.dtype
    tensors: State = {name: value for name, value in saved.items() if isinstance(value, Tensor)}
    if not half:
        tensors.pop("master", None)
    for name, value in tensors.items():
        entry = (value if is_sharded(param) else whole(value)).to(param.device, copy=True)
        tensors[name] = entry.to(compute_type) if entry.shape == param.shape else entry
    return tensors


def has_matrix_view(param: Tensor, view: str) -> bool:
    """Whether the matrices of a parameter lie in its own memory, so that they can be stepped in place."""
    if param.is_contiguous() or (view == "matrix" and param.ndim <= 3):
        return True
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return param.ndim in formats and param.is_contiguous(memory_format=formats[param.ndim])


class BucketList(NamedTuple):
    """The buckets of a group, and what they were made for."""

    options: tuple[Any, ...]
    params: list[Tensor]
    buckets: list[Bucket]
    seen: list[Any]
    """The keys and values of the optimizer's state when it was last looked at: looking each of them up is slow."""

    def is_current(self, params: list[Tensor], state: dict[Tensor, Any]) -> bool:
        """Whether these are the parameters, and the buckets still write to their state."""
        if len(params) != len(self.params) or not all(map(is_, params, self.params)):
            return False
        found = [*state, *state.values()]
        if len(found) != len(self.seen) or not all(map(is_, found, self.seen)):
            for bucket in self.buckets:
                if not all(map(is_, [state.get(param) for param in bucket.params], bucket.states)):
                    return False
            if not torch.compiler.is_compiling():  # which would compile a second time
                self.seen[:] = found
        return all(bucket.is_current() for bucket in self.buckets)
