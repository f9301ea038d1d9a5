"""The memory of SAGA and SVRG: which parameters, how many bytes, where and in which type, saved and loaded."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from glideslope.ranks.dtensors import from_parts, is_sharded, local_part, meshes_of, placed
from glideslope.ranks.sums import summed

logger = logging.getLogger("glideslope")
State = dict[str, Any]
MEMORY_TYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
WARN_ABOVE_BYTES = 2**30


class GradientMemory:
    """Base of SAGA and SVRG: `rows` remembered tensors per parameter and a wide mean, allocated, checked and saved.

    A complex number is remembered as two real ones. The tensors are allocated when they are first needed.
    """

    def __init__(self, params: Any, rows: int, dtype: torch.dtype | None, device: torch.device | str | None) -> None:
        who = type(self).__name__
        if dtype is not None and dtype not in MEMORY_TYPES:
            accepted = ", ".join(str(one) for one in MEMORY_TYPES)
            raise ValueError(f"{who}: dtype must be one of {accepted} (a complex number takes two); got {dtype!r}")
        named = trained_parameters(who, params)
        self._labels = [label for label, _ in named]
        self._params = [param for _, param in named]
        self._device = None if device is None else torch.device(device)
        self._types = [dtype or param.dtype.to_real() for param in self._params]
        wide = [torch.promote_types(param.dtype.to_real(), torch.float32) for param in self._params]
        self._wide = [torch.promote_types(*types) for types in zip(self._types, wide, strict=True)]
        self._shapes = [tuple(numbers_of(param).shape) for param in self._params]
        self._rows = rows
        self._memory: list[Tensor] = []
        self._means: list[Tensor] = []
        self._announce()

    @property
    def memory_bytes(self) -> int:
        """Bytes of the memory and the mean, on this rank, known before they are allocated."""
        return sum(
            math.prod(shape) * (self._rows * kept.itemsize + wide.itemsize)
            for shape, kept, wide in zip(self._shapes, self._types, self._wide, strict=True)
        )

    def state_dict(self) -> State:
        """The state as a dictionary of numbers, lists and tensors; the tensors are not copied.

        Those of a DTensor are DTensors, for torch.distributed.checkpoint.
        """
        # Both are empty before they are first used.
        memory = [spread(part, param, 1) for part, param in zip(self._memory, self._params, strict=False)]
        means = [spread(part, param, 0) for part, param in zip(self._means, self._params, strict=False)]
        return {"method": type(self).__name__, "memory": memory, "means": means}

    def _announce(self) -> None:
        logger.info("%r: allocated when first used", self)
        if self.memory_bytes > WARN_ABOVE_BYTES:
            warnings.warn(
                f"{self!r} will allocate {readable_bytes(self.memory_bytes)} when first used. To make it less, take "
                f'dtype=torch.bfloat16, fewer slots or fewer parameters; device="cpu" moves it off an accelerator',
                UserWarning,
                stacklevel=4,
            )

    def _allocate(self) -> None:
        if self._memory:
            return
        for param, shape, kept, wide in zip(self._params, self._shapes, self._types, self._wide, strict=True):
            device = self._device or param.device
            self._memory.append(torch.zeros((self._rows, *shape), dtype=kept, device=device))
            self._means.append(torch.zeros(shape, dtype=wide, device=param.device))

    def _gradients(self) -> list[tuple[int, Tensor]]:
        """Position and gradient of every parameter that has one."""
        for param in self._params:
            grad: Any = param.grad
            if is_sharded(param) and grad is not None and grad.placements != placements_of(param):
                param.grad = grad.redistribute(placements=placements_of(param))
        found = [(k, param.grad) for k, param in enumerate(self._params) if param.grad is not None]
        for k, grad in found:
            if grad.layout != torch.strided:
                raise ValueError(
                    f"{type(self).__name__}: {self._labels[k]} has a gradient of layout {grad.layout}; the memory is "
                    f"dense, so give it dense gradients (sparse=False in nn.Embedding) or leave it out"
                )
        return found

    def _finite_on_all_ranks(self, fresh: list[tuple[int, Tensor]]) -> dict[int, Tensor]:
        """Whether the gradients of the DTensors among the parameters are finite, and so in the memory, on all ranks."""
        found: dict[int, Tensor] = {}
        chosen = [(k, grad) for k, grad in fresh if is_sharded(self._params[k])]
        for mesh in meshes_of(self._params[k] for k, _ in chosen):
            here = [(k, grad) for k, grad in chosen if meshes_of([self._params[k]]) == [mesh]]
            bad = [torch.isfinite(numbers_of(grad).to(self._types[k])).all().logical_not() for k, grad in here]
            groups = tuple(mesh.get_group(dim) for dim in range(mesh.ndim))
            totals = summed([one.float() for one in bad], groups)
            found |= {k: total == 0 for (k, _), total in zip(here, totals, strict=True)}
        return found

    @contextmanager
    def _gradients_put_back(self) -> Iterator[None]:
        """Give every parameter back the `.grad` it has now, whatever happens inside."""
        given = [param.grad for param in self._params]
        try:
            yield
        finally:
            for param, grad in zip(self._params, given, strict=True):
                param.grad = grad

    def _run(self, closure: Callable[[], Any]) -> None:
        """Call a closure that does backward, with no gradient left from before."""
        for param in self._params:
            param.grad = None
        with torch.enable_grad():
            closure()

    def _check_keys(self, state: State, keys: Sequence[str]) -> None:
        """Raise a ValueError unless the state is one of this class."""
        who = type(self).__name__
        missing = [key for key in ("method", "memory", "means", *keys) if key not in state]
        if missing:
            raise ValueError(f"{who}: the state has no {missing[0]!r}; pass what {who}.state_dict() returned")
        if state["method"] != who:
            raise ValueError(f"{who}: the state is one of {state['method']}; pass what {who}.state_dict() returned")

    def _loaded(self, state: State) -> tuple[list[Tensor], list[Tensor]]:
        """Copies of the saved memory and means in the types and on the devices of this object, or a ValueError."""
        who = type(self).__name__
        memory, means = state["memory"], state["means"]
        if not memory and not means:
            return [], []
        for kind, saved, rows in (("memory", memory, (self._rows,)), ("means", means, ())):
            if len(saved) != len(self._params):
                raise ValueError(
                    f"{who}: the state has the {kind} of {len(saved)} parameters; this object has {len(self._params)}"
                )
            shapes = [(*param.shape, 2) if param.is_complex() else tuple(param.shape) for param in self._params]
            for label, tensor, shape in zip(self._labels, saved, shapes, strict=True):
                if tuple(tensor.shape) != (*rows, *shape):
                    raise ValueError(
                        f"{who}: the state's {kind} of {label} has shape {tuple(tensor.shape)}; expected "
                        f"{(*rows, *shape)} (real and imaginary parts are a last dimension of 2)"
                    )
        devices = [self._device or param.device for param in self._params]
        memory = [part_of(tensor, param, 1) for tensor, param in zip(memory, self._params, strict=True)]
        means = [part_of(tensor, param, 0) for tensor, param in zip(means, self._params, strict=True)]
        own = zip(self._params, self._types, self._wide, devices, memory, means, strict=True)
        copies = [
            (rows.to(device, kept, copy=True), mean.to(param.device, wide, copy=True))
            for param, kept, wide, device, rows, mean in own
        ]
        return [rows for rows, _ in copies], [mean for _, mean in copies]


def trained_parameters(who: str, params: Any) -> list[tuple[str, Tensor]]:
    """The parameters that need gradients, each with what to call it in a message."""
    if isinstance(params, (Tensor, dict, str)) or not hasattr(params, "__iter__"):
        raise ValueError(f"{who}: params must be a list of parameters or of groups; got {type(params).__name__}")
    entries: list[Any] = []
    for entry in params:
        inside = entry.get("params", ()) if isinstance(entry, dict) else (entry,)
        entries.extend([inside] if isinstance(inside, Tensor) else inside)
    named: list[tuple[str, Tensor]] = []
    for position, entry in enumerate(entries):
        name, param = entry if isinstance(entry, tuple) and len(entry) == 2 else (None, entry)
        label = f"parameter {position}" if name is None else f"parameter {name!r}"
        if not isinstance(param, Tensor):
            raise ValueError(f"{who}: {label} must be a tensor, or a pair of a name and a tensor; got {entry!r}")
        if any(param is other for _, other in named):
            raise ValueError(f"{who}: {label} of shape {tuple(param.shape)} is given twice")
        named.append((label, param))
    trained = [(label, param) for label, param in named if param.requires_grad]
    if not trained:
        raise ValueError(f"{who}: params has no parameter that requires a gradient; got {len(named)} parameters")
    return trained


def is_integer(number: Any, *, least: int) -> bool:
    """Whether a number is an integer, and not below `least`."""
    return not isinstance(number, bool) and isinstance(number, Integral) and int(number) >= least


def numbers_of(tensor: Tensor) -> Tensor:
    """This rank's part of a tensor as real numbers: of complex ones real and imaginary parts, the last dimension."""
    detached = local_part(tensor.detach())
    return torch.view_as_real(detached.resolve_conj()) if tensor.is_complex() else detached


