"""`glideslope bench`: what a step costs on this machine, in milliseconds and in bare matrix products."""

from __future__ import annotations

import math
import platform
import time
from collections.abc import Callable, Mapping
from statistics import median
from timeit import Timer
from typing import Annotated

import torch
import typer

from glideslope.cli.workloads import OPTIMIZERS, WORKLOADS, Case, Workload, bare_products

Steps = Mapping[str, Callable[[], object]]
DTYPES = ("float32", "float64", "bfloat16")
SHORTEST_SAMPLE = 2e-3  # seconds; shorter steps are repeated in a sample
ROUNDS, SECONDS = (3, 30), 2.0  # fewest and most rounds of a workload; in between, as many as fit into the seconds
LEARNING_RATE = 1e-6  # so small that X stays where it is


def bench(
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    dtype: Annotated[str, typer.Option(help=", ".join(DTYPES))] = "float32",
) -> None:
    """Time one step of every optimizer on this machine.

    Large matrices, many small ones and convolution kernels: milliseconds of a step, and how many times longer it takes
    than the bare matrix products of the landing field. All take turns, one sample a round; medians are shown.
    """
    try:
        check(device, dtype)
    except ValueError as error:
        typer.echo(f"glideslope bench: {error}", err=True)
        raise typer.Exit(2) from None
    processor = torch.cuda.get_device_name(device) if device.startswith("cuda") else platform.machine()
    typer.echo(f"{processor}, {device}, {dtype}, torch {torch.__version__}, threads: {torch.get_num_threads()}")
    for workload in WORKLOADS:
        seconds, rounds = time_workload(workload, Case(workload, dtype=getattr(torch, dtype), device=device))
        typer.echo(f"\n{f'{workload.name}  (median of {rounds})':<48}{'ms':>10}{'/ products':>14}")
        products = next(iter(seconds.values()))
        for name, value in seconds.items():
            typer.echo(f"  {name:<46}{1e3 * value:>10.4g}{value / products:>14.3g}")


def check(device: str, dtype: str) -> None:
    """Raise a ValueError for a type that is not timed or a device that is not there."""
    if dtype not in DTYPES:
        raise ValueError(f"--dtype must be one of {', '.join(DTYPES)}; got {dtype!r}")
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ValueError(f"--device must be cpu, cuda or cuda:NUMBER; got {device!r}")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise ValueError(f"--device {device}: torch finds {torch.cuda.device_count()} GPUs here; leave the option out")


def time_workload(workload: Workload, case: Case) -> tuple[dict[str, float], int]:
    """Median seconds of a step, the bare products first, and the number of rounds."""
    products = f"{'three' if workload.square else 'four'} bare products"
    made = {name: make(case.parameters(), workload.view, LEARNING_RATE).step for name, make in OPTIMIZERS.items()}
    steps: Steps = {products: bare_products(case, square=workload.square)[0], **made}
    repetitions = {name: repetitions_of(step, case.device) for name, step in steps.items()}
    rounds: list[dict[str, float]] = []
    end = time.perf_counter() + SECONDS
    while len(rounds) < ROUNDS[0] or (len(rounds) < ROUNDS[1] and time.perf_counter() < end):
        rounds.append(take_round(steps, repetitions, len(rounds), case.device))
    return {name: median(seconds[name] for seconds in rounds) for name in steps}, len(rounds)


def timed(step: Callable[[], object], repetitions: int, device: torch.device) -> float:
    """Mean seconds of a step over some repetitions without garbage collection; waits for a GPU before and after."""

    def clock() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    return Timer(step, timer=clock).timeit(repetitions) / repetitions


def repetitions_of(step: Callable[[], object], device: torch.device) -> int:
    """Number of steps in a sample that is long enough for the clock; takes two, the first to warm up."""
    return max(1, math.ceil(SHORTEST_SAMPLE / max(1e-7, min(timed(step, 1, device) for _ in range(2)))))


def take_round(steps: Steps, repetitions: dict[str, int], number: int, device: torch.device) -> dict[str, float]:
    """Seconds of every step, one sample each; the order is rotated every round, and reversed in every other."""
    names = list(steps)
    shift = number % len(names)
    order = (names[shift:] + names[:shift])[:: 1 if number % 2 == 0 else -1]
    return {name: timed(steps[name], repetitions[name], device) for name in order}
