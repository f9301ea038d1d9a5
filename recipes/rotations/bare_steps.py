"""One optimizer step on one n x n matrix: `python -m recipes.rotations.bare_steps SIZE ... --threads T`.

Time, interleaved, also of the parts that bound a step from below; and memory. Writes results/bare_steps.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal
from torch.profiler import ProfilerActivity, profile

import glideslope as gs
from benchmarks.environment import Environment
from benchmarks.steps.memory import silent
from glideslope.files import write_whole
from recipes.rotations.optimizers import METHODS, Holder, Method

RESULTS = Path(__file__).parent / "results" / "bare_steps.json"
Measured = dict[str, dict[str, float]]


def bare_steps(n: int, rounds: int) -> Measured:
    """Median milliseconds of steps and parts, interleaved, and the median of their ratios to LandingSGD's step."""
    start, G = point_and_gradient(n)
    works = parts(start, G)
    for name, method in METHODS.items():
        works[name] = ready(method, start, G)[0].step
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(1 + rounds):
        for name, work in works.items():
            started = time.perf_counter()
            work()
            taken[name].append(time.perf_counter() - started)
    taken = {name: seconds[1:] for name, seconds in taken.items()}  # the first round is to warm up
    return {
        name: {
            "milliseconds": 1e3 * statistics.median(taken[name]),
            "times_landing": statistics.median(a / b for a, b in zip(taken[name], taken["LandingSGD"], strict=True)),
        }
        for name in works
    }


def point_and_gradient(n: int) -> tuple[Tensor, Tensor]:
    """An orthogonal matrix, and a gradient of norm 1e-3: about that of the objective, which the rates are for."""
    generator = torch.Generator().manual_seed(0)
    start, G = gs.random_stiefel(n, n, generator=generator), torch.randn(n, n, generator=generator)
    return start, G * (1e-3 / n)


def ready(method: Method, start: Tensor, G: Tensor) -> tuple[torch.optim.Optimizer, nn.Parameter]:
    """An optimizer of a copy of the start, which has a gradient."""
    X = nn.Parameter(start.clone())
    X.grad = G.clone()
    return method.build([X], method.rates[len(method.rates) // 2]), X


def parts(X: Tensor, G: Tensor) -> dict[str, Callable[[], object]]:
    """Three n³ products, a QR, and torch's Cayley map forth, and forth and back."""
    out, holder = torch.empty_like(X), orthogonal(Holder(X), orthogonal_map="cayley")
    return {
        "three products": lambda: [torch.mm(X, G, out=out) for _ in range(3)],
        "QR alone": partial(torch.linalg.qr, X + G),
        "Cayley map": lambda: holder.weight,
        "Cayley map and its backward": lambda: holder.weight.backward(G),
    }


def memory(method: Method, n: int) -> dict[str, float]:
    """Matrices that an optimizer holds at most, and still holds between steps, beside the matrix and its gradient."""
    start, G = point_and_gradient(n)
    X = nn.Parameter(start)
    X.grad = G
    with silent(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        optimizer = method.build([X], method.rates[len(method.rates) // 2])
        for _ in range(2):
            optimizer.step()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    matrix = X.element_size() * X.numel()
    return {"peak_matrices": peak / matrix, "held_matrices": held / matrix}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", type=int, nargs="+", help="n")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    record = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"steps": {}}
    record["memory"] = {name: memory(method, 512) for name, method in METHODS.items()}
    for n in arguments.sizes:
        about = Environment.now("python -m recipes.rotations.bare_steps", "cpu", torch.float32).as_json()
        record["steps"][f"{n} | {arguments.threads}"] = {"about": about, "times": bare_steps(n, arguments.rounds)}
        write_whole(RESULTS, [json.dumps(record, indent=1).encode()])
        print(n, record["steps"][f"{n} | {arguments.threads}"]["times"], flush=True)


if __name__ == "__main__":
    main()
