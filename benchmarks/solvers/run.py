"""`gs.minimize` against pymanopt's ConjugateGradient and TrustRegions: `python -m benchmarks.solvers.run`.

Thirteen problems, five starts each, until the gradient norm has fallen by a factor of 1e6 (float32: 1e4). Solvers take
turns, on one thread; of a run that takes less than a second, the median time of three counts. A run that is in the file
is not repeated. Writes benchmarks/results/solvers.json, and a table to
docs/minimize-against-other-solvers.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
import warnings
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits

import glideslope as gs
from benchmarks.environment import Environment
from benchmarks.solvers.peers import SOLVERS, solve
from benchmarks.solvers.problems import CASES
from benchmarks.solvers.table import table, with_table
from glideslope.files import write_whole
from glideslope.solve.problem import as_problem

RESULTS = Path(__file__).parents[1] / "results" / "solvers.json"
PAGE = Path(__file__).parents[2] / "docs" / "minimize-against-other-solvers.md"
STARTS = 5
# Seconds below which a run is repeated.
SHORT = 1.0


def read(path: Path) -> dict[str, Any]:
    """The recorded runs by name."""
    return dict(json.loads(path.read_text(encoding="utf-8"))["runs"]) if path.exists() else {}


def write(path: Path, about: dict[str, Any], runs: dict[str, Any]) -> None:
    """One run per line."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(run)}" for name, run in runs.items())
    write_whole(path, [f'{{\n "about": {json.dumps(about)},\n "runs": {{\n{lines}\n }}\n}}\n'.encode()])


def main() -> None:
    """Run what is not recorded."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", help="names of problems")
    parser.add_argument("--starts", type=int, default=STARTS)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no run later; run again to go on")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="print the table of what is recorded, and run nothing")
    arguments = parser.parse_args()
    runs = read(arguments.output)
    torch.set_num_threads(1)
    if not arguments.table:
        about = Environment.now("", "cpu", torch.float64).as_json() | {
            "command": "python -m benchmarks.solvers.run",
            "dtype": "as the problem says",
            "peers": {"pymanopt": metadata.version("pymanopt")},
        }
        chosen = [case for case in CASES if not arguments.only or case.name in arguments.only]
        functions = {case.name: case.make() for case in chosen}
        started, warm = time.perf_counter(), set()
        # Starts outermost, so that whatever is done early covers everything.
        for seed, case, solver in itertools.product(range(arguments.starts), chosen, SOLVERS):
            name = f"{case.name} | {solver} | {seed}"
            if name in runs or time.perf_counter() - started > 60 * arguments.minutes:
                continue
            with warnings.catch_warnings(), threadpool_limits(1):
                warnings.simplefilter("ignore")
                if case.name not in warm:
                    gs.minimize(as_problem(functions[case.name]), case.start(seed), max_epochs=5)
                    warm.add(case.name)
                found = solve(case, functions[case.name], solver, seed)
                if found["seconds"] < SHORT:
                    again = [solve(case, functions[case.name], solver, seed)["seconds"] for _ in range(2)]
                    found["seconds"] = statistics.median([found["seconds"], *again])
                runs[name] = found
            write(arguments.output, about, runs)
            print(f"{name}: {found['seconds']:.3f} s, value {found['value']:.8g}, {found['gradient']:.1e}", flush=True)
    print(table(runs))
    if arguments.output == RESULTS:
        write_whole(PAGE, [with_table(PAGE.read_text(encoding="utf-8"), table(runs)).encode()])


if __name__ == "__main__":
    main()
