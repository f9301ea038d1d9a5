"""Muon with landing and its relatives on a small transformer: `python -m benchmarks.muon.run`.

Trains a transformer on the characters of Python's help topics with every method, four learning rates and five seeds,
on one thread. Every method starts from the same orthonormal weights. Records validation loss, distance, and the time
and matrix products of optimizer.step(). A run that is in the file is not repeated. Prints a table and writes
benchmarks/results/muon.json.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.optim.lr_scheduler import LambdaLR
from torch.utils._python_dispatch import TorchDispatchMode

import glideslope as gs
from benchmarks.environment import Environment
from benchmarks.muon.manifold_muon import ITERATIONS, ManifoldMuon
from benchmarks.muon.methods import FREE, METHODS, Method, hidden_matrices, landing_of
from benchmarks.muon.table import summary
from benchmarks.muon.text import batches, characters, loss_of, orthonormal_transformer, windows
from glideslope.files import write_whole

RESULTS = Path(__file__).parents[1] / "results" / "muon.json"
# Products of matrices and the position of their first factor.
PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "addmm_": 1, "baddbmm": 1, "baddbmm_": 1}


class Size(NamedTuple):
    """How large the work is."""

    width: int = 64
    layers: int = 2
    context: int = 64
    batch: int = 8
    steps: int = 300
    validation: int = 256


SIZE = Size()


class Multiplications(TorchDispatchMode):
    """Adds up n k m over all products of an n x k with a k x m matrix."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = PRODUCTS.get(function.overloadpacket.__name__)
        if first is not None:
            self.count += args[first].numel() * args[first + 1].shape[-1]
        return function(*args, **(kwargs or {}))


def train(method: Method, lr: float, seed: int, size: Size) -> dict[str, Any]:
    """One run as a record. Seconds are CPU time of the one thread; the learning rates follow a cosine to zero."""
    training, held_out = characters()
    model = orthonormal_transformer(seed, size.width, size.layers, size.context)
    optimizers = method.build(model, lr)
    schedules = [LambdaLR(each, lambda step: 0.5 + 0.5 * math.cos(math.pi * step / size.steps)) for each in optimizers]
    source = batches(training, size.context, size.batch, torch.Generator().manual_seed(seed))
    losses, seconds, farthest, counted = [], [], 0.0, Multiplications()
    for step in range(size.steps):
        loss = loss_of(model, next(source))
        model.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        losses.append(loss.item())
        started = time.process_time()
        if step == size.steps // 2:
            with counted:
                take_step(optimizers)
        else:
            take_step(optimizers)
            seconds.append(time.process_time() - started)
        for schedule in schedules:
            schedule.step()
        if step % max(1, size.steps // 40) == 0:
            farthest = max(farthest, gs.orthogonality(model).largest_distance)
    distance = gs.orthogonality(model).largest_distance
    if method.keeps_orthonormal:
        gs.project_(model)
    with torch.no_grad():
        validation = loss_of(model, windows(held_out, size.context, size.validation)).item()
    return {
        "validation_loss": validation,
        "training_loss": statistics.fmean(losses[-max(1, size.steps // 20) :]),
        "distance": distance,
        "distance_largest": max(farthest, distance),
        "seconds_per_step": statistics.median(seconds),
        "products_per_matrix": counted.count / one_product_each(model),
        **particulars(optimizers, size.steps, len(hidden_matrices(model))),
    }


def take_step(optimizers: list[torch.optim.Optimizer]) -> None:
    for optimizer in optimizers:
        optimizer.step()


def one_product_each(model: torch.nn.Module) -> int:
    """Multiplications of one product XᵀG per hidden matrix, n p² each: the unit of `products_per_matrix`."""
    return sum(max(matrix.shape) * min(matrix.shape) ** 2 for matrix in hidden_matrices(model))


def particulars(optimizers: list[torch.optim.Optimizer], steps: int, matrices: int) -> dict[str, float]:
    """Share of steps that the safeguard shortened; signs of the dual ascent and the normal part it left."""
    first, landing = optimizers[0], landing_of(optimizers)
    if isinstance(first, ManifoldMuon):
        return {"signs_per_matrix": first.signs / steps / matrices, "normal_part_left": statistics.fmean(first.left)}
    if landing is None:
        return {}
    return {"shortened": sum(sum(row.shortened) for row in landing.diagnostics()) / steps / matrices}


def planned(seeds: int) -> Iterator[tuple[str, Method, float, int]]:
    """All runs, by name; the methods take turns, so that a busy machine is busy for all of them."""
    for seed in range(seeds):
        for position in range(len(METHODS[0].rates)):
            for method in METHODS:
                lr = method.rates[position]
                yield f"{method.name} | {lr:g} | {seed}", method, lr, seed


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))["runs"]) if path.exists() else {}


def write(path: Path, about: dict[str, Any], runs: dict[str, Any]) -> None:
    """One line per run; five digits, null for what is not finite."""
    lines = []
    for name, run in runs.items():
        rounded = {key: None if not math.isfinite(run[key]) else float(f"{run[key]:.5g}") for key in run}
        lines.append(f"  {json.dumps(name)}: {json.dumps(rounded)}")
    body = ",\n".join(lines)
    write_whole(path, [f'{{\n "about": {json.dumps(about)},\n "runs": {{\n{body}\n }}\n}}\n'.encode()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="print the table of what is recorded, and run nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    runs = read(arguments.output)
    left = [] if arguments.table else [run for run in planned(arguments.seeds) if run[0] not in runs]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    about = Environment.now("python -m benchmarks.muon.run", "cpu", torch.float32).as_json() | {
        "commit": commit.stdout.strip(),
        "size": SIZE._asdict(),
        "free_parameters": {"optimizer": "AdamW", **FREE},
        "dual_iterations": ITERATIONS,
        "seconds_per_step": "CPU time on a shared machine: indicative only",
    }
    started = time.perf_counter()
    for number, (name, method, lr, seed) in enumerate(left, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that steps are shortened: they are counted
            runs[name] = train(method, lr, seed, SIZE)
        write(arguments.output, about, runs)
        minutes = (time.perf_counter() - started) / number * (len(left) - number) / 60
        loss, distance = runs[name]["validation_loss"], runs[name]["distance"]
        print(f"{number}/{len(left)}, {minutes:.0f} min left: {name}: {loss:.4f}, distance {distance:.1e}", flush=True)
    print(summary(read(arguments.output), arguments.seeds))


if __name__ == "__main__":
    main()
