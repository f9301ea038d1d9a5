"""Runs a study through Benchopt: the search for step sizes, then all seeds, from the cache where it can."""

from __future__ import annotations

import contextlib
import io
import math
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.records import RUN, SEARCH, last, tidy
from experiments.study import Study

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
OUTCOME = re.compile(r"\|--([\w.-]+)(\[.*\])?:? (done|error|diverged|interrupted|not installed|skip|not run yet)\b(.*)")
Solvers = dict[str, list[float] | None]
"""Step sizes of every method; None for one that has none."""
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

        with folders_in(self.cache), listening(Listener(self.log, lambda *_: None, lambda *_: None)):
            known = Benchmark(self.benchmarks / study.benchmark).get_solver_names()
        strangers = sorted(set(study.methods) - set(known))
        if strangers:
            raise ValueError(f"{study.experiment} has no method {', '.join(strangers)}; it has {', '.join(known)}")

    def run(
        self,
        study: Study,
        solvers: Solvers,
        phase: str,
        seeds: tuple[int, ...],
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
        with tempfile.TemporaryDirectory() as scratch, folders_in(self.cache), listening(listener):
            try:
                path = run_benchmark(
                    str(folder),
                    solver_names=solver_patterns,
                    dataset_names=[study.dataset_pattern()],
                    objective_filters=[study.objective_pattern(phase, seeds)],
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
def folders_in(cache: Path) -> Iterator[None]:
    """Benchopt's setting for the folder of its cache, and the networks' for that of their checkpoints inside it."""
    wanted = {"BENCHOPT_CACHE": str(cache), "GLIDESLOPE_RUN_CHECKPOINTS": str(cache / "checkpoints")}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Benchopt's output and the tracebacks it prints go to the listener; its warnings are not ours."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(listener), contextlib.redirect_stderr(listener):
        warnings.simplefilter("ignore")
        yield


def best_steps(search: Any) -> dict[str, float]:
    """For every method the step size with the lowest criterion at the end of its search; a run that diverged has lost.

    Of equal ones the smallest; where all have lost, too.
    """
    chosen = {}
    for method, own in search.groupby("method"):
        ends = own.sort_values("epoch", kind="stable").groupby("step_size").tail(1).set_index("step_size")
        score = ends["criterion"].where(ends["status"] != "diverged", math.inf).fillna(math.inf)
        chosen[str(method)] = float(score.sort_index().idxmin())
    return chosen


def sweep(
    study: Study,
    engine: Engine,
    known: Any,
    keep: Callable[[Any, Any], Any],
    on_progress: Callable[[str, float], None],
    on_outcome: Callable[[str, str], None],
) -> dict[str, str]:
    """Run a study, first the search, then the seeds; what went wrong with which method.

    Args:
        study: What to run.
        engine: How.
        known: Records of runs that are not made again; may be empty.
        keep: Gets the records so far and new ones; returns all of them.
        on_progress: Gets a method and the share of its run that is done.
        on_outcome: Gets a method and how its run ended.
    """
    failures: dict[str, str] = {}

    def run(found: Any, part: Study, solvers: Solvers, phase: str, seeds: tuple[int, ...]) -> Any:
        new, wrong = engine.run(part, solvers, phase, seeds, on_progress, on_outcome)
        failures.update(wrong)
        return keep(found, new) if len(new) else found

    found, first = known, study.seeds[0]
    for names in [[name] for name in study.searched] if study.long else [study.searched]:
        steps = {name: [step for step in study.grid if not has(found, SEARCH, name, step, first)] for name in names}
        found = run(found, study, {name: left for name, left in steps.items() if left}, SEARCH, (first,))
    chosen: dict[str, float | None] = dict.fromkeys(study.without_step_size)
    if len(found):
        chosen.update(best_steps(found[found["phase"] == SEARCH]))
        chosen.update({name: chosen[other] for name, other in study.step_size_of.items() if other in chosen})
        current = (found["phase"] == SEARCH) | at_chosen_steps(found, chosen)
        if not current.all():
            found = keep(found[current], found.iloc[:0])
    bounded = [name for name in study.methods if name in study.in_the_time_of_others and name in chosen]

    def step_of(name: str) -> list[float] | None:
        return None if (step := chosen[name]) is None else [step]

    def lacks(name: str, seed: int) -> bool:
        return not has(found, RUN, name, chosen[name], seed)

    def batches(names: list[str]) -> list[tuple[list[str], tuple[int, ...]]]:
        return at_once(names, study.seeds, lacks, engine.jobs) if study.long else [(names, study.seeds)]

    for names, seeds in batches([name for name in study.methods if name in chosen and name not in bounded]):
        found = run(found, study, {name: step_of(name) for name in names}, RUN, seeds)
    for names, seeds in batches(bounded):
        found = run(found, in_the_time_of_others(study, found), {name: step_of(name) for name in names}, RUN, seeds)
    return failures


def at_chosen_steps(found: Any, chosen: dict[str, float | None]) -> Any:
    """Which records are of the step size that was chosen: a wider grid may change the choice of earlier runs."""
    wanted = found["method"].map(chosen)
    return wanted.isna() | (found["step_size"] == wanted)


def has(records: Any, phase: str, method: str, step_size: float | None, seed: int) -> bool:
    """Whether there are records of a run; of a method without step size, with any."""
    wanted = {"phase": phase, "method": method, "step_size": step_size, "seed": seed}
    if step_size is None:
        del wanted["step_size"]
    return bool(len(records)) and bool((records[list(wanted)] == pd.Series(wanted)).all(axis=1).any())


def at_once(
    names: list[str], seeds: tuple[int, ...], lacks: Callable[[str, int], bool], jobs: int
) -> list[tuple[list[str], tuple[int, ...]]]:
    """What a long study hands to Benchopt at once: at most as many runs as there are jobs, those of low seeds first.

    Seeds of one method go together where they can, because they take equally long and no job waits for another. Their
    number divides that of the jobs, so that the seeds of several methods fill these.
    """
    alone = len(names) == 1
    side_by_side = max(count for count in range(1, min(jobs, len(seeds)) + 1) if alone or jobs % count == 0)
    waiting: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        missing = [seed for seed in seeds if lacks(name, seed)]
        for start in range(0, len(missing), side_by_side):
            waiting.setdefault(tuple(missing[start : start + side_by_side]), []).append(name)
    return [
        (own[start : start + jobs // len(some)], some)
        for some, own in sorted(waiting.items())
        for start in range(0, len(own), jobs // len(some))
    ]


def in_the_time_of_others(study: Study, found: Any) -> Study:
    """The study for its slow methods: the seconds of the longest other method as limit, if there is one.

    Of every method the median over its seeds: one run on a busy machine does not count.
    """
    ends = last(found) if len(found) else found
    if not len(ends):
        return study
    others = ends[~ends["method"].isin(study.in_the_time_of_others)].groupby("method")["seconds"].median()
    longest = max([*others, study.parameters["max_seconds"] or 0.0])
    return replace(study, parameters={**study.parameters, "max_seconds": float(longest) or None})


def n_units(study: Study) -> int:
    """How many runs of a solver a study consists of."""
    return len(study.searched) * len(study.grid) + len(study.methods) * len(study.seeds)
