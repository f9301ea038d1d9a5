"""What a piece of code allocates, as torch's profiler sees it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch.profiler import ProfilerActivity, profile

# Operations that say nothing of what the memory is for: the one around them is named instead.
ANONYMOUS = frozenset(
    ("[memory]", "aten::empty", "aten::empty_strided", "aten::empty_like", "aten::new_empty", "aten::resize_")
)


@dataclass(frozen=True)
class Allocations:
    """Memory that was newly asked for; what was freed again in between counts too.

    Args:
        total: Bytes of all allocations.
        largest: Bytes of the largest one.
        largest_by: The operation that made it.
        count: How many there were.
    """

    total: int
    largest: int
    largest_by: str
    count: int


def allocations(run: Callable[[], object], device: str = "cpu") -> Allocations:
    """Count the allocations of run() on a device. Costs a profile: not to be timed."""
    if device.startswith("cuda"):
        torch.cuda.synchronize()
    with silent(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    results = profiled.profiler.kineto_results if profiled.profiler is not None else None
    events = [] if results is None else list(results.events())
    on_device = torch.device(device).type
    found = [
        event
        for event in events
        if event.name() == "[memory]" and event.nbytes() > 0 and device_name(event.device_type()) == on_device
    ]
    if not found:
        return Allocations(0, 0, "", 0)
    largest = max(found, key=lambda event: event.nbytes())
    moment = largest.start_ns()
    around = [
        (event.duration_ns(), event.name())
        for event in events
        if event.start_ns() <= moment <= event.start_ns() + event.duration_ns() and event.name() not in ANONYMOUS
    ]
    by = min(around)[1] if around else ""
    return Allocations(sum(event.nbytes() for event in found), largest.nbytes(), by, len(found))


@contextmanager
def silent() -> Iterator[None]:
    """Nothing to the standard error of the process: the profiler writes there when it starts and stops."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def device_name(kind: object) -> str:
    """DeviceType.CPU -> cpu."""
    return str(kind).rpartition(".")[2].lower()
