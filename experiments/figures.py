"""Figures in the paper's form: medians over seeds with min-max bands, logarithmic axes, one colour per method."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from experiments.appearance import METHODS, in_order
from experiments.published import End
from experiments.records import curve, runs

STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.6,
    "figure.facecolor": "white",
}

RESOLUTION = 140
ROUNDING = 1e-14


class Panel(NamedTuple):
    """A column of the records against another."""

    x: str
    y: str
    x_label: str
    y_label: str
    x_log: bool = False
    y_log: bool = True
    floor: float = 0.0
    """Where a logarithmic axis shows what is zero but for rounding."""


@contextmanager
def drawing() -> Iterator[Any]:
    """Matplotlib without a display, in the style of the report."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(STYLE):
        yield pyplot
        pyplot.close("all")


def draw_panels(records: Any, panels: tuple[Panel, ...], columns: int = 2) -> Any:
    """One figure of a study, its legend above."""
    from matplotlib import pyplot

    n_rows = -(-len(panels) // columns)
    figure, grid = pyplot.subplots(n_rows, columns, figsize=(10, 3.2 * n_rows + 0.7), squeeze=False)
    names = in_order(set(runs(records)["method"]))
    for axes, panel in zip(grid.flat, panels, strict=False):
        draw_panel(axes, records, names, panel)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    add_legend(figure, names)
    return figure


def draw_beside_the_paper(records: Any, published: dict[str, End]) -> Any:
    """Test accuracy against time: to the left where the published runs ended, to the right the records."""
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 4.2), sharey=True)
    own = in_order(set(runs(records).dropna(subset="seconds")["method"]))  # without those whose epochs were not timed
    for name, end in published.items():
        left.plot(end.minutes, end.accuracy, "o", color=METHODS[name].colour, ms=8)
    left.set_xscale("log")
    if published:
        minutes = [end.minutes for end in published.values()]
        left.set_xlim(min(minutes) / 2, 2 * max(minutes))
    left.set_xlabel("minutes")
    left.set_ylabel("test accuracy")
    left.set_title("published: ends of the runs, width 64, 150 epochs")
    draw_panel(right, records, own, Panel("seconds", "accuracy", "seconds", "", x_log=True, y_log=False))
    right.set_title(f"here: width {records['width'].iloc[0]}, {runs(records)['epoch'].max():g} epochs")
    for axis in (left.xaxis, right.xaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axis.set_minor_formatter(NullFormatter())
    add_legend(figure, in_order({*own, *published}))
    return figure


def add_legend(figure: Any, names: list[str]) -> None:
    """All methods above the panels."""
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], color=METHODS[name].colour, ls=METHODS[name].line, lw=2, label=METHODS[name].label)
        for name in names
    ]
    height = figure.get_size_inches()[1]
    legend_rows = -(-len(names) // 4)
    figure.legend(handles=handles, loc="upper center", ncols=4, frameon=False, fontsize=9)
    figure.tight_layout(rect=(0, 0, 1, 1 - (0.08 + 0.2 * legend_rows) / height))


def draw_panel(axes: Any, records: Any, names: list[str], panel: Panel) -> None:
    """Median and band of every method."""
    for name in names:
        table = curve(records, name, panel.y)
        if panel.y_log:
            table = above_zero(table, panel.floor)
        if panel.x_log:
            table = table[(table[panel.x] > 0) & (table["epoch"] > 0)]
        if not len(table):
            continue
        style = METHODS[name]
        marker = "o" if len(table) == 1 else None
        axes.plot(table[panel.x], table["median"], color=style.colour, ls=style.line, lw=1.6, marker=marker, ms=5)
        axes.fill_between(table[panel.x], table["low"], table["high"], color=style.colour, alpha=0.18, lw=0)
    if panel.y_log:
        axes.set_yscale("log")
    if panel.x_log:
        axes.set_xscale("log")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)


def above_zero(table: Any, floor: float) -> Any:
    """The rows that a logarithmic axis can show: those within rounding of zero at the floor, negative ones not."""
    columns = ["median", "low", "high"]
    near = table[columns].abs().max(axis=1) < (ROUNDING if floor else 0)
    table.loc[near, columns] = table.loc[near, columns].clip(lower=floor)
    return table[table["low"] > 0]


def save(figure: Any, folder: Path, name: str) -> str:
    """Write a PNG of the figure; the address that holds it, for an img element: nothing is fetched."""
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=RESOLUTION, metadata={"Software": None})
    (folder / f"{name}.png").write_bytes(buffer.getvalue())
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
