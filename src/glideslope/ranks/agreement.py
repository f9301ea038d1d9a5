"""Ranks that must agree: the same error on all where they were not called alike, or one fails."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from glideslope.engine.products import is_on_host
from glideslope.ranks.dtensors import groups_of, is_sharded, meshes_of

# Digits of a fingerprint, of 6 bits each: the sum of their squares over 4096 ranks is exact in float32.
DIGITS = 16


def check_agreement(who: str, named: Iterable[tuple[str, Any]], group: dict[str, Any]) -> None:
    """Raise a ValueError on every rank if they were not given the same parameters and options."""
    entries = list(named)
    mine = description(entries, group)
    for mesh in meshes_of(param for _, param in entries):
        agree(who, mine, groups_of(mesh))


def options_of(group: dict[str, Any]) -> dict[str, Any]:
    """The options of a group of parameters, by name."""
    return {key: value for key, value in group.items() if key not in ("params", "param_names")}


def in_words(option: Any, *, wait: bool) -> str:
    """An option in words; a tensor on a device by its value only if it may be waited for."""
    if not isinstance(option, Tensor):
        return repr(option)
    if wait or is_on_host(option.detach()):
        return f"a {option.dtype} tensor, {option.tolist()}"
    return f"a {option.dtype} tensor of shape {tuple(option.shape)} on {option.device.type}"


def description(entries: Iterable[tuple[str, Any]], group: dict[str, Any], *, wait: bool = True) -> dict[str, str]:
    """Parameters and options, which must be the same on all ranks, in words."""
    words = {f"option {key}": in_words(value, wait=wait) for key, value in options_of(group).items()}
    for name, param in entries:
        placed = f", placed as {tuple(param.placements)}" if is_sharded(param) else ""
        label = name if name.startswith("parameter ") else f"parameter {name!r}"
        words[label] = f"shape {tuple(param.shape)}, {param.dtype}{placed}"
    return words


def agree(who: str, mine: dict[str, str], groups: Sequence[Any] = (None,)) -> None:
    """Compare descriptions over the ranks of groups, by default all, and raise a ValueError that names a difference."""
    for group in groups:
        first, *others = gathered(mine, group)
        for rank, other in enumerate(others, 1):
            for what in {**first, **other}:
                here, there = first.get(what, "missing"), other.get(what, "missing")
                if here != there:
                    raise ValueError(
                        f"{who}: the ranks must agree; {what} is {here} on rank 0 and {there} on rank {rank} of the "
                        "group"
                    )


def check_fingerprint(
    who: str, groups: Sequence[dict[str, Any]], gradients_of: Callable[[Sequence[Tensor]], list[Tensor | None]]
) -> None:
    """Raise a ValueError on every rank if the options of this step, or what has gradients, differ between ranks.

    One all-reduce of 32 numbers, whatever the ranks are about to do, so that no later one waits for ever: digits h and
    h², and all ranks have the same where (Σ h)² = r Σ h². It is on the CPU where the ranks have a backend there, so
    that an accelerator is not waited for. Options in tensors on an accelerator are compared there: `assert_alike`.
    """
    import torch.distributed as dist

    constrained = [group for group in groups if group["orthogonal"]]
    meshes = meshes_of(param for group in constrained for param in group["params"])
    mine: dict[str, str] = {}
    for number, group in enumerate(constrained):
        words = description([], group, wait=False)
        mine |= {f"{what} of group {number}": value for what, value in words.items()}
        for i, gradient in enumerate(gradients_of(group["params"])):
            mine[f"the gradient of parameter {i} of group {number}"] = "None" if gradient is None else "given"
    digest = hashlib.sha256(repr(sorted(mine.items())).encode()).digest()
    digits = torch.tensor([byte & 63 for byte in digest[:DIGITS]], dtype=torch.float32)
    for mesh in meshes:
        for ranks in groups_of(mesh):
            on_host = mesh.device_type == "cpu" or "cpu" in str(dist.get_backend_config(ranks))
            wire = torch.cat([digits, digits.square()]).to("cpu" if on_host else mesh.device_type)
            dist.all_reduce(wire, group=ranks)
            sums, squares = wire[:DIGITS].double(), wire[DIGITS:].double()
            if not torch.equal(sums.square(), squares * dist.get_world_size(ranks)):
                agree(who, mine, [ranks])
    options = [value for group in constrained for value in options_of(group).values() if isinstance(value, Tensor)]
    hidden = [value for value in options if not is_on_host(value.detach())]
    for mesh in meshes if hidden else []:
        for ranks in groups_of(mesh):
            assert_alike(who, hidden, ranks)


def assert_alike(who: str, tensors: Sequence[Tensor], group: Any) -> None:
    """Stop with a RuntimeError where tensors on a device differ between ranks, without waiting for the device.

    One all-reduce of two numbers per byte: the largest byte of any rank, and the smallest. The outcome is asserted on
    the device, so on CUDA the error comes with a later call, as other assertions there do; the step is of no use then.
    """
    import torch.distributed as dist

    bits = torch.cat([tensor.detach().reshape(-1).view(torch.uint8) for tensor in tensors]).to(torch.int32)
    wire = torch.cat([bits, -bits])
    dist.all_reduce(wire, op=dist.ReduceOp.MAX, group=group)
    largest, smallest = wire.chunk(2)
    same = (largest == -smallest).all()
    torch._assert_async(same, f"{who}: a tensor among the options (lr) differs between the ranks; give all the same")


def rank_and_ranks(group: Any = None) -> tuple[int, int]:
    """This rank and the number of ranks, in all or in a group; (0, 1) without torch.distributed."""
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(group), dist.get_world_size(group)
    return 0, 1


def gathered(mine: Any, group: Any = None) -> list[Any]:
    """The values of all ranks, or of those of a group, in order."""
    ranks = rank_and_ranks(group)[1]
    if ranks == 1:
        return [mine]
    everyone: list[Any] = [None] * ranks
    torch.distributed.all_gather_object(everyone, mine, group=group)
    return everyone


@contextlib.contextmanager
def failing_together(kind: type[Exception], failure: str) -> Iterator[None]:
    """Wait for all ranks at the end of a block, and raise an error of any of them on all: none waits for ever."""
    from torch.distributed.checkpoint.api import CheckpointException

    cause: BaseException | None = None
    try:
        yield
    except CheckpointException as error:
        cause = next(iter(error.failures.values()))[0]
    except Exception as error:
        cause = error
    everyone = gathered(None if cause is None else f"{failure}: {str(cause) or type(cause).__name__}")
    for rank, text in enumerate(everyone):
        if text is not None:
            raise kind(f"{text} (on rank {rank})" if len(everyone) > 1 else text) from cause
