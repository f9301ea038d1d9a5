"""The tables of a study in the report: where every method ended, and how its step size was chosen."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from experiments.appearance import METHODS, in_order
from experiments.records import SEARCH, last, runs, seconds_per_epoch

# Experiment -> column of the records, its heading, and how to write it.
ENDS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "pca": (
        ("value", "f - f* projected", ".2e"),
        ("gap_at_iterate", "f - f* at the iterate", ".2e"),
        ("penalty", "N(X)", ".1e"),
    ),
    "ica": (
        ("value", "f - f* projected", ".2e"),
        ("gap_at_iterate", "f - f* at the iterate", ".2e"),
        ("penalty", "N(X)", ".1e"),
        ("amari", "Amari distance", ".3g"),
        ("witness_correlation", "correlation with the EOG", ".3f"),
    ),
    "cnn": (
        ("accuracy", "test accuracy", ".4f"),
        ("accuracy_projected", "with projected kernels", ".4f"),
        ("penalty", "sum of N(X)", ".1e"),
        ("distance", "largest ‖XᵀX - I‖", ".1e"),
        ("train_loss", "training loss", ".3g"),
    ),
}


def name_cell(name: str) -> str:
    """The label of a method beside its colour."""
    method = METHODS[name]
    return (
        f"<td class='method'><span class='swatch' style='background:{method.colour}'></span>{escape(method.label)}</td>"
    )


def number_cell(value: float, form: str) -> str:
    """A number, or a dash where there is none."""
    return f"<td class='number'>{format(value, form) if math.isfinite(value) else '–'}</td>"


def ends(records: Any, experiment: str) -> str:
    """Median over seeds of the last record of every method."""
    columns = [column for column in ENDS[experiment] if column[0] in records]
    head = [
        "method",
        "step size",
        "seeds",
        "epochs",
        "seconds",
        "seconds per epoch",
        *(title for _, title, _ in columns),
    ]
    rows = []
    final = last(records)
    for name in in_order(set(runs(records)["method"])):
        own = final[final["method"] == name]
        cells = [
            name_cell(name),
            number_cell(float(own["step_size"].iloc[0]), "g"),
            number_cell(len(own), "d"),
            number_cell(float(own["epoch"].median()), ".4g"),
            number_cell(float(own["seconds"].median()), ".3g"),
            number_cell(seconds_per_epoch(records, name), ".3g"),
            *(number_cell(float(own[column].median()), form) for column, _, form in columns),
        ]
        diverged = " (diverged)" if (own["status"] == "diverged").any() else ""
        rows.append("<tr>" + "".join(cells).replace("</td>", f"{diverged}</td>", 1) + "</tr>")
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    return f"<div class='scroll'><table><tr>{titles}</tr>{''.join(rows)}</table></div>"


def step_sizes(records: Any) -> str:
    """What the search found at every step size of the grid, the choice in bold."""
    search = records[records["phase"] == SEARCH]
    if not len(search):
        return ""
    grid = sorted(search["step_size"].unique())
    chosen = runs(records).groupby("method")["step_size"].first()
    rows = []
    for name in in_order(set(search["method"])):
        own = search[search["method"] == name].sort_values("epoch", kind="stable").groupby("step_size").tail(1)
        found = own.set_index("step_size")
        cells = [name_cell(name)]
        for step in grid:
            value, status = (
                (found.loc[step, "criterion"], found.loc[step, "status"]) if step in found.index else (math.nan, "")
            )
            text = "diverged" if status == "diverged" else f"{value:.3g}" if math.isfinite(value) else "–"
            bold = name in chosen.index and chosen[name] == step
            cells.append(f"<td class='number'>{f'<b>{text}</b>' if bold else text}</td>")
        rows.append("<tr>" + "".join(cells) + "</tr>")
    longest = search["epoch"].max()
    titles = "".join(f"<th>{escape(title)}</th>" for title in ("method", *(f"{step:g}" for step in grid)))
    about = f"Step sizes: {search['criterion_name'].iloc[0]} after a search of at most {longest:g} epochs with one seed"
    return (
        f"<details><summary>{escape(about)}; the lowest is chosen (bold)</summary>"
        f"<div class='scroll'><table><tr>{titles}</tr>{''.join(rows)}</table></div></details>"
    )
