"""`glideslope bench steps`: the options, and where the results go."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

DTYPES = ("float32", "float64", "bfloat16")
WIDTH = 130  # of the tables where there is no terminal


def steps(
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    dtype: Annotated[
        str, typer.Option(help=f"{', '.join(DTYPES)}; the complex workload is complex of it.")
    ] = "float32",
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads of torch; as torch decides unless said.", show_default=False)
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="At most so many rounds of each workload.", show_default=False)
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
        check(device, dtype, (json_file, chart))
        interrupted = run(device, dtype, threads, rounds, quick, only or [], json_file, chart)
    except ValueError as error:
        typer.echo(f"glideslope bench steps: {error}", err=True)
        raise typer.Exit(2) from None
    if interrupted:
        raise typer.Exit(130)


def check(device: str, dtype: str, files: tuple[Path | None, ...]) -> None:
    """Raise a ValueError for options that would fail after half an hour."""
    import torch

    if dtype not in DTYPES:
        raise ValueError(f"--dtype must be one of {', '.join(DTYPES)}; got {dtype!r}")
    kind, _, number = device.partition(":")
    if kind not in ("cpu", "cuda") or (number and not number.isdecimal()):
        raise ValueError(f"--device must be cpu, cuda or cuda:NUMBER; got {device!r}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: torch finds no GPU here; leave the option out")
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

    from glideslope.cli.bench import workloads
    from glideslope.cli.bench.environment import Environment
    from glideslope.cli.bench.measure import Report, measure
    from glideslope.cli.bench.table import as_json, show
    from glideslope.cli.bench.timing import Budget

    chosen = workloads.select(workloads.WORKLOADS, only, quick=quick)
    kind: torch.dtype = getattr(torch, dtype)
    if kind not in workloads.COMPLEX_OF:
        chosen = [workload for workload in chosen if not workload.is_complex]
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads or threads_before)
    try:
        report = Report(Environment.now(device, kind))
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
        from glideslope.cli.bench.chart import draw

        draw(report, chart)
    return report.interrupted
