"""The tables and figures of docs/experiments.md, from the records: `python -m experiments.page` writes them anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from experiments import epoch_seconds, records
from experiments.appearance import METHODS, in_order
from experiments.claims import verdicts
from experiments.figures import draw_beside_the_paper, draw_panels, drawing, save
from experiments.published import ends_for
from experiments.report import panels_of
from experiments.settings import CNN_METHODS

CLONE = Path(__file__).parents[1]
RESULTS = CLONE / "experiments" / "results"
PAGE = CLONE / "docs" / "experiments.md"
FIGURES = CLONE / "docs" / "images"
NETWORKS = {"vgg16": "cnn-cifar10-vgg16-width16-bfloat16", "resnet18": "cnn-cifar10-resnet18-width16-bfloat16"}
"""The studies on all of CIFAR-10, by network."""
IN_FLOAT32 = "cnn-cifar10-vgg16-width16"
CONTROLS = RESULTS / "controls"
"""Runs at step sizes that the search did not choose: they explain a result, and no verdict counts them."""


def claims_table(studies: dict[str, Any]) -> Iterator[str]:
    """Every claim with its verdict."""
    yield "| claim of the paper | where | here | by |"
    yield "|---|---|---|---|"
    for row in verdicts(studies):
        yield f"| {row.claim} | {row.where} | **{row.outcome}** | {row.evidence} |"


def network_table(study: Any, seconds: Any, methods: Iterable[str] = ()) -> Iterator[str]:
    """Where the methods of a study ended, lowest to highest of their seeds; empty rows for these others."""
    yield "| method | seeds | epochs | step size | test accuracy | kernels projected | largest distance | an epoch |"
    yield "|---|---|---|---|---|---|---|---|"
    ends = records.last(study)
    for name in in_order({*ends["method"], *methods}):
        own = ends[ends["method"] == name]
        cells = [METHODS[name].label, *(end_cells(own) if len(own) else ("0", *["–"] * 5))]
        cells.append(f"{seconds.loc[name, 'epoch_seconds']:.1f} s" if name in seconds.index else "–")
        yield "| " + " | ".join(cells) + " |"


def end_cells(own: Any) -> tuple[str, ...]:
    """Of the last records of one method, one per seed."""
    steps = sorted(set(own["step_size"]))
    return (
        str(len(own)),
        f"{own['epoch'].median():.2g}",
        ", ".join(f"{step:g}" for step in steps),
        percentages(own["accuracy"]),
        percentages(own["accuracy_projected"]),
        f"{own['distance'].max():.0e}",
    )


def percentages(values: Any) -> str:
    """One percentage, or from the lowest to the highest."""
    ends = dict.fromkeys(f"{100 * value:.2f}" for value in (values.min(), values.max()))
    return " to ".join(ends) + " %"


def seconds_of(name: str) -> Any:
    """Seconds of an epoch by method, as measured apart from the runs; empty where they were not."""
    path = epoch_seconds.place(RESULTS, name)
    return pd.read_parquet(path).set_index("method") if path.exists() else pd.DataFrame()


def tables() -> dict[str, list[str]]:
    """The lines of every table of the page, by the name in its markers."""
    studies = records.read(RESULTS / "records")
    made = {"claims": list(claims_table(studies))}
    for network, name in NETWORKS.items():
        made[network] = list(network_table(studies[name], seconds_of(name), CNN_METHODS))
    made["float32"] = list(network_table(studies[IN_FLOAT32], seconds_of(IN_FLOAT32)))
    name = NETWORKS["resnet18"]
    made["control"] = list(network_table(records.read(CONTROLS)[name], seconds_of(name)))
    return made


def with_controls(study: Any, control: Any) -> Any:
    """A study with runs at a longer step size than the choice, as methods of their own."""
    return pd.concat([study, control.assign(method=control["method"] + "-longer")], ignore_index=True)


def with_tables(page: str, made: dict[str, list[str]]) -> str:
    """The page with its tables replaced; a ValueError for a table without markers."""
    for name, lines in made.items():
        begin, end = f"<!-- table {name} -->\n", "<!-- end of table -->"
        if page.count(begin) != 1:
            raise ValueError(f"{PAGE.name} has {page.count(begin)} places marked '{begin.strip()}'; expected one")
        before, _, after = page.partition(begin)
        page = before + begin + "\n".join(lines) + "\n" + end + after.partition(end)[2]
    return page


def draw() -> None:
    """The figures of the networks, beside those that the paper's authors published, into docs/images."""
    studies, controls = records.read(RESULTS / "records"), records.read(CONTROLS)
    with drawing():
        for network, name in NETWORKS.items():
            study = with_controls(studies[name], controls[name]) if name in controls else studies[name]
            save(draw_panels(study, panels_of(study)), FIGURES, f"cnn-{network}")
            save(draw_beside_the_paper(study, ends_for(study)), FIGURES, f"cnn-{network}-beside-the-paper")


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), tables()), encoding="utf-8")
    draw()
