"""Perplexity of SmolLM2 under quantisation, by rotation: `python -m recipes.rotations.measure --learned FOLDER`.

FOLDER holds what `python -m recipes.rotations smollm2` wrote to `cross-entropy` and `data-free`. The text is the test
part of Python's help topics. What is recorded is not repeated. Writes results/smollm2.json.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.environment import Environment
from glideslope.files import write_whole
from recipes.rotations.export import exact, load, read_rotations
from recipes.rotations.fold import fold_, fuse_norms_
from recipes.rotations.quantise import Quantisation, quantised
from recipes.rotations.rotations import Rotations
from recipes.rotations.texts import help_topics, sequences

RESULTS = Path(__file__).parent / "results" / "smollm2.json"
SETTINGS = ("W4A16", "W4A8", "W4A4")
LENGTH, EVERY, BATCH = 256, 2, 4  # tokens in a sequence; one test sequence in two, for time; sequences at a time
SEEDS = {"none": 1, "random": 1, "Hadamard-like": 1, "data-free": 1, "cross-entropy": 1}
FIXED = {"none": "identity", "random": "random", "Hadamard-like": "hadamard"}


@torch.no_grad()
def perplexity(model: Any, ids: Tensor, grids: Quantisation) -> float:
    """Exp of the mean loss of the next token over sequences of token ids."""
    losses = []
    with quantised(model, grids, recompute=False):
        for batch in ids.split(BATCH):
            logits = model(batch, use_cache=False).logits[:, :-1].float()
            losses.append(functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none"))
    return math.exp(torch.cat(losses).double().mean().item())


def rotations_of(model: Any, name: str, seed: int, learned: Path) -> Rotations:
    """Fixed ones from a seed, learned ones from their R.bin."""
    if name in FIXED:
        return Rotations.start(model, FIXED[name], seed)
    return read_rotations(learned / name / "R.bin", model)


def learning(folder: Path) -> dict[str, Any]:
    """What a run of learning recorded, its values rounded and its output folder left out of the command."""
    found = dict(json.loads((folder / "learning.json").read_text(encoding="utf-8")))
    command = found["about"]["command"].split(" --output ")[0]
    values = [float(f"{value:.5g}") for value in found["values"]]
    key = "largest_entry_without_projection"
    return {"command": command, key: found[key], "values": values}


def planned(names: list[str], done: dict[str, float]) -> Iterator[tuple[str, int, list[str]]]:
    """Rotation, seed and the quantisations left; learned rotations also without rounding, to see the fold."""
    for name in names:
        for seed in range(SEEDS[name]):
            settings = SETTINGS if name in FIXED else (*SETTINGS, "W16A16")
            left = [setting for setting in settings if f"{name} | {seed} | {setting}" not in done]
            if left:
                yield name, seed, left


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--learned", type=Path, required=True, help="folder with data-free/ and cross-entropy/")
    parser.add_argument("--rotations", nargs="+", choices=SEEDS, default=list(SEEDS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model, tokenizer = load("smollm2")
    ids = sequences(tokenizer, help_topics().validation, LENGTH)[::EVERY]
    record = json.loads(arguments.output.read_text(encoding="utf-8")) if arguments.output.exists() else {"runs": {}}
    environment = Environment.now("python -m recipes.rotations.measure", "cpu", torch.float32).as_json()
    environment["command"] = "python -m recipes.rotations.measure --learned FOLDER"
    record["about"] = environment | {"test_tokens": ids.numel(), "sequence": LENGTH}
    original = record.setdefault("original", perplexity(model, ids, Quantisation.named("W16A16")))
    print(f"original {original:.2f}", flush=True)
    fuse_norms_(model)
    for name in arguments.rotations:
        if name not in FIXED:
            record.setdefault("learning", {})[name] = learning(arguments.learned / name)
    for name, seed, settings in planned(arguments.rotations, record["runs"]):
        folded = fold_(copy.deepcopy(model), *exact(rotations_of(model, name, seed, arguments.learned)))
        for setting in settings:
            key = f"{name} | {seed} | {setting}"
            record["runs"][key] = perplexity(folded, ids, Quantisation.named(setting))
            write_whole(arguments.output, [json.dumps(record, indent=1).encode()])
            print(f"{key}: {record['runs'][key]:.2f}", flush=True)


if __name__ == "__main__":
    main()
