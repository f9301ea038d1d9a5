"""Perplexity of SmolLM2 under quantisation, by rotation: `python -m recipes.rotations.measure TEXT --learned FOLDER`.

FOLDER/OBJECTIVE/RATE/SEED is what `python -m recipes.rotations smollm2` wrote. First `validation`, on which the rate
and the data-free objective are chosen: of the runs of seed 0, those with the lowest perplexity at the quantisation they
were learned for. Then `test`, for the chosen ones. What is recorded is not repeated. Writes results/smollm2.json.
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
from recipes.rotations.fold import fold_, fuse_norms_, places
from recipes.rotations.quantise import Grid, Quantisation, fake_quantise, quantised
from recipes.rotations.rotations import Rotations
from recipes.rotations.texts import data_sets, help_topics, sequences

RESULTS = Path(__file__).parent / "results" / "smollm2.json"
SETTINGS = {"W4A16": Grid(16), "W4A8": Grid(8, symmetric=False), "W4A4": Grid(4, symmetric=False)}
WEIGHTS, LEARNED_FOR = Grid(4), "W4A4"
UNROUNDED = Quantisation(Grid(16), Grid(16))
LENGTH, BATCH = 256, 4  # tokens in a sequence; sequences at a time
SEQUENCES = {"validation": 12, "help topics": 8, "data sets": 8}  # of each text, for time
FIXED = {"none": "identity", "random": "random", "Hadamard-like": "hadamard"}
# Row of the table -> the objectives that it is chosen from.
LEARNED = {"data-free": ("data-free", "weights"), "cross-entropy": ("cross-entropy",)}
SEEDS = {"cross-entropy": 3, "none": 1, "Hadamard-like": 2, "data-free": 3, "random": 2}
TESTS = ("help topics", "data sets")
Record = dict[str, Any]


def texts(tokenizer: Any, names: tuple[str, ...]) -> dict[str, Tensor]:
    """Token ids of each text, shape (number, LENGTH): sequences at equal distances."""
    topics = help_topics()
    found = {"validation": lambda: topics.validation, "help topics": lambda: topics.test, "data sets": data_sets}
    ids = {name: sequences(tokenizer, found[name](), LENGTH) for name in names}
    return {name: some[torch.linspace(0, len(some) - 1, SEQUENCES[name]).long()] for name, some in ids.items()}


@torch.no_grad()
def perplexity(model: Any, ids: Tensor, grids: Quantisation) -> float:
    """Exp of the mean loss of the next token over sequences of token ids."""
    losses = []
    with quantised(model, grids, recompute=False):
        for batch in ids.split(BATCH):
            logits = model(batch, use_cache=False).logits[:, :-1].float()
            losses.append(functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), reduction="none"))
    return math.exp(torch.cat(losses).double().mean().item())


@torch.no_grad()
def rounded_(model: Any) -> Any:
    """Round the weights, in place: once for all texts and inputs."""
    for _, _, linear in places(model):
        linear.weight.copy_(fake_quantise(linear.weight, WEIGHTS))
    return model


def candidates(learned: Path, row: str) -> dict[str, Path]:
    """Folders of the finished runs of seed 0 that a row of the table is chosen from, by objective and rate."""
    found = [path.parent for name in LEARNED[row] for path in sorted(learned.glob(f"{name}/*/0/R.bin"))]
    return {" | ".join(path.parts[-3:-1]): path for path in found}


def chosen(record: Record, row: str) -> str:
    """Objective and rate with the lowest perplexity of the validation text."""
    found = {name: value for name, value in record["validation"].items() if name.split(" | ")[0] in LEARNED[row]}
    if not found:
        raise ValueError(f"no run of {row} is measured on the validation text yet: measure validation first")
    return min(found, key=lambda name: found[name])


def learning(folder: Path) -> Record:
    """What a run of learning recorded, its values rounded and its output folder left out of the command."""
    found = dict(json.loads((folder / "learning.json").read_text(encoding="utf-8")))
    command = found["about"]["command"].split(" --output ")[0]
    values = [float(f"{value:.5g}") for value in found["values"]]
    key = "largest_entry_without_projection"
    return {"command": command, key: found[key], "values": values}


def validate(record: Record, model: Any, tokenizer: Any, learned: Path) -> Iterator[str]:
    """Perplexity of the validation text for every candidate, at the quantisation they were learned for."""
    ids, grids = texts(tokenizer, ("validation",))["validation"], Quantisation(Grid(16), SETTINGS[LEARNED_FOR])
    for row in LEARNED:
        for name, folder in candidates(learned, row).items():
            if name not in record["validation"]:
                folded = fold_(copy.deepcopy(model), *exact(read_rotations(folder / "R.bin", model)))
                record["validation"][name] = perplexity(rounded_(folded), ids, grids)
                yield f"{name}: {record['validation'][name]:.2f}"


def test(record: Record, model: Any, tokenizer: Any, learned: Path) -> Iterator[str]:
    """Perplexity of the test texts for all rows of the table; learned rotations also unrounded, to see the fold."""
    ids = texts(tokenizer, TESTS)
    rates = {row: chosen(record, row) for row in LEARNED}
    for row, seed in ((name, seed) for name, seeds in SEEDS.items() for seed in range(seeds)):
        keys = {f"{row} | {seed} | {setting} | {text}" for setting in SETTINGS for text in ids}
        if keys <= record["runs"].keys():
            continue
        if row in FIXED:
            rotations = Rotations.start(model, FIXED[row], seed)
        else:
            folder = learned.joinpath(*rates[row].split(" | "), str(seed))
            rotations = read_rotations(folder / "R.bin", model)
            record["learning"][f"{row} | {seed}"] = learning(folder)
        folded = fold_(copy.deepcopy(model), *exact(rotations))
        if row in LEARNED:
            record["folded"][f"{row} | {seed}"] = perplexity(folded, ids[TESTS[0]], UNROUNDED)
        rounded_(folded)
        for setting, grid in SETTINGS.items():
            for text in ids:
                key = f"{row} | {seed} | {setting} | {text}"
                record["runs"][key] = perplexity(folded, ids[text], Quantisation(Grid(16), grid))
                yield f"{key}: {record['runs'][key]:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text", choices=["validation", "test"])
    parser.add_argument("--learned", type=Path, required=True, help="folder with OBJECTIVE/RATE/SEED/R.bin")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model, tokenizer = load("smollm2")
    empty: Record = {"original": {}, "validation": {}, "runs": {}, "folded": {}, "learning": {}}
    record = json.loads(arguments.output.read_text(encoding="utf-8")) if arguments.output.exists() else empty
    environment = Environment.now("python -m recipes.rotations.measure", "cpu", torch.float32).as_json()
    environment["command"] = "python -m recipes.rotations.measure {validation,test} --learned FOLDER"
    record["about"] = environment | {"sequences": SEQUENCES, "length": LENGTH}
    for name, ids in texts(tokenizer, ("validation",) if arguments.text == "validation" else TESTS).items():
        if name not in record["original"]:
            record["original"][name] = perplexity(model, ids, UNROUNDED)
    fuse_norms_(model)
    measure = validate if arguments.text == "validation" else test
    for line in measure(record, model, tokenizer, arguments.learned):
        write_whole(arguments.output, [json.dumps(record, indent=1).encode()])
        print(line, flush=True)


if __name__ == "__main__":
    main()
