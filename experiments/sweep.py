"""Runs a study through Benchopt: the search for step sizes, then all seeds, from the cache where it can."""

from __future__ import annotations

import contextlib
import io
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.records import RUN, SEARCH, tidy
from experiments.study import Study

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
OUTCOME = re.compile(r"\|--([\w.-]+)(\[.*\])?:? (done|error|diverged|interrupted|not installed|skip|not run yet)\b(.*)")
PROGRESS = re.compile(r"\|--([\w.-]+)(\[.*\])?:\s+([\d.]+)%")


@dataclass
class Listener(io.TextIOBase):
    """Stands in for standard output while Benchopt runs: keeps its log, and understands its lines."""

    log: Path
    on_progress: Callable[[str, float], None]
    on_outcome: Callable[[str, str], None]
    failures: dict[str, str] = field(default_factory=dict)
    _pending: str = ""

    def write(self, text: str) -> int:
        """Take text, line by line; a carriage return ends a line too."""
        *lines, self._pending = re.split(r"[\r\n]", self._pending + COLOURS.sub("", text))
        for line in lines:
            self._understand(line.rstrip())
        return len(text)

    def _understand(self, line: str) -> None:
        outcome, progress = OUTCOME.search(line), PROGRESS.search(line)
        if progress:
            self.on_progress(progress[1], float(progress[3]) / 100)
            return
        if outcome:
            method, status = outcome[1], outcome[3]
            if status in ("error", "not installed", "skip"):
                self.failures[method] = status
            self.on_outcome(method, status + outcome[4])
        elif "Reason:" in line and self.failures:
            method = next(reversed(self.failures))
            self.failures[method] = line.partition("Reason:")[2].strip()
        if line and "initialization" not in line:
            with self.log.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


@dataclass(frozen=True)
class Engine:
    """How Benchopt is run: where benchmarks and cache are, and on how many processes."""

    benchmarks: Path
    cache: Path
    log: Path
    jobs: int = 1
    parallel_config: Path | None = None

    def refuse_unknown_methods(self, study: Study) -> None:
        """Raise a ValueError if the benchmark does not have a method of the study."""
        from benchopt.benchmark import Benchmark

        with cache_in(self.cache), listening(Listener(self.log, lambda *_: None, lambda *_: None)):
            known = Benchmark(self.benchmarks / study.benchmark).get_solver_names()
        strangers = sorted(set(study.methods) - set(known))
        if strangers:
            raise ValueError(f"{study.experiment} has no method {', '.join(strangers)}; it has {', '.join(known)}")

    def run(
        self,
        study: Study,
        solvers: dict[str, list[float] | None],
        phase: str,
        on_progress: Callable[[str, float], None],
        on_outcome: Callable[[str, str], None],
    ) -> tuple[Any, dict[str, str]]:
        """Records of methods with these step sizes, and what went wrong with which method."""
        from benchopt.runner import run_benchmark

        if not solvers:  # to Benchopt that means all of them
            return pd.DataFrame(), {}
        folder = self.benchmarks / study.benchmark
        listener = Listener(self.log, on_progress, on_outcome)
        solver_patterns = [
            {name: {} if steps is None else {"step_size": list(steps)}} for name, steps in solvers.items()
        ]
        with tempfile.TemporaryDirectory() as scratch, cache_in(self.cache), listening(listener):
            try:
                path = run_benchmark(
                    str(folder),
                    solver_names=solver_patterns,
                    dataset_names=[study.dataset_pattern()],
                    objective_filters=[study.objective_pattern(search=phase == SEARCH)],
                    max_runs=study.n_records,
                    n_repetitions=1,
                    n_jobs=self.jobs if self.parallel_config is None else None,
                    parallel_config=None if self.parallel_config is None else str(self.parallel_config),
                    plot_result=False,
                    output_file=str(Path(scratch) / "results.parquet"),
                )
            except RuntimeError as error:  # Benchopt's word for: no results
                if "Benchmark failed" not in str(error):
                    raise
                return pd.DataFrame(), listener.failures
            return tidy(pd.read_parquet(path), study, phase), listener.failures


@contextlib.contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Benchopt's setting for the folder of its cache."""
    before = os.environ.get("BENCHOPT_CACHE")
    os.environ["BENCHOPT_CACHE"] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ["BENCHOPT_CACHE"]
        else:
            os.environ["BENCHOPT_CACHE"] = before


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Benchopt's output and the tracebacks it prints go to the listener; its warnings are not ours."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(listener), contextlib.redirect_stderr(listener):
        warnings.simplefilter("ignore")
        yield


def best_steps(search: Any, study: Study) -> dict[str, float]:
    """For every method the step size with the lowest criterion at the end of its search; a run that diverged has lost.

    Where all have, the smallest of the grid.
    """
    chosen = {}
    for method, own in search.groupby("method"):
        ends = own.sort_values("epoch", kind="stable").groupby("step_size").tail(1).set_index("step_size")
        score = ends["criterion"].where(ends["status"] != "diverged").dropna()
        chosen[str(method)] = float(score.idxmin()) if len(score) else float(min(study.grid))
    return chosen


def sweep(
    study: Study,
    engine: Engine,
    on_progress: Callable[[str, float], None],
    on_outcome: Callable[[str, str], None],
) -> tuple[Any, dict[str, str]]:
    """Records of a study, search and runs, and what went wrong with which method."""
    searched = {name: list(study.grid) for name in study.methods if name not in study.without_step_size}
    free: dict[str, list[float] | None] = {name: None for name in study.methods if name in study.without_step_size}
    search, failures = engine.run(study, {**searched}, SEARCH, on_progress, on_outcome)
    chosen = best_steps(search, study) if len(search) else {}
    final: dict[str, list[float] | None] = {name: [step] for name, step in chosen.items()}
    records, more = engine.run(study, {**final, **free}, RUN, on_progress, on_outcome)
    return pd.concat([search, records], ignore_index=True), {**failures, **more}


def n_units(study: Study) -> int:
    """How many runs of a solver a study consists of."""
    searched = len(study.methods) - len(study.without_step_size)
    return searched * len(study.grid) + len(study.methods) * len(study.seeds)
