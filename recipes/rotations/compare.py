"""Optimizers that people use for rotations, against ours: `python -m recipes.rotations.compare`.

Every method minimises the data-free objective on SmolLM2 from the same start, with the same draws of layers and a rate
of its own from a grid; then bare steps are timed, interleaved, on one n x n matrix. Writes results/optimizers.json.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal
from torch.profiler import ProfilerActivity, profile

import glideslope as gs
from benchmarks.environment import Environment
from benchmarks.steps.memory import silent
from glideslope.files import write_whole
from recipes.rotations.cayley_sgd import CayleySGD
from recipes.rotations.export import load
from recipes.rotations.fold import fuse_norms_, off_orthogonal
from recipes.rotations.learn import learn
from recipes.rotations.quantise import Quantisation
from recipes.rotations.rotations import Rotations, rounding_error

RESULTS = Path(__file__).parent / "results" / "optimizers.json"
STEPS, LAYERS_PER_STEP = 40, 2


class CayleyParametrized(torch.optim.Optimizer):
    """SGD or Adam on the skew matrices of torch's Cayley parametrization; a step takes the map back and forth once."""

    def __init__(self, params: Any, lr: float, inner: Callable[..., torch.optim.Optimizer]) -> None:
        super().__init__(params, {"lr": lr})
        matrices = [X for group in self.param_groups for X in group["params"]]
        self.holders = [orthogonal(Holder(X), orthogonal_map="cayley") for X in matrices]
        self.inner = inner([V for holder in self.holders for V in holder.parameters()], lr=lr)
        self.points = [(X, holder.weight) for X, holder in zip(matrices, self.holders, strict=True)]

    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Gradients go from the matrices to the skew matrices, and new matrices come back."""
        self.inner.param_groups[0]["lr"] = self.param_groups[0]["lr"]
        self.inner.zero_grad()
        for X, R in self.points:
            R.backward(X.grad)
        self.inner.step()
        self.points = [(X, holder.weight) for (X, _), holder in zip(self.points, self.holders, strict=True)]
        with torch.no_grad():
            for X, R in self.points:
                X.copy_(R)


class Holder(nn.Module):
    """A copy of a matrix as the weight of a module."""

    def __init__(self, X: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(X.detach().clone())


class Method(NamedTuple):
    """An optimizer of matrices and the learning rates it is tried with."""

    build: Callable[[list[Tensor], float], torch.optim.Optimizer]
    rates: tuple[float, ...]


SGD_RATES = (100.0, 300.0, 1000.0, 3000.0)  # the gradient has a norm of 1e-3
ADAM_RATES = (3e-4, 1e-3, 3e-3, 1e-2)
METHODS = {
    "LandingSGD": Method(lambda X, lr: gs.LandingSGD(X, lr=lr), SGD_RATES),
    "LandingSGD, momentum": Method(lambda X, lr: gs.LandingSGD(X, lr=lr, momentum=0.9), SGD_RATES),
    "LandingAdam": Method(lambda X, lr: gs.LandingAdam(X, lr=lr), ADAM_RATES),
    "SGDG as it is run": Method(lambda X, lr: CayleySGD(X, lr, momentum=0, iterations=5), SGD_RATES),
    "Cayley SGD of the paper": Method(lambda X, lr: CayleySGD(X, lr, momentum=0.9, iterations=2), SGD_RATES),
    "Riemannian SGD, QR": Method(lambda X, lr: gs.RiemannianSGD(X, lr=lr), SGD_RATES),
    "torch Cayley, SGD": Method(lambda X, lr: CayleyParametrized(X, lr, torch.optim.SGD), SGD_RATES),
    "torch Cayley, Adam": Method(lambda X, lr: CayleyParametrized(X, lr, torch.optim.Adam), ADAM_RATES),
}


def run(model: Any, name: str, lr: float) -> dict[str, float]:
    """Objective on all layers before and after, seconds in optimizer.step() and the distance of R1 from orthogonal."""
    rotations = Rotations.start(model, "hadamard")
    rotations.scales.requires_grad_(False)
    optimizer = METHODS[name].build([rotations.R1, rotations.R2], lr)
    seconds: list[float] = []
    optimizer.register_step_pre_hook(lambda *_: seconds.append(-time.process_time()))
    optimizer.register_step_post_hook(lambda *_: seconds.append(time.process_time()))
    grids = Quantisation.named("W4A16")
    learn(rotations, rounding_error(model, grids, LAYERS_PER_STEP), optimizer, STEPS)
    reached = rounding_error(model, grids)(rotations, 0)
    return {"objective": reached, "largest_entry": off_orthogonal(rotations.R1), "seconds_in_optimizer": sum(seconds)}


def bare_steps(n: int, rounds: int) -> dict[str, dict[str, float]]:
    """Median time and its ratio to LandingSGD of steps on one n x n matrix, interleaved; peak memory in matrices."""
    generator = torch.Generator().manual_seed(0)
    G, start = torch.randn(n, n, generator=generator) / n, gs.random_stiefel(n, n, generator=generator)
    optimizers, taken = {}, {}
    for name, method in METHODS.items():
        X = nn.Parameter(start.clone())
        X.grad = G.clone()
        optimizers[name] = method.build([X], method.rates[0])
        optimizers[name].step()
        taken[name] = []
    for _ in range(rounds):
        for name, optimizer in optimizers.items():
            started = time.perf_counter()
            optimizer.step()
            taken[name].append(time.perf_counter() - started)
    base = taken["LandingSGD"]
    return {
        name: {
            "milliseconds": 1e3 * statistics.median(taken[name]),
            "times_landing": statistics.median(a / b for a, b in zip(taken[name], base, strict=True)),
            **({"peak_matrices": peak_matrices(method, start, G)} if n < 1000 else {}),  # the same for all n
        }
        for name, method in METHODS.items()
    }


def peak_matrices(method: Method, start: Tensor, G: Tensor) -> float:
    """The most memory an optimizer holds at once in its first two steps, state and scratch, in matrices."""
    X = nn.Parameter(start.clone())
    X.grad = G.clone()
    with silent(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        optimizer = method.build([X], method.rates[0])
        for _ in range(2):
            optimizer.step()
    events = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / (X.element_size() * X.numel())


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {"runs": {}, "steps": {}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sizes", type=int, nargs="*", default=[576, 4096], help="n of the bare steps")
    parser.add_argument("--only-steps", action="store_true", help="leave the runs of learning out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    record = read(arguments.output)
    record["about"] = Environment.now("python -m recipes.rotations.compare", "cpu", torch.float32).as_json()
    record["about"] |= {"steps": STEPS, "layers_per_step": LAYERS_PER_STEP, "rounds": arguments.rounds}
    left = [(name, lr) for name in METHODS for lr in METHODS[name].rates if f"{name} | {lr:g}" not in record["runs"]]
    left = [] if arguments.only_steps else left
    model = fuse_norms_(load("smollm2")[0]) if left else None
    for name, lr in left:
        found = run(model, name, lr)
        record["runs"][f"{name} | {lr:g}"] = {k: v if math.isfinite(v) else None for k, v in found.items()}
        write_whole(arguments.output, [json.dumps(record, indent=1).encode()])
        print(name, lr, found, flush=True)
    for n in arguments.sizes:
        if str(n) not in record["steps"]:
            record["steps"][str(n)] = bare_steps(n, arguments.rounds)
            write_whole(arguments.output, [json.dumps(record, indent=1).encode()])
            print(n, record["steps"][str(n)], flush=True)


if __name__ == "__main__":
    main()
