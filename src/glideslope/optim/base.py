"""The shell all optimizers share: groups and their checks, buckets, closures, checkpoints and diagnostics."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

import torch
from torch import Tensor

from glideslope.formulas.arguments import HALF_TYPES
from glideslope.optim.accepted import (
    check_dense_floats,
    check_dense_gradients,
    check_entry,
    check_keys,
    check_scale_of,
    check_start,
    check_writable,
    has_data,
)
from glideslope.optim.bucket import (
    Bucket,
    BucketList,
    InPlace,
    Stack,
    Workspaces,
    has_matrix_view,
    loaded_entries,
    outside_inference_mode,
)
from glideslope.optim.diagnostics import Diagnostics, MatrixDiagnosis, distances_of
from glideslope.optim.groups import divided, not_matrices
from glideslope.optim.scaled_steps import RADIAL_STATE
from glideslope.optim.sharded_bucket import Sharded, warn_of_moves
from glideslope.ranks.agreement import check_agreement, check_fingerprint
from glideslope.ranks.dtensors import is_sharded, whole
from glideslope.stiefel.scales import fixed_scale
from glideslope.stiefel.views import cuts_columns, default_view, matrix_shape

Group = dict[str, Any]
COUNTERS = ("shortened", "recovered", "skipped")
# State entries of one number per matrix; all others have the shape of the parameter.
PER_MATRIX = (*COUNTERS, "steps", "root_second_moment", *RADIAL_STATE)
# Matrices up to this many entries are stacked by foreach=None: above it gathering costs more than batching saves.
STACK_UP_TO = 32_768


class StiefelOptimizer(torch.optim.Optimizer):
    """A torch.optim.Optimizer whose groups are constrained matrices (`orthogonal`, the default) or free parameters.

    A subclass says how a bucket of matrices and how a free group take a step.
    """

    _has_sharded = False
    keeps_safe = True
    """Whether the constrained matrices must start, and then stay, in the safe region."""

    _by_marks = False
    """Whether the marks of a model decide which parameters are constrained, where a group does not say."""

    def __init__(self, params: Any, defaults: Group) -> None:
        self._reset_buckets()
        groups, self._by_marks = divided(params)
        super().__init__(groups, {"orthogonal": True, **defaults})

    @abstractmethod
    def _step_bucket(self, bucket: Bucket, given: list[Tensor], group: Group) -> None:
        """Move the matrices of a bucket along the gradients of its parameters, or what stands for them."""

    @abstractmethod
    def _step_free(self, params: list[Tensor], grads: list[Tensor], group: Group) -> None:
        """Move the free parameters that have gradients, as torch's own optimizer would."""

    def _step_sharded(self, buckets: list[tuple[Sharded, list[Tensor], Group]]) -> None:
        """Move matrices that are spread over ranks, all of them together."""
        raise NotImplementedError

    takes_sharded = False
    """Whether DTensors may be constrained parameters."""

    @abstractmethod
    def _check_options(self, group: Group) -> None:
        """Raise a ValueError for a bad option of a group."""

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @outside_inference_mode
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step; with a closure, call it first and return its loss."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._step_groups()
        return loss

    def _step_groups(self) -> None:
        """Move all parameters that have a gradient."""
        if self._has_sharded:  # before anything moves
            check_fingerprint(type(self).__name__, self.param_groups, self._gradients_of)
        gradients_of_groups = [self._gradients_of(group["params"]) for group in self.param_groups]
        self._check_gradients(gradients_of_groups)
        sharded: list[tuple[Sharded, list[Tensor], Group]] = []
        for index, (group, found) in enumerate(zip(self.param_groups, gradients_of_groups, strict=True)):
            params = [param for param, gradient in zip(group["params"], found, strict=True) if gradient is not None]
            gradients = [gradient for gradient in found if gradient is not None]
            if not params:
                continue
            if group["orthogonal"]:
                for bucket in self._buckets(index, group, params):
                    given = [gradients[i] for i in bucket.positions]
                    if isinstance(bucket, Sharded):
                        sharded.append((bucket, given, group))
                        continue
                    self._step_bucket(bucket, given, group)
                    bucket.write()
            else:
                self._step_free(params, gradients, group)
        if sharded:
            self._step_sharded(sharded)

    def add_param_group(self, param_group: Group) -> None:
        """Add a group; a constrained one is checked for shape, type, options and a start in the safe region.

        One that does not say whether it is constrained is divided by the marks of its parameters, as when the
        optimizer is made.
        """
        before = len(self.param_groups)
        try:
            # What is no group torch refuses in its own words.
            is_group = isinstance(param_group, dict)
            for group in divided([param_group], by_marks=self._by_marks)[0] if is_group else [param_group]:
                super().add_param_group(group)
                self._check_group(self.param_groups[-1])
        except (TypeError, ValueError):
            del self.param_groups[before:]
            raise

    def _check_group(self, group: Group) -> None:
        check_keys(type(self).__name__, group, (*self.defaults, "view", "params", "param_names"))
        for label, param in self._labelled(group):
            check_writable(f"{type(self).__name__}: {label}", param)
        self._check_options(group)
        check_scale_of(type(self).__name__, group, known="scale" in self.defaults)
        if group["orthogonal"]:
            self._check_sharded(group)
            self._check_constrained(group)

    def diagnostics(self) -> Diagnostics:
        """Distance of every constrained parameter's matrices now, and how often each was shortened or skipped."""
        return Diagnostics(
            self._diagnose(name, param, group)
            for group in self.param_groups
            if group["orthogonal"]
            for name, param in self._named(group)
        )

    @outside_inference_mode
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; entries take the type the step computes in, which for half precision is float32.

        An entry of another shape than a step would give it is a ValueError, and nothing is loaded.
        """
        final: dict[str, Any] = {}

        def check(_: Any, mended: dict[str, Any]) -> None:
            self._check_loaded(mended)
            final.update(mended)

        last = self.register_load_state_dict_pre_hook(check)  # after the hooks of the user, which may mend a state
        try:
            super().load_state_dict(state_dict)
        finally:
            last.remove()
        for saved, group in zip(final["param_groups"], self.param_groups, strict=True):
            if group["orthogonal"]:
                for saved_id, param in zip(saved["params"], group["params"], strict=True):
                    if saved_id in final["state"]:
                        self.state[param] = loaded_entries(param, final["state"][saved_id])
        self._reset_buckets()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "scale" in self.defaults:  # states that were saved before there were scales
            for group in self.param_groups:
                group.setdefault("scale", self.defaults["scale"])
        self._has_sharded = any(g["orthogonal"] and any(map(is_sharded, g["params"])) for g in self.param_groups)
        # torch keeps groups and state of a copy, nothing else: marks divided the groups if some are free.
        self._by_marks = not all(group["orthogonal"] for group in self.param_groups)
        self._reset_buckets()

    def _diagnose(self, name: str, param: Tensor, group: Group) -> MatrixDiagnosis:
        state, view = self.state.get(param, {}), group["view"]
        sigma: float | Tensor | None = fixed_scale(group.get("scale", 1.0), tuple(param.shape), view)
        if sigma is None and "scale" in state:
            scales = whole(state["scale"])
            sigma = scales if len(matrix_shape(tuple(param.shape), view)) == 3 else scales.squeeze(0)
        distances = distances_of(state.get("master", param.detach()), view, sigma)
        counts = (whole(state[key]).tolist() if key in state else [0] * len(distances) for key in COUNTERS)
        return MatrixDiagnosis(name, distances, *counts)

    def _gradients_of(self, params: Sequence[Tensor]) -> list[Tensor | None]:
        return [param.grad for param in params]

    def _reset_buckets(self) -> None:
        self._bucket_lists: dict[int, BucketList] = {}
        self._workspaces: Workspaces = {}

    def _buckets(self, index: int, group: Group, params: list[Tensor]) -> list[Bucket]:
        options, known = (group["foreach"], group["view"]), self._bucket_lists.get(index)
        if known is None or known.options != options or not known.is_current(params, self.state):
            buckets = self._make_buckets(group, params)
            known = self._bucket_lists[index] = BucketList(
                options, params, buckets, [*self.state, *self.state.values()]
            )
        return known.buckets

    def _make_buckets(self, group: Group, params: list[Tensor]) -> list[Bucket]:
        alike: dict[tuple[Any, ...], list[int]] = {}
        view, foreach = group["view"], group["foreach"]
        for position, param in enumerate(params):
            n, p = matrix_shape(tuple(param.shape), view)[-2:]
            small = n * p <= STACK_UP_TO if foreach is None else foreach
            own = None if small and not is_sharded(param) and not cuts_columns(view) else id(param)
            alike.setdefault((param.shape, param.dtype, param.device, own), []).append(position)
        buckets: list[Bucket] = []
        for positions in alike.values():
            buckets.append(self._make_bucket([params[i] for i in positions], view))
            buckets[-1].positions = positions
        return buckets

    def _make_bucket(self, together: list[Tensor], view: str) -> Bucket:
        first, states = together[0], [self.state[param] for param in together]
        if is_sharded(first):
            return Sharded(first, view, states[0])
        if len(together) == 1 and first.dtype not in HALF_TYPES and has_matrix_view(first, view):
            return InPlace(first, view, states[0], self._workspaces)
        return Stack(together, view, states)

    def _named(self, group: Group) -> Iterable[tuple[str, Tensor]]:
        names = group.get("param_names")
        offset = sum(len(g["params"]) for g in self.param_groups[: self._index(group)])
        for i, param in enumerate(group["params"]):
            yield (names[i] if names else f"parameter {offset + i}", param)

    def _labelled(self, group: Group) -> Iterable[tuple[str, Tensor]]:
        """The parameters of a group as errors call them: parameter 'layer.weight', or parameter 3."""
        for name, param in self._named(group):
            yield (f"parameter {name!r}" if group.get("param_names") else name), param

    def _index(self, group: Group) -> int:
        return next(i for i, g in enumerate(self.param_groups) if g is group)

    def _check_sharded(self, group: Group) -> None:
        """Refuse sharded parameters where they cannot be; check that the ranks agree on them before any sum."""
        who = type(self).__name__
        found = [(name, param) for name, param in self._named(group) if is_sharded(param)]
        if found and not self.takes_sharded:
            raise ValueError(
                f"{who}: {found[0][0]!r} is a DTensor; sharded matrices are stepped by LandingSGD, LandingAdam and "
                "attach_landing. Use one of them, or shard with DDP, which leaves parameters whole"
            )
        if found:
            self._has_sharded = True
            check_agreement(who, self._named(group), group)

    def _check_constrained(self, group: Group) -> None:
        who, given = type(self).__name__, group.get("view")
        for label, param in self._labelled(group):
            check_dense_floats(f"{who}: {label}", param)
            described = f"{who}: {label} of shape {tuple(param.shape)}"
            view = given or default_view(param.ndim)
            if view is None:
                raise ValueError(f"{described} {not_matrices(param, self._line_for_a_model)}")
            group["view"] = view
            try:
                matrix_shape(tuple(param.shape), view)
            except ValueError as error:
                raise ValueError(f"{described}: {error}") from None
            if self.keeps_safe and has_data(param):
                check_start(described, param, group, spectral=self._region_is_spectral(group))
        if self._has_sharded:
            warn_of_moves(who, [(name, param) for name, param in self._named(group) if is_sharded(param)], group)

    def _check_gradients(self, gradients: Sequence[Sequence[Tensor | None]]) -> None:
        """Refuse sparse gradients, one list for each group, where a step would fail half way."""
        free_take_sparse = "betas" not in self.defaults  # torch's SGD takes them, its AdamW does not
        for group, found in zip(self.param_groups, gradients, strict=True):
            if group["orthogonal"] or not free_take_sparse:
                labels = (label for label, _ in self._labelled(group))
                check_dense_gradients(type(self).__name__, labels, found)

    def _check_loaded(self, state_dict: dict[str, Any]) -> None:
        """Refuse a state with entries of other shapes, which would be broadcast."""
        for saved, group in zip(state_dict["param_groups"], self.param_groups, strict=False):  # torch compares numbers
            for saved_id, (label, param) in zip(saved["params"], self._labelled(group), strict=False):
                count = matrix_shape(tuple(param.shape), group["view"])[:-2] or (1,) if group["orthogonal"] else ()
                for name, value in state_dict["state"].get(saved_id, {}).items():
                    if isinstance(value, Tensor) and name != "step":  # AdamW's, a number
                        expected = count if count and name in PER_MATRIX else tuple(param.shape)
                        check_entry(type(self).__name__, label, name, value, expected)

    @property
    def _line_for_a_model(self) -> str:
        return f"gs.{type(self).__name__}(model, ...)"

    def _region_is_spectral(self, group: Group) -> bool:
        """Whether the safe region of a group is a ball in the spectral norm, and not in Frobenius'."""
        return False
