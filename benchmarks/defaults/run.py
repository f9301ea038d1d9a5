"""What the defaults of LandingSGD and LandingAdam should be: `python -m benchmarks.defaults.run --data FOLDER`.

Trains every kind of work with every option set, three learning rates and three seeds, one thread, and records result,
distance, shortened steps and seconds in optimizer.step(). A run that is in the file is not repeated. Prints a table and
writes benchmarks/results/defaults.json. FOLDER has CIFAR-10; without it the network is trained on digits.
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
from typing import Any

import torch
from torch import Tensor

from benchmarks.defaults.option_sets import OPTION_SETS, OptionSet
from benchmarks.defaults.table import summary
from benchmarks.defaults.works import SEEDS, Work, images, works
from benchmarks.environment import Environment
from glideslope.files import write_whole
from glideslope.optim.base import StiefelOptimizer

RESULTS = Path(__file__).parents[1] / "results" / "defaults.json"
# Steps whose largest distance is recorded: the first ones are the longest.
EARLY = 10


def train(work: Work, options: OptionSet, lr: float, seed: int) -> dict[str, Any]:
    """One run as a record. Seconds are CPU time of the one thread, which other processes hardly change."""
    job = work.start(seed)
    optimizer = options.optimizer(work.optimizer, job.model, lr, **dict(work.shared))
    constrained = [param for group in optimizer.param_groups if group["orthogonal"] for param in group["params"]]
    half, seconds = work.steps // 2, 0.0
    losses: list[float] = []
    moved: list[float] = []
    distances: dict[int, float] = {}
    for step in range(work.steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * work.schedule(step / work.steps)
        options.follow_learning_rate(work.optimizer, optimizer)
        optimizer.zero_grad()
        loss = job.loss(step)
        torch.autograd.backward(loss)
        losses.append(loss.item())
        before = [param.detach().clone() for param in constrained] if step in (0, half) else []
        started = time.process_time()
        optimizer.step()
        seconds += time.process_time() - started
        if before:
            moved.append(root_mean_square_change(before, constrained) / optimizer.param_groups[0]["lr"])
        if step < EARLY or step in (half, work.steps - 1):
            distances[step] = largest_distance(optimizer)
    found = optimizer.diagnostics()
    matrices = sum(len(row.shortened) for row in found)
    with torch.no_grad():
        return {
            "result": job.result(),
            "training_loss": statistics.fmean(losses[-max(1, work.steps // 20) :]),
            "distance": distances[work.steps - 1],
            "distance_halfway": distances[half],
            "distance_early": max(distances[step] for step in range(min(EARLY, work.steps))),
            "shortened": sum(sum(row.shortened) for row in found) / matrices / work.steps,
            "recovered": sum(sum(row.recovered) for row in found),
            "moved": moved,
            "seconds_per_step": seconds / work.steps,
        }


def largest_distance(optimizer: StiefelOptimizer) -> float:
    return max(distance for row in optimizer.diagnostics() for distance in row.distance)


def root_mean_square_change(before: list[Tensor], after: list[Tensor]) -> float:
    """Over all entries of all matrices."""
    total = sum((new.detach() - old).square().sum().item() for old, new in zip(before, after, strict=True))
    return math.sqrt(total / sum(old.numel() for old in before))


def planned(chosen: list[Work], seeds: int) -> Iterator[tuple[str, Work, OptionSet, float, int]]:
    """All runs, by name; seeds outermost, so that whatever is done early covers everything."""
    for seed in range(seeds):
        for work in chosen:
            for lr in work.rates:
                for options in OPTION_SETS:
                    if work.optimizer in options.optimizers:
                        yield f"{work.name} | {options.name} | {lr:g} | {seed}", work, options, lr, seed


def read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8"))["runs"]) if path.exists() else {}


def write(path: Path, about: dict[str, Any], runs: dict[str, Any]) -> None:
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(rounded(run))}" for name, run in runs.items())
    text = f'{{\n "about": {json.dumps(about)},\n "runs": {{\n{lines}\n }}\n}}\n'
    write_whole(path, [text.encode()])


def rounded(value: Any) -> Any:
    """Five digits; None for what is not finite."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    if isinstance(value, float):
        return float(f"{value:.5g}") if math.isfinite(value) else None
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with CIFAR-10")
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--only", nargs="*", help="names of kinds of work")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="print the table of what is recorded, and run nothing")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    every = works(arguments.data)
    chosen = [work for work in every if not arguments.only or work.name in arguments.only]
    runs = read(arguments.output)
    left = [run for run in planned(chosen, arguments.seeds) if run[0] not in runs]
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    about = Environment.now("", "cpu", torch.float32).as_json() | {
        "command": "python -m benchmarks.defaults.run" + (" --data FOLDER" if arguments.data else ""),
        "commit": commit.stdout.strip(),
        "images": images(arguments.data).note,
    }
    started = time.perf_counter()
    for number, (name, work, options, lr, seed) in enumerate([] if arguments.table else left, 1):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that steps are shortened: they are counted
            runs[name] = train(work, options, lr, seed)
        write(arguments.output, about, runs)
        elapsed = time.perf_counter() - started
        rest = elapsed / number * (len(left) - number) / 60
        result, distance = runs[name]["result"], runs[name]["distance"]
        print(f"{number}/{len(left)}, {rest:.0f} min left: {name}: {result:.4g}, distance {distance:.1e}", flush=True)
    print(summary(every, runs))


if __name__ == "__main__":
    main()
