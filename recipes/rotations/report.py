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
from recipes.rotations.measure import SEEDS, SETTINGS
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


def of_seeds(record: Record, name: str, setting: str) -> list[float]:
    """Perplexities of all seeds that are recorded, lowest first."""
    keys = [f"{name} | {seed} | {setting}" for seed in range(SEEDS[name])]
    return sorted(record["runs"][key] for key in keys if key in record["runs"])


def perplexity_table(record: Record) -> str:
    """A row per rotation; where there are seeds, the lowest to the highest."""
    lines = ["| rotation | " + " | ".join(SETTINGS) + " |", "|---|" + "---|" * len(SETTINGS)]
    for name, label in LABELS.items():
        found = [of_seeds(record, name, setting) for setting in SETTINGS]
        cells = [" to ".join(f"{value:,.1f}" for value in values) or "not recorded" for values in found]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


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
    """Perplexities by rotation, and the loss while learning."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    for shift, (setting, colour) in enumerate(zip(("W4A8", "W4A4"), ("tab:blue", "tab:orange"), strict=True)):
        heights = [min(of_seeds(record, name, setting), default=0.0) for name in LABELS]
        spots = [row + 0.38 * (shift - 0.5) for row in range(len(LABELS))]
        left.barh(spots, heights, 0.36, color=colour, label=setting)
        for spot, height in zip(spots, heights, strict=True):
            left.text(max(11, height * 1.1), spot, f"{height:,.0f}" if height else "-", va="center", fontsize=9)
    left.axvline(record["original"], color="black", linestyle="--", linewidth=1, label="full precision")
    left.set(xscale="log", yticks=range(len(LABELS)), yticklabels=LABELS.values(), xlabel="perplexity of the test text")
    left.set_xlim(10, left.get_xlim()[1] * 4)
    left.invert_yaxis()
    left.legend(loc="lower right")
    values = record["learning"]["cross-entropy"]["values"]
    right.plot(range(1, len(values) + 1), values, color="tab:orange")
    right.set(xlabel="step (512 tokens each)", ylabel="training loss at W4A4", title="learning by cross-entropy")
    for side in (left, right):
        side.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def main() -> None:
    perplexities, optimizers, steps = read(PERPLEXITIES), read(OPTIMIZERS), read(STEPS)
    print(perplexity_table(perplexities), optimizer_table(optimizers, steps), step_table(steps), sep="\n\n")
    draw(perplexities, FIGURE)


if __name__ == "__main__":
    main()