def write_(target: Tensor, numbers: Tensor) -> None:
    """Write real numbers into a tensor, in its type and on its device; the inverse of `numbers_of`."""
    if target.is_complex():
        numbers = torch.view_as_complex(numbers.to(target.dtype.to_real()).contiguous())
    local_part(target.detach()).copy_(numbers)


def placements_of(tensor: Any, shift: int = 0) -> tuple[Any, ...]:
    """The placements of a DTensor; with `shift` dimensions more in front of its own."""
    from torch.distributed.tensor import Shard

    moved = [Shard(one.dim + shift) if isinstance(one, Shard) else one for one in tensor.placements]
    return tuple(moved if shift else tensor.placements)


def spread(part: Tensor, param: Any, shift: int) -> Tensor:
    """A part of this rank as a DTensor placed like the parameter, with `shift` dimensions more in front."""
    if not is_sharded(param):
        return part
    shape = (*part.shape[:shift], *param.shape, *(2,) * param.is_complex())
    return from_parts(part, param.device_mesh, placements_of(param, shift), shape)


def part_of(tensor: Any, param: Any, shift: int) -> Tensor:
    """The inverse of `spread`; also of a tensor that is whole, or placed in another way."""
    if not is_sharded(param):
        whole: Tensor = tensor.full_tensor() if is_sharded(tensor) else tensor
        return whole
    return local_part(placed(tensor, param.device_mesh, placements_of(param, shift)))


def readable_bytes(count: int) -> str:
    """A number of bytes in the largest unit that keeps it at least one: 1536 -> 1.5 KiB."""
    size, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.4g} {unit}"
