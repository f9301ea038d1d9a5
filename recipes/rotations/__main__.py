"""Learn rotations of a language model and export it: `python -m recipes.rotations MODEL --output FOLDER`."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import torch

from benchmarks.environment import Environment
from recipes.rotations.export import export, load, read_rotations
from recipes.rotations.fold import fuse_norms_, off_orthogonal
from recipes.rotations.learn import landing, learn
from recipes.rotations.quantise import Quantisation
from recipes.rotations.rotations import Rotations, cross_entropy, rounding_error
from recipes.rotations.texts import batches_of, help_topics, sequences


def arguments_of(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m recipes.rotations", description=__doc__.splitlines()[0])
    parser.add_argument("model", help='folder or name for transformers, a .gguf file, or "smollm2"')
    parser.add_argument("--output", type=Path, required=True, help="folder for model/, R.bin and learning.json")
    parser.add_argument("--quantisation", default="W4A4", help="bits of weights and inputs that are learned for")
    parser.add_argument("--group", type=int, help="entries that share a step; default: a row, a token")
    parser.add_argument("--objective", choices=["cross-entropy", "data-free"], default="cross-entropy")
    parser.add_argument("--texts", type=Path, nargs="+", help="files to learn from; default: Python's help topics")
    parser.add_argument("--start", default="hadamard", help="identity, random, hadamard, or an R.bin file")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--scale-lr", type=float, default=0.0, help="also learn where grids end, at this rate")
    parser.add_argument("--length", type=int, default=256, help="tokens in a sequence")
    parser.add_argument("--batch", type=int, default=2, help="sequences in a step")
    parser.add_argument("--layers-per-step", type=int, help="data-free: layers drawn in a step; default: all")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of the model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(given)


def main(given: list[str] | None = None) -> None:
    """Learn, or go on where a killed run stopped, then export."""
    arguments = arguments_of(given)
    torch.set_num_threads(arguments.threads)
    model, tokenizer = load(arguments.model, getattr(torch, arguments.dtype))
    fuse_norms_(model.to(arguments.device))
    if Path(arguments.start).is_file():
        rotations = read_rotations(arguments.start, model)
    else:
        rotations = Rotations.start(model, arguments.start, arguments.seed)
    grids = Quantisation.named(arguments.quantisation, arguments.group)
    if arguments.objective == "data-free":
        objective = rounding_error(model, grids, arguments.layers_per_step, arguments.seed)
    else:
        text = "\n\n".join(path.read_text(encoding="utf-8") for path in arguments.texts or []) or help_topics()[0]
        ids = sequences(tokenizer, text, arguments.length).to(arguments.device)
        objective = cross_entropy(model, grids, batches_of(ids, arguments.batch, arguments.seed))
    optimizer = landing(rotations, arguments.lr, arguments.scale_lr)
    values: dict[int, float] = {}
    started = time.perf_counter()

    def report(step: int, value: float) -> None:
        values[step] = value
        print(f"step {step + 1}/{arguments.steps}: {value:.4f}, {time.perf_counter() - started:.0f} s", flush=True)

    learn(rotations, objective, optimizer, arguments.steps, checkpoints=arguments.output / "checkpoints", report=report)
    record = {
        "about": Environment.now("python -m recipes.rotations", arguments.device, torch.float32).as_json(),
        "largest_entry_without_projection": max(off_orthogonal(rotations.R1), off_orthogonal(rotations.R2)),
        "scales": rotations.scales.tolist() if arguments.scale_lr else None,
        "values": values,
    }
    (arguments.output / "learning.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    export(model, rotations, arguments.output, tokenizer)


if __name__ == "__main__":
    main()
