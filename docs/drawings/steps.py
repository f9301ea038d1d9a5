"""Draws docs/images/steps-{light,dark}.svg: the time of a step of each method, relative to LandingSGD.

Run from the root of the repository: `python docs/drawings/steps.py`. Reads benchmarks/results/steps.json.
"""

import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).parents[2]
WORKLOADS = (
    *("5000 x 100", "5000 x 500", "1000 x 1000", "4096 x 4096", "30000 x 50"),
    *("1000 of 16 x 16", "218 of 768 x 16", "batch of 1000 x 16 x 16", "ResNet18 kernels"),
)
METHODS = {
    "bare products": (("three products", "four products"), "#9aa0a6", "|"),
    "torch AdamW": (("torch AdamW",), "#c9a227", "s"),
    "geoopt, QR": (("geoopt RiemannianSGD (QR)", "geoopt RiemannianSGD"), "#e06c1f", "o"),
    "pogo-torch": (("pogo-torch POGO",), "#b5519b", "D"),
}
INK = {"light": "#263238", "dark": "#d5dadd"}


def ratio(workload: dict, names: tuple[str, ...]) -> float | None:
    """Time of a method relative to LandingSGD; of several names the first that was measured."""
    return next((workload["methods"][name]["to_landing"] for name in names if name in workload["methods"]), None)


def draw(workloads: list[dict], ink: str, path: Path) -> None:
    """One row per workload, one mark per method, LandingSGD at the line."""
    colours = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style = {**dict.fromkeys(colours, ink), "font.size": 13, "svg.hashsalt": "glideslope"}
    with matplotlib.rc_context(style):
        figure, panel = plt.subplots(figsize=(7.2, 5.4), layout="constrained")
        panel.axvline(1, color="#3f7fd9", linewidth=2.5, label="LandingSGD")
        for label, (names, colour, marker) in METHODS.items():
            places = [(ratio(workload, names), row) for row, workload in enumerate(workloads)]
            known = [(value, row) for value, row in places if value is not None]
            size = {"markersize": 14, "markeredgewidth": 3} if marker == "|" else {"markersize": 9}
            panel.plot(*zip(*known, strict=True), marker, color=colour, label=label, **size)
        panel.set_yticks(range(len(workloads)), [workload["name"] for workload in workloads])
        panel.invert_yaxis()
        panel.set_xscale("log")
        ticks = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)
        panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.minorticks_off()
        panel.grid(color=ink, alpha=0.15)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_xlabel("time of a step / time of LandingSGD")
        figure.legend(loc="outside upper center", ncols=3, frameon=False, fontsize=12)
        figure.savefig(path, transparent=True, metadata={"Date": None})
        plt.close(figure)


if __name__ == "__main__":
    record = json.loads((ROOT / "benchmarks" / "results" / "steps.json").read_text(encoding="utf-8"))
    by_name = {workload["name"]: workload for workload in record["workloads"]}
    for theme, ink in INK.items():
        draw([by_name[name] for name in WORKLOADS], ink, ROOT / "docs" / "images" / f"steps-{theme}.svg")
