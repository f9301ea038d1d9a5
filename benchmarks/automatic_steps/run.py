"""Automatic step sizes of estimates against searched ones: `python -m benchmarks.automatic_steps.run`.

For SAGA, SVRG and minibatches on the paper's PCA and ICA: a search over a grid with seed 0, then five seeds of the
step size that got lowest, and of step_size="auto", in turn. A run that is in the file is not repeated. Prints a table
and writes benchmarks/results/automatic_steps.json.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

import glideslope as gs
from benchmarks.automatic_steps.problems import WORKS, Work
from benchmarks.environment import Environment
from glideslope.files import write_whole

RESULTS = Path(__file__).parents[1] / "results" / "automatic_steps.json"
GRADIENTS = ("saga", "svrg", "minibatch")
# A gap below this share of the first one counts as reached: less is hidden by rounding in float32.
LEAST = 1e-8
Runs = Mapping[str, Any]


def options_of(work: Work, gradient: str) -> dict[str, dict[str, Any]]:
    """The searched step sizes by name; for minibatches η_0/√(1+k) that gets to each of them after ten passes."""
    if gradient != "minibatch":
        return {f"{step:g}": {"step_size": step} for step in work.grid}
    found = {}
    for step in work.grid:
        first = float(f"{step * math.sqrt(10 * work.steps_per_pass):.2g}")
        found[f"{first:g}/√(1+k)"] = {"step_size": first, "schedule": "1/sqrt"}
    return found


def measure(
    work: Work, gradient: str, options: Mapping[str, Any], seed: int, passes: float, level: float = LEAST
) -> dict[str, Any]:
    """f - f* relative to the start, passes and seconds of each record of one run, up to one at or below a level."""
    problem, X0, gap = work.start(seed)
    gaps: list[float] = []

    def note(record: object) -> bool:
        gaps.append(gap(problem.iterate))
        return not gaps[-1] > level * gaps[0]

    source = {"gradient": gradient, "batch_size": work.batch_size, "seed": seed}
    solution = gs.minimize(problem, X0, **source, **options, max_epochs=passes, tolerance=0, callback=note)
    return {
        "gap": [gap / gaps[0] for gap in gaps],
        "passes": solution.history.passes.tolist(),
        "seconds": solution.history.seconds.tolist(),
        "step_size": solution.history.step_size.tolist(),
        "shortened": solution.n_shortened,
        "stop_reason": solution.stop_reason,
        "threads": torch.get_num_threads(),
    }


def reached(run: Mapping[str, Any], level: float) -> int | None:
    """The first record at or below a level."""
    return next((i for i, gap in enumerate(run["gap"]) if gap is not None and gap <= level), None)


def level_of(run: Mapping[str, Any]) -> float:
    """What a searched run reaches at its end."""
    return max(run["gap"][-1], LEAST)


def best_of(work: Work, gradient: str, runs: Runs) -> str | None:
    """The step size that got lowest with seed 0, or first as low as counts; None before the search is complete."""
    found = {name: runs.get(f"{work.name} | {gradient} | {name} | 0") for name in options_of(work, gradient)}
    if not all(found.values()):
        return None

    def score(name: str) -> tuple[float, float]:
        run = found[name]
        assert run is not None
        end = run["gap"][-1]
        return (math.inf, 0.0) if end is None else (max(end, LEAST), run["passes"][-1])

    return min(found, key=score)


def planned(works: Sequence[Work], gradients: Sequence[str], seeds: int, runs: Runs) -> Iterator[tuple[str, Any]]:
    """The runs that are not in the file: the search first, then searched and automatic in turn."""
    for work in works:
        for gradient in gradients:
            for name, options in options_of(work, gradient).items():
                yield f"{work.name} | {gradient} | {name} | 0", (work, gradient, options, 0, work.passes)
            best = best_of(work, gradient, runs)
            if best is None:  # the time is up
                return
            options = options_of(work, gradient)[best]
            for seed in range(seeds):
                searched = f"{work.name} | {gradient} | {best} | {seed}"
                yield searched, (work, gradient, options, seed, work.passes)
                if searched not in runs:
                    return
                name, level = f"{work.name} | {gradient} | auto | {seed}", level_of(runs[searched])
                yield name, (work, gradient, {"step_size": "auto"}, seed, 2 * work.passes, level)


def summary(works: Sequence[Work], seeds: int, runs: Runs) -> str:
    """One row for each problem and gradient: medians over seeds, and the largest ratio, as Markdown."""
    header = [
        *("problem", "gradient", "searched step", "(f - f*) / first", "passes: searched", "automatic"),
        *("seconds: automatic / searched", "most"),
    ]
    lines = [header, ["---"] * len(header)]
    for work in works:
        for gradient in GRADIENTS:
            best = best_of(work, gradient, runs)
            names = [(f"{work.name} | {gradient} | {which} | {s}") for s in range(seeds) for which in (best, "auto")]
            if best is None or not all(name in runs for name in names):
                continue
            lines.append([work.name, gradient, best, *cells([runs[name] for name in names])])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cells(both: Sequence[Mapping[str, Any]]) -> list[str]:
    """Level, passes of either, and the ratios of seconds, from searched and automatic runs in turn."""
    searched, automatic = both[::2], both[1::2]
    levels = [level_of(run) for run in searched]
    triples = zip(searched, automatic, levels, strict=True)
    ends = [(reached(one, level), reached(two, level)) for one, two, level in triples]
    spent: dict[str, list[tuple[float, float]]] = {"passes": [], "seconds": []}
    for key, pairs in spent.items():
        for one, two, (first, second) in zip(searched, automatic, ends, strict=True):
            assert first is not None
            pairs.append((one[key][first], math.inf if second is None else two[key][second]))
    ratios = [two / one for one, two in spent["seconds"]]
    passes = [f"{statistics.median(pair[i] for pair in spent['passes']):.0f}" for i in (0, 1)]
    return [f"{statistics.median(levels):.0e}", *passes, f"{statistics.median(ratios):.2f}", f"{max(ratios):.2f}"]


def rounded(value: Any) -> Any:
    """Four digits; None for what is not finite."""
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return (float(f"{value:.4g}") if math.isfinite(value) else None) if isinstance(value, float) else value


def read(path: Path) -> dict[str, Any]:
    """The recorded runs by name."""
    return dict(json.loads(path.read_text(encoding="utf-8"))["runs"]) if path.exists() else {}


def write(path: Path, about: Mapping[str, Any], runs: Runs) -> None:
    """Replace the file."""
    lines = ",\n".join(f"  {json.dumps(name, ensure_ascii=False)}: {json.dumps(run)}" for name, run in runs.items())
    text = f'{{\n "about": {json.dumps(about)},\n "runs": {{\n{lines}\n }}\n}}\n'
    write_whole(path, [text.encode()])


def main() -> None:
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="*", help="names of problems")
    parser.add_argument("--gradients", nargs="*", default=GRADIENTS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no run after that; call again to go on")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    chosen = [work for work in WORKS if not arguments.only or work.name in arguments.only]
    runs = read(arguments.output)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    about = Environment.now("", "cpu", torch.float32).as_json() | {
        "command": "python -m benchmarks.automatic_steps.run",
        "commit": commit.stdout.strip(),
        "dtype": "float32 for PCA, float64 for ICA",
    }
    started = time.perf_counter()
    for name, what in planned(chosen, arguments.gradients, arguments.seeds, runs):
        if name not in runs and time.perf_counter() - started < 60 * arguments.minutes:
            runs[name] = {key: rounded(value) for key, value in measure(*what).items()}
            write(arguments.output, about, runs)
            end = runs[name]
            print(f"{name}: {end['gap'][-1]:.1e} after {end['passes'][-1]:.0f}, {end['seconds'][-1]:.1f} s", flush=True)
    print(summary(WORKS, arguments.seeds, runs))


if __name__ == "__main__":
    main()
