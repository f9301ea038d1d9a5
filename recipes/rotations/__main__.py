"""Learn rotations of a language model and export it: `python -m recipes.rotations MODEL --output FOLDER`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch

from benchmarks.environment import Environment
from glideslope.files import write_whole
from recipes.rotations.export import export, load, read_rotations
from recipes.rotations.fold import fuse_norms_, off_orthogonal, sizes
from recipes.rotations.learn import landing, learn
from recipes.rotations.quantise import Quantisation, check_groups
from recipes.rotations.rotations import STARTS, Objective, Rotations, cross_entropy, rounding_error
from recipes.rotations.texts import batches_of, help_topics, sequences

PROGRAM = "python -m recipes.rotations"
# Options that may change when a run is continued; all others decide where it ends.
FREE = ("output", "threads", "device")
SETTINGS = "settings.json"


def arguments_of(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=__doc__.splitlines()[0], epilog="Ctrl-C stops; the same command goes on from there."
    )
    parser.add_argument("model", help='folder or name for transformers, a .gguf file, or "smollm2"')
    parser.add_argument("--output", type=Path, required=True, help="folder for model/, R.bin and learning.json")
    parser.add_argument("--quantisation", default="W4A4", help="bits of weights and inputs that are learned for")
    parser.add_argument("--group", type=int, help="entries that share a step; default: a row, a token")
    parser.add_argument("--objective", choices=["cross-entropy", "data-free", "weights"], default="cross-entropy")
    parser.add_argument("--texts", type=Path, nargs="+", help="files to learn from; default: Python's help topics")
    parser.add_argument("--start", default="hadamard", help=f"{', '.join(STARTS)}, or an R.bin file")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--scale-lr", type=float, default=0.0, help="also learn where grids end, at this rate")
    parser.add_argument("--length", type=int, default=256, help="tokens in a sequence")
    parser.add_argument("--batch", type=int, default=2, help="sequences in a step")
    parser.add_argument("--layers-per-step", type=int, help="without data: layers drawn in a step; default: all")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of the model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args(given)
    for name in ("group", "steps", "lr", "length", "batch", "layers_per_step", "threads"):
        if (value := getattr(arguments, name)) is not None and not value > 0:
            parser.error(f"--{name.replace('_', '-')} must be above 0; got {value}")
    if not arguments.scale_lr >= 0:
        parser.error(f"--scale-lr must be at least 0; got {arguments.scale_lr}")
    try:
        torch.empty(0, device=arguments.device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        parser.error(f"--device {arguments.device} cannot be used: {str(error).splitlines()[0]}")
    return arguments


def main(given: list[str] | None = None) -> None:
    """Learn, or go on where a killed run stopped, then export."""
    arguments = arguments_of(given)
    torch.set_num_threads(arguments.threads)
    try:
        settings = settings_of(arguments)
        model, tokenizer = load(arguments.model, getattr(torch, arguments.dtype))
        fuse_norms_(model.to(arguments.device))
        rotations = started(arguments, model)
        objective = objective_of(arguments, model, tokenizer)
    except (ValueError, OSError, ImportError) as error:
        refuse(error)
    optimizer, folder = landing(rotations, arguments.lr, arguments.scale_lr), arguments.output
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / SETTINGS, [json.dumps(settings, indent=1).encode()])
    hidden, layers, head = sizes(model)
    print(f"{arguments.model}: R1 {hidden} x {hidden}, {layers} R2 of {head} x {head}", flush=True)
    with Stop() as stop:
        values = learn(
            rotations,
            objective,
            optimizer,
            arguments.steps,
            checkpoints=folder / "checkpoints",
            report=reporter(arguments.steps),
            stop=lambda: stop.asked,
        )
    if len(values) < arguments.steps:
        print(f"stopped after step {len(values)}; the same command goes on from there", flush=True)
        sys.exit(130)
    record = {
        "about": Environment.now(PROGRAM, arguments.device, torch.float32).as_json(),
        "largest_entry_without_projection": max(off_orthogonal(rotations.R1), off_orthogonal(rotations.R2)),
        "scales": rotations.scales.tolist() if arguments.scale_lr else None,
        "values": values,
    }
    write_whole(folder / "learning.json", [json.dumps(record, indent=1).encode()])
    export(model, rotations, folder, tokenizer)
    print(f"wrote {folder / 'model'}, {folder / 'R.bin'} and {folder / 'learning.json'}", flush=True)


def refuse(error: Exception) -> NoReturn:
    """End with the message alone: what was given cannot be used, so the traceback says nothing."""
    print(f"{PROGRAM}: error: {error}", file=sys.stderr)
    sys.exit(2)


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """The options that decide where a run ends; refused if the output folder holds a run with others."""
    settings = json.loads(json.dumps({k: v for k, v in vars(arguments).items() if k not in FREE}, default=str))
    file = arguments.output / SETTINGS
    found = json.loads(file.read_text(encoding="utf-8")) if file.exists() else settings
    for name, value in settings.items():
        if found.get(name) != value:
            raise ValueError(
                f"{arguments.output} holds a run with {name}={found.get(name)}, not {value}; "
                "repeat its options to go on, or give another --output"
            )
    return dict(settings)


def started(arguments: argparse.Namespace, model: Any) -> Rotations:
    """Rotations to start from: of a kind, or from a file."""
    if arguments.start in STARTS:
        return Rotations.start(model, arguments.start, arguments.seed)
    if not Path(arguments.start).is_file():
        raise ValueError(f"--start must be {', '.join(STARTS)} or an R.bin file; got {arguments.start!r}")
    return read_rotations(arguments.start, model)


def objective_of(arguments: argparse.Namespace, model: Any, tokenizer: Any) -> Objective:
    """The objective that was asked for, on its texts."""
    grids = Quantisation.named(arguments.quantisation, arguments.group)
    check_groups(model, grids)
    if arguments.objective != "cross-entropy":
        stream = arguments.objective == "data-free"
        return rounding_error(model, grids, arguments.layers_per_step, arguments.seed, stream=stream)
    text = "\n\n".join(path.read_text(encoding="utf-8") for path in arguments.texts or []) or help_topics().training
    ids = sequences(tokenizer, text, arguments.length).to(arguments.device)
    return cross_entropy(model, grids, batches_of(ids, arguments.batch, arguments.seed))


def reporter(steps: int) -> Callable[[int, float], None]:
    """Prints every step with its value, the time it took, and what is left."""
    began = time.perf_counter()
    first: list[int] = []

    def report(step: int, value: float) -> None:
        first.append(step)
        each = (time.perf_counter() - began) / len(first)
        left = each * (steps - step - 1)
        print(f"step {step + 1}/{steps}: {value:.5g}, {each:.1f} s a step, {left / 60:.0f} min left", flush=True)

    return report


class Stop:
    """While it is entered, the first Ctrl-C (or SIGTERM) asks to stop after the step; the second stops at once."""

    asked = False

    def __enter__(self) -> Stop:
        self.former = {number: signal.signal(number, self.ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def ask(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal."""
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("stopping after this step; once more to stop at once", file=sys.stderr, flush=True)

    def __exit__(self, *_: object) -> None:
        for number, handler in self.former.items():
            signal.signal(number, handler)


if __name__ == "__main__":
    main()
