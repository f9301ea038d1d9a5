"""From options to records and report: runs the studies with progress, and writes what came out."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

import glideslope
from experiments import epoch_seconds, penalty_figure, records
from experiments.claims import verdicts
from experiments.lock import locked
from experiments.provenance import digest_of_code, provenance
from experiments.report import write_report
from experiments.scales import SCALES, Scale
from experiments.study import Study
from experiments.sweep import Engine, n_units, sweep
from glideslope.files import write_whole

PACKAGE = Path(glideslope.__file__).parent
CLONE = Path(__file__).parents[1]
BENCHMARKS = Path(__file__).parent / "benchopt"


@dataclass(frozen=True)
class Setup:
    """What the command line asks for."""

    experiments: tuple[str, ...]
    scale: str
    output: Path
    given: dict[str, Any] = field(default_factory=dict)
    threads: int | None = None
    jobs: int = 1
    parallel_config: Path | None = None
    seconds: bool = False
    """Whether to measure the seconds of an epoch of the networks, and nothing else."""
    go_on: bool = False
    """Whether finished runs in the records of the folder are kept, whatever code and machine made them."""


def run_experiments(setup: Setup, console: Console | None = None) -> dict[str, str]:
    """Run, or only measure seconds; record and report; what went wrong, by study and method."""
    if setup.scale not in SCALES:
        raise ValueError(f"--scale must be one of {', '.join(SCALES)}; got {setup.scale!r}")
    # The file itself, because standard error is Benchopt's while it runs.
    console = console or Console(file=sys.stderr)
    if not setup.experiments:
        return report(setup, console, {})
    scale = SCALES[setup.scale].with_options(setup.experiments, setup.given)
    with locked(setup.output):
        threads_before = torch.get_num_threads()
        torch.set_num_threads(setup.threads or threads_before)
        try:
            failures = (measure_seconds if setup.seconds else run_studies)(setup, scale, console)
        finally:
            torch.set_num_threads(threads_before)
        return {} if setup.seconds else report(setup, console, failures)


def report(setup: Setup, console: Console, failures: dict[str, str]) -> dict[str, str]:
    """Draw the report and print the verdicts; the failures that are errors."""
    notes = [f"Left out: {name}: {reason}." for name, reason in failures.items()]
    page = write_report(setup.output, notes)
    console.print(f"report: {page}", highlight=False, soft_wrap=True)
    for row in verdicts(records.read(setup.output / "records")):
        console.print(f"[bold]{row.outcome:<24}[/bold] {row.claim}", highlight=False, soft_wrap=True)
    for name, reason in failures.items():
        console.print(f"[red]{name}: {reason}[/red]; see {setup.output / 'log.txt'}", soft_wrap=True)
    return {name: reason for name, reason in failures.items() if reason == "error"}


def run_studies(setup: Setup, scale: Scale, console: Console) -> dict[str, str]:
    """Run every study of every experiment; records are written when it is complete, of a long one as it goes on."""
    setup.output.mkdir(parents=True, exist_ok=True)
    studies = [study for name in setup.experiments for study in getattr(scale, name).studies()]
    for study in studies:
        engine_for(study, setup).refuse_unknown_methods(study)
        if setup.go_on and (path := place(setup, study.name)).exists():
            records.refuse_other_settings(pd.read_parquet(path), study)
    failures: dict[str, str] = {}
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as bar:
        if "penalty" in setup.experiments:
            table = penalty_figure.measure(scale.penalty.weights)
            records.merge(stamped(table, setup), place(setup, "penalty"))
        total = bar.add_task("all", total=sum(map(n_units, studies)))
        for study in studies:
            engine = engine_for(study, setup)
            wrong = run_study(replace(study, long=study.long or setup.go_on), engine, setup, bar, total)
            failures |= {f"{study.name}, {method}": reason for method, reason in wrong.items()}
    return failures


def measure_seconds(setup: Setup, scale: Scale, console: Console) -> dict[str, str]:
    """Measure and write the seconds of an epoch of every network; nothing can go wrong with single methods."""
    for study in scale.cnn.studies():
        engine_for(study, setup).refuse_unknown_methods(study)
        table = epoch_seconds.measure(study, BENCHMARKS)
        path = epoch_seconds.place(setup.output, study.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, [stamped(table, setup).to_parquet(index=False, compression="zstd")])
        for row in table.itertuples():
            console.print(f"{study.name}, {row.method}: {row.epoch_seconds:.4g} s an epoch", highlight=False)
    return {}


def engine_for(study: Study, setup: Setup) -> Engine:
    """Benchopt with a cache that belongs to this code and this number of threads."""
    code = digest_of_code(
        BENCHMARKS / study.benchmark, *(PACKAGE / part for part in ("formulas", "optim", "solve", "stiefel"))
    )
    cache = setup.output / "cache" / f"{code}-{torch.get_num_threads()}"
    return Engine(BENCHMARKS, cache.resolve(), setup.output / "log.txt", setup.jobs, setup.parallel_config)


def run_study(study: Study, engine: Engine, setup: Setup, bar: Progress, total: Any) -> dict[str, str]:
    """Run one study with its own bar; what went wrong with which method."""
    task = bar.add_task(study.name, total=n_units(study))
    path = place(setup, study.name)
    known = records.finished(pd.read_parquet(path), study) if setup.go_on and path.exists() else pd.DataFrame()
    done = 0.0

    def on_progress(method: str, share: float) -> None:
        bar.update(task, description=f"{study.name}: {method}", completed=done + min(share, 0.99))

    def on_outcome(method: str, status: str) -> None:
        nonlocal done
        done += 1
        bar.update(task, completed=done)
        bar.advance(total)

    def keep(before: Any, new: Any) -> Any:
        everything = pd.concat([part for part in (before, stamped(new, setup)) if len(part)], ignore_index=True)
        if study.long or (everything["phase"] == records.RUN).any():
            records.merge(everything, path)
        return everything

    failures = sweep(study, engine, known, keep, on_progress, on_outcome)
    bar.update(task, description=study.name, completed=n_units(study))
    bar.advance(total, n_units(study) - done)
    return failures


def place(setup: Setup, name: str) -> Path:
    """The file of a study's records."""
    return setup.output / "records" / f"{name}.parquet"


def stamped(found: Any, setup: Setup) -> Any:
    """Records with their scale and provenance."""
    return found.assign(scale=setup.scale, **provenance(CLONE))
