"""Imports a module of the folder of a Benchopt benchmark, which only Benchopt has on its path."""

import importlib
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "experiments" / "benchopt"


def load(benchmark: str, *modules: str):
    """Modules of a benchmark's package benchmark_utils, loaded anew: every benchmark has one of that name."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmark_utils"]:
        del sys.modules[name]
    sys.path.insert(0, str(BENCHMARKS / benchmark))
    try:
        found = [importlib.import_module(f"benchmark_utils.{name}") for name in modules]
    finally:
        sys.path.pop(0)
    return found[0] if len(found) == 1 else found
