"""Optimizers that people use for rotations, against ours: `python -m recipes.rotations.compare`.

Every method minimises the data-free objective on SmolLM2 (weights alone) with the same steps and draws of layers, and
rates that fall like a cosine, as in the code that people use. The rule for rates: from start 0, the rate with the
lowest objective among those at which all rotations end within 1e-6 of orthogonal, without a projection; then the other
starts at that rate, each with draws of its own. What is recorded is not repeated. Writes results/optimizers.json.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.environment import Environment
from glideslope.files import write_whole
from recipes.rotations.export import load
from recipes.rotations.fold import fuse_norms_, off_orthogonal
from recipes.rotations.learn import cosine, learn
from recipes.rotations.optimizers import METHODS
from recipes.rotations.quantise import Quantisation
from recipes.rotations.rotations import Rotations, rounding_error

RESULTS = Path(__file__).parent / "results" / "optimizers.json"
STEPS, LAYERS_PER_STEP, STARTS = 40, 1, 3
ORTHOGONAL = 1e-6  # largest entry of |RᵀR - I| that counts as orthogonal
GRIDS = Quantisation.named("W4A16")
Record = dict[str, Any]


def run(model: Any, name: str, lr: float, start: int) -> dict[str, float]:
    """Objective on all layers at the end, distance from orthogonal, and CPU seconds in optimizer.step()."""
    rotations = Rotations.start(model, "hadamard", start)
    rotations.scales.requires_grad_(False)
    optimizer = METHODS[name].build([rotations.R1, rotations.R2], lr)
    seconds: list[float] = []
    optimizer.register_step_pre_hook(lambda *_: seconds.append(-time.process_time()))
    optimizer.register_step_post_hook(lambda *_: seconds.append(time.process_time()))
    learn(rotations, rounding_error(model, GRIDS, LAYERS_PER_STEP, start), optimizer, STEPS, decay=cosine)
    with torch.no_grad():
        reached = rounding_error(model, GRIDS)(rotations, 0)
    distance = max(off_orthogonal(rotations.R1), off_orthogonal(rotations.R2))
    return {"objective": reached, "largest_entry": distance, "seconds_in_optimizer": sum(seconds)}


def chosen_rate(record: Record, name: str) -> float:
    """The rate of a method by the rule above; if none is within 1e-6, the one that ends nearest to orthogonal."""
    found = {lr: record["runs"][f"{name} | {lr:g} | 0"] for lr in METHODS[name].rates}
    finite = {lr: run for lr, run in found.items() if run["objective"] is not None}
    orthogonal = {lr: run for lr, run in finite.items() if run["largest_entry"] <= ORTHOGONAL}
    if not orthogonal:
        return min(finite, key=lambda lr: finite[lr]["largest_entry"])
    return min(orthogonal, key=lambda lr: orthogonal[lr]["objective"])


def read(path: Path) -> Record:
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {"runs": {}}


def runs(record: Record, path: Path) -> None:
    """All rates from start 0, then the other starts at the chosen rates."""
    model = fuse_norms_(load("smollm2")[0])
    for start in range(STARTS):
        for name, method in METHODS.items():
            for lr in method.rates if start == 0 else (chosen_rate(record, name),):
                key = f"{name} | {lr:g} | {start}"
                if key not in record["runs"]:
                    found = run(model, name, lr, start)
                    record["runs"][key] = {k: v if math.isfinite(v) else None for k, v in found.items()}
                    write_whole(path, [json.dumps(record, indent=1).encode()])
                    print(key, found, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    record = read(arguments.output)
    about = Environment.now("python -m recipes.rotations.compare", "cpu", torch.float32).as_json()
    about["command"] = about["command"].split(" --output ")[0]
    record["about"] = about | {"steps": STEPS, "layers_per_step": LAYERS_PER_STEP, "starts": STARTS, "decay": "cosine"}
    runs(record, arguments.output)


if __name__ == "__main__":
    main()
