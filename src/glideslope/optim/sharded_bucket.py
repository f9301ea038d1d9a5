"""A DTensor as a bucket: the rows or matrices this rank holds, with state that any number of ranks can load."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from glideslope.engine.products import Pair, Workspace
from glideslope.engine.rounding import zero_where_not_finite_
from glideslope.engine.row_blocks import Summed, row_products, squared_norm, step_of_rows, tangent_rows
from glideslope.engine.rule import StepOutcome
from glideslope.formulas.arguments import HALF_TYPES, REAL_TYPE
from glideslope.optim.bucket import Bucket, State
from glideslope.optim.momentum_and_adam import Estimate, Products
from glideslope.ranks.dtensors import is_sharded, local_part, placed, whole
from glideslope.stiefel.sharding import Layout


class Sharded(Bucket):
    """One parameter that is spread over ranks. Points, gradients and buffers are the parts of this rank.

    Everything a step sums over ranks it sums over `groups`; all state is placed as a step wants it.
    """

    def __init__(self, param: Tensor, view: str, state: State) -> None:
        super().__init__([param], view, [state])
        self.param, self.state = param, state
        self.memory = (param.dtype, param.stride())
        self.layout = Layout(param, view)
        self.groups = self.layout.groups
        self.half = param.dtype in HALF_TYPES
        p = self.matrix_shape[-1]
        self.size = max(2 * p * p * self.count, self.layout.shape_of_part.numel())
        """Numbers it adds to a bundle of sums, or to the memory of a step, whichever is more."""
        self._point: Tensor | None = None

    def points(self) -> Tensor:
        self.workspace = Workspace()  # not kept after a step: many parameters are in one at once
        given = self.layout.local(self.param.detach())
        if self.half:
            master = self._local_entry("master", given.float())
            half = torch.finfo(self.param.dtype)
            wide = given.to(master.dtype)
            # Where a parameter is further from its master than rounding, it was changed from outside: follow it.
            unchanged = (wide - master).abs() <= half.eps * wide.abs() + half.tiny
            master.copy_(torch.where(unchanged, master, wide))
            given = master
        self._point = given
        self._matrices = self.layout.matrices(given)
        return self._matrices

    def matrices_of(self, tensors: list[Tensor]) -> Tensor:
        return self.layout.matrices(self.layout.local(tensors[0]).to(self.dtype))

    def tensors_of(self, matrices: Tensor) -> list[Tensor]:
        return [self.layout.returned(self.layout.from_matrices(matrices).to(self.param.dtype))]

    def buffer(self, name: str) -> Tensor:
        return self.layout.matrices(self._local_entry(name, None))

    def numbers(self, name: str, dtype: torch.dtype) -> Tensor:
        given = self.state.get(name)
        if given is None:
            held = self.layout.matrices(self.layout.local(self.param.detach()))
            local = torch.zeros(held.shape[0] if held.ndim == 3 else 1, dtype=dtype, device=self.device)
            given = self.state[name] = self.layout.numbers(local, self.count)
        entry: Tensor = self._local_numbers(name, given)
        return entry if len(self.matrix_shape) == 3 else entry.squeeze(0)

    def write(self) -> None:
        assert self._point is not None
        moved = self.layout.from_matrices(self._matrices)
        if self.half:
            self._point.copy_(moved)
        local = local_part(self.param.detach())
        if self.layout.moves:
            local.copy_(local_part(self.layout.returned(moved.to(local.dtype))))
        elif local.data_ptr() != moved.data_ptr() or local.dtype != moved.dtype:
            local.copy_(moved)
        self._point, self.workspace = None, Workspace()

    def is_current(self) -> bool:
        return (self.param.dtype, self.param.stride()) == self.memory

    def products(self, X: Tensor, D: Tensor, active: Tensor) -> Summed[Products]:
        zero_where_not_finite_(D)  # a matrix that is not active is multiplied with zeros
        gram, cross, inactive = yield [*row_products(X, D), active.logical_not().to(X.dtype)]
        square = self.rule.has_square_form(*self.matrix_shape[-2:])
        return Products(D, inactive.real == 0, Pair(gram, cross), square, in_rows=True)

    def norm_and_slope(self, X: Tensor, G: Tensor) -> Summed[tuple[Tensor, Tensor]]:
        square, slope = yield [squared_norm(X), (X.conj() * G).real.sum(dim=(-2, -1)).double()]
        return square.sqrt().to(REAL_TYPE[X.dtype]), slope.to(REAL_TYPE[X.dtype])

    def tangent(self, X: Tensor, G: Tensor, active: Tensor) -> Summed[tuple[Tensor, Tensor]]:
        tangent, inactive = yield from tangent_rows(X, G, active.logical_not().to(G.dtype))
        return tangent, inactive.real == 0

    def tangent_and_norm(self, X: Tensor, G: Tensor, active: Tensor) -> Summed[tuple[Tensor, Tensor, Tensor]]:
        tangent, active = yield from self.tangent(X, G, active)
        (square,) = yield [squared_norm(tangent)]
        return tangent, active, square.sqrt().to(REAL_TYPE[G.dtype])

    def step(self, X: Tensor, estimate: Estimate) -> Summed[StepOutcome]:
        G, step_size, active, known = estimate
        products, rows = None if known is None else known.pair, self.matrix_shape[-2]
        return step_of_rows(X, G, step_size, self.rule, rows=rows, out=X, active=active, products=products)

    def _local_entry(self, name: str, start: Tensor | None) -> Tensor:
        """This rank's part of a state entry with the parameter's shape, which is made or moved where it must be."""
        given = self.state.get(name)
        if given is None:
            local = torch.zeros_like(self.layout.local(self.param.detach()), dtype=self.dtype)
            given = self.state[name] = self.layout.spread(local if start is None else local.copy_(start))
        elif not is_sharded(given) or tuple(given.placements) != self.layout.wanted or given.dtype != self.dtype:
            given = self.state[name] = placed(given.to(self.dtype), self.layout.mesh, self.layout.wanted)
        return local_part(given)

    def _local_numbers(self, name: str, given: Any) -> Tensor:
        if is_sharded(given) != bool(self.layout.batch_dims):  # a state saved by another number of ranks
            layout, given = self.layout, whole(given)
            given = placed(given, layout.mesh, layout.placements_of_numbers) if layout.batch_dims else given
            self.state[name] = given
        return local_part(given)


def warn_of_moves(who: str, params: list[tuple[str, Tensor]], group: dict[str, Any]) -> None:
    """Say once, on the first rank, which parameters every step has to move between ranks."""
    moved = [(name, Layout(param, group["view"])) for name, param in params]
    moved = [(name, layout) for name, layout in moved if layout.moves]
    if not moved or any(layout.mesh.get_local_rank(dim) for _, layout in moved for dim in range(layout.mesh.ndim)):
        return
    name, layout = moved[0]
    others = f" ({len(moved)} parameters in all)" if len(moved) > 1 else ""
    way = "gathered" if not layout.row_dims else "moved to other ranks and back"
    warnings.warn(
        f"{who}: {name!r} of shape {layout.shape} is placed as {layout.given}, which cuts the columns of its matrices: "
        f"it is {way} in every step{others}. To avoid that, cut it along its rows: "
        "fully_shard(model, shard_placement_fn=gs.shard_placement(model))",
        UserWarning,
        stacklevel=5,
    )
