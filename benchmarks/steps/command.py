"""`python -m benchmarks.steps`: the options, and where the results go."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from glideslope.cli.bench import DTYPES, check

PROGRAM = "python -m benchmarks.steps"
WIDTH = 130  # of the tables where there is no terminal


def main() -> None:
    """Run the command with the arguments of the process."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command()(steps)
    app(prog_name=PROGRAM)


def steps(
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    dtype: Annotated[
        str, typer.Option(help=f"{', '.join(DTYPES)}; the complex workload is complex of it.")
    ] = "float32",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of torch; by default as torch decides.", show_default=False)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Largest number of rounds of a workload.", show_default=False)
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Some workloads and few rounds: under a minute.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="PATTERN", help="Only the workloads this matches, e.g. '5000 x *'; repeatable."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the results there.", show_default=False)
    ] = None,
    chart: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Draw a bar chart there.", show_default=False)
    ] = None,
) -> None:
    """Time one step of every method: ours, torch's, and the peers that are installed.

    Every method has the same X and G. Its first step is compared with its definition: one that is wrong is shown as
    such, not timed. Then all take turns, one sample a round; the tables have the medians, in milliseconds, in units of
    the bare matrix products that the landing field consists of, and in units of LandingSGD.

    The whole takes half an hour and more on two cores. Ctrl-C ends it and shows what was measured so far.
    """
    try:
        check(device, dtype)
        refuse_unwritable((json_file, chart))
        interrupted = run(device, dtype, threads, rounds, quick, only or [], json_file, chart)
    except ValueError as error:
        typer.echo(f"benchmarks.steps: {error}", err=True)
        raise typer.Exit(2) from None
    if interrupted:
        raise typer.Exit(130)


def refuse_unwritable(files: tuple[Path | None, ...]) -> None:
    """Raise a ValueError for files that could not be written after half an hour of measuring."""
    for path in files:
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise ValueError(f"cannot write {path}: give a file in a folder that exists")


def run(
    device: str,
    dtype: str,
    threads: int | None,
    rounds: int | None,
    quick: bool,
    only: list[str],
    json_file: Path | None,
    chart: Path | None,
) -> bool:
    """Measure, print and write; True if it was interrupted."""
    import torch
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from benchmarks.environment import Environment
    from benchmarks.steps import workloads
    from benchmarks.steps.measure import Report, measure
    from benchmarks.steps.table import as_json, show
    from benchmarks.steps.timing import Budget

    chosen = workloads.select(workloads.WORKLOADS, only, quick=quick)
    kind: torch.dtype = getattr(torch, dtype)
    if kind not in workloads.COMPLEX_OF:
        chosen = [workload for workload in chosen if not workload.is_complex]
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads or threads_before)
    try:
        report = Report(Environment.now(PROGRAM, device, kind))
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            total = bar.add_task("workloads", total=len(chosen))
            task = bar.add_task("")

            def progress(text: str, done: int, of: int) -> None:
                bar.update(total, completed=len(report.results) - 1)
                bar.update(task, description=text, completed=done, total=of)

            measure(report, chosen, dtype=kind, budget=Budget.of(rounds=rounds, quick=quick), progress=progress)
    finally:
        torch.set_num_threads(threads_before)
    show(report, Console(width=None if sys.stdout.isatty() else WIDTH))
    if json_file is not None:
        json_file.write_text(json.dumps(as_json(report), indent=1) + "\n", encoding="utf-8")
    if chart is not None:
        from benchmarks.steps.chart import draw

        draw(report, chart)
    return report.interrupted
