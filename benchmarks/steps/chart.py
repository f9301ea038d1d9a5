"""The bar chart of a report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.steps.measure import Report, Result
from benchmarks.steps.methods import ADAMW, FOUR_PRODUCTS, GEOOPT, LANDING, NEWTON_SCHULZ, POGO, QR, THREE_PRODUCTS
from benchmarks.steps.peers import GEOTORCH, PER_KERNEL

BARE = "bare products"
# Method in the legend -> the methods it stands for, the first that was measured, and its colour.
BARS: dict[str, tuple[tuple[str, ...], str]] = {
    BARE: ((FOUR_PRODUCTS,), "#9aa0a6"),
    LANDING: ((LANDING,), "#0b5fa5"),
    NEWTON_SCHULZ: ((NEWTON_SCHULZ,), "#5aa9e6"),
    QR: ((QR,), "#2a9d8f"),
    ADAMW: ((ADAMW,), "#c9b458"),
    "geoopt (QR)": ((GEOOPT,), "#e07a1f"),
    "pogo-torch": ((POGO,), "#b5395b"),
    "GeoTorch (on ResNet18 each k x k apart)": ((GEOTORCH, PER_KERNEL), "#6d4c9f"),
}


def draw(report: Report, path: Path) -> None:
    """Write a horizontal grouped bar chart of the medians, logarithmic, single matrices left and the rest right."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.patches import Patch

    shown = [result for result in report.results if result.workload.family != "growth" and result.rounds]
    left = [result for result in shown if result.workload.family == "single"]
    right = [result for result in shown if result.workload.family != "single"]
    panels = [panel for panel in (left, right) if panel]
    rows = max(map(len, panels), default=1)
    height = 1.6 + 0.15 * len(BARS) * rows
    figure, grid = pyplot.subplots(1, max(1, len(panels)), figsize=(7 * max(1, len(panels)), height), squeeze=False)
    for axes, panel in zip(grid[0], panels, strict=False):
        draw_panel(axes, panel, rows)
    present = [label for label in BARS if any(timing_of(result, label) for result in shown)]
    handles = [Patch(color=BARS[label][1], label=label) for label in present]
    figure.legend(handles=handles, loc="upper center", ncols=4, frameon=False, fontsize=9)
    here = report.environment
    machine = f"{here.processor}, {here.threads} threads, {here.device}, {here.dtype}, torch {here.torch_version}"
    caption = f"{machine}; medians with quartiles"
    figure.text(0.5, 0.004, caption, ha="center", va="bottom", fontsize=8, color="#555555")
    figure.tight_layout(rect=(0, 0.25 / height, 1, 1 - 0.65 / height))
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def draw_panel(axes: Any, results: list[Result], rows: int) -> None:
    """One group of bars per workload, the first on top; room for a number of rows of groups."""
    thickness = 0.86 / len(BARS)
    longest = shortest = 1.0
    for i, (label, (_, colour)) in enumerate(BARS.items()):
        found = [(group, timing_of(result, label)) for group, result in enumerate(results)]
        for group, timing in ((group, timing) for group, timing in found if timing is not None):
            place = group + (i - (len(BARS) - 1) / 2) * thickness
            lower, median, upper = (1e3 * value for value in (timing.lower, timing.median, timing.upper))
            spread = [[median - lower], [upper - median]]
            thin = {"lw": 0.7, "ecolor": "#333333"}
            axes.barh(place, median, height=thickness * 0.92, color=colour, xerr=spread, error_kw=thin)
            where = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 6}
            axes.annotate(f"{median:.0f}" if median >= 1000 else f"{median:.3g}", (upper, place), **where)
            longest, shortest = max(longest, upper), min(shortest, lower)
    axes.set_xscale("log")
    axes.set_xlim(shortest / 2, longest * 2.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_yticks(range(len(results)), [result.workload.name for result in results], fontsize=9)
    axes.set_xlabel("milliseconds a step")
    axes.grid(axis="x", which="major", color="#dddddd", lw=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def timing_of(result: Result, label: str) -> Any:
    """The timing a bar shows, None where there is none."""
    names = (THREE_PRODUCTS if result.workload.square else FOUR_PRODUCTS,) if label == BARE else BARS[label][0]
    timings = [result.outcomes[name].timing for name in names if name in result.outcomes]
    return next((timing for timing in timings if timing is not None), None)
