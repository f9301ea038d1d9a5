"""Tables and figure of the page from the recorded results: `python -m recipes.rotations.report`."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from recipes.rotations.bare_steps import RESULTS as STEPS
from recipes.rotations.compare import RESULTS as OPTIMIZERS
from recipes.rotations.compare import STARTS, chosen_rate
from recipes.rotations.measure import RESULTS as PERPLEXITIES
from recipes.rotations.measure import SEEDS, SETTINGS, TESTS
from recipes.rotations.optimizers import METHODS

FIGURE = Path(__file__).parents[2] / "docs" / "images" / "rotations.png"
LABELS = {
    "none": "none",
    "random": "random",
    "Hadamard-like": "random Hadamard-like",
    "data-free": "learned, data-free",
    "cross-entropy": "learned, cross-entropy",
}
PARTS = ("three products", "QR alone", "Cayley map", "Cayley map and its backward")
Record = dict[str, Any]


def read(path: Path) -> Record:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def table(titles: list[str], rows: list[list[str]]) -> str:
    """In Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (titles, ["---"] * len(titles), *rows))


def of_seeds(record: Record, row: str, setting: str, text: str) -> list[float]:
    """Perplexities of all seeds that are recorded, lowest first."""
    keys = [f"{row} | {seed} | {setting} | {text}" for seed in range(SEEDS[row])]
    return sorted(record["runs"][key] for key in keys if key in record["runs"])


def perplexity_table(record: Record, text: str) -> str:
    """A row per rotation; where there are two seeds, both."""
    rows = []
    for row, label in LABELS.items():
        found = [of_seeds(record, row, setting, text) for setting in SETTINGS]
        rows.append([label, *(", ".join(map(short, values)) for values in found)])
    return table(["rotation", *SETTINGS], rows)


def short(value: float) -> str:
    """Four digits, or whole numbers above."""
    return f"{value:,.0f}" if value >= 1e4 else f"{value:.4g}"


def validation_table(record: Record) -> str:
    """Perplexity of the validation text by objective and rate."""
    names = [name.split(" | ") for name in record["validation"]]
    rates = sorted({rate for _, rate in names}, key=float)
    rows = []
    for objective in dict.fromkeys(objective for objective, _ in names):
        found = [record["validation"].get(f"{objective} | {rate}") for rate in rates]
        rows.append([objective, *("-" if value is None else short(value) for value in found)])
    return table(["objective", *(f"lr {rate}" for rate in rates)], rows)


def starts(record: Record, name: str) -> list[Record]:
    """The runs of an optimizer at its chosen rate."""
    return [record["runs"][f"{name} | {chosen_rate(record, name):g} | {start}"] for start in range(STARTS)]


def optimizer_table(record: Record, steps: Record) -> str:
    """A row per optimizer at its chosen rate: objectives from all starts, the farthest end, CPU time and memory."""
    titles = ["optimizer", "lr", "objective / 1e-5", "max abs(RᵀR - I)", "s in 40 steps", "peak", "held"]
    rows = []
    for name in METHODS:
        runs, memory = starts(record, name), steps["memory"][name]
        objectives = [run["objective"] for run in runs]
        each = ", ".join(f"{1e5 * value:.1f}" for value in objectives)
        rows.append(
            [
                name,
                f"{chosen_rate(record, name):g}",
                f"{1e5 * statistics.mean(objectives):.1f} ({each})",
                f"{max(run['largest_entry'] for run in runs):.1e}",
                f"{statistics.median(run['seconds_in_optimizer'] for run in runs):.2f}",
                f"{memory['peak_matrices']:.0f}",
                f"{memory['held_matrices']:.0f}",
            ]
        )
    return table(titles, rows)


def step_table(record: Record) -> str:
    """Bare steps and their parts, in multiples of LandingSGD's step, by size and threads."""
    settings = sorted(record["steps"], key=lambda key: [int(number) for number in key.split(" | ")])
    titles = [key.replace(" | ", ", ") + (" thread" if key.endswith("| 1") else " threads") for key in settings]
    rows = []
    for name in (*METHODS, *PARTS):
        found = [record["steps"][key]["times"][name] for key in settings]
        rows.append([name, *(f"{times['times_landing']:.2f}" for times in found)])
    milliseconds = [f"{record['steps'][key]['times']['LandingSGD']['milliseconds']:,.1f} ms" for key in settings]
    return table(["step", *titles], [["LandingSGD takes", *milliseconds], *rows])


def draw(record: Record, path: Path) -> None:
    """Perplexities by rotation on both test texts, and the loss while learning."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 3, figsize=(13, 4), constrained_layout=True, width_ratios=(1, 1, 0.8))
    for panel, text in zip(panels, TESTS, strict=False):
        draw_perplexities(panel, record, text)
    panels[1].set_yticklabels([])
    panels[1].legend(loc="lower right", fontsize=9)
    last = panels[2]
    for seed in range(SEEDS["cross-entropy"]):
        if run := record["learning"].get(f"cross-entropy | {seed}"):
            last.plot(range(1, len(run["values"]) + 1), run["values"], label=f"seed {seed}")
    last.set(xlabel="step (512 tokens each)", ylabel="training loss at W4A4", title="learning by cross-entropy")
    last.legend()
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def draw_perplexities(panel: Any, record: Record, text: str) -> None:
    """Bars by rotation at W4A8 and W4A4: the mean of the seeds, each seed a dot."""
    for shift, (setting, colour) in enumerate(zip(("W4A8", "W4A4"), ("tab:blue", "tab:orange"), strict=True)):
        for row, name in enumerate(LABELS):
            values, spot = of_seeds(record, name, setting, text), row + 0.38 * (shift - 0.5)
            mean = statistics.geometric_mean(values)
            panel.barh(spot, mean, 0.36, color=colour, label=setting if row == 0 else None)
            panel.plot(values, [spot] * len(values), ".", color="black", markersize=4)
            panel.text(max(values) * 1.15, spot, f"{mean:,.0f}", va="center", fontsize=9)
    panel.axvline(record["original"][text], color="black", linestyle="--", linewidth=1, label="full precision")
    panel.set(xscale="log", yticks=range(len(LABELS)), yticklabels=LABELS.values(), xlabel="perplexity", title=text)
    panel.set_xlim(8, panel.get_xlim()[1] * 5)
    panel.invert_yaxis()


def main() -> None:
    perplexities, optimizers, steps = read(PERPLEXITIES), read(OPTIMIZERS), read(STEPS)
    for text in TESTS:
        print(perplexity_table(perplexities, text), end="\n\n")
    print(validation_table(perplexities), optimizer_table(optimizers, steps), step_table(steps), sep="\n\n")
    draw(perplexities, FIGURE)


if __name__ == "__main__":
    main()
