"""Tables and figure of the page from the recorded results: `python -m recipes.rotations.report`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from recipes.rotations.compare import METHODS
from recipes.rotations.compare import RESULTS as OPTIMIZERS
from recipes.rotations.measure import RESULTS as PERPLEXITIES
from recipes.rotations.measure import SEEDS, SETTINGS

FIGURE = Path(__file__).parents[2] / "docs" / "images" / "rotations.png"
LABELS = {
    "none": "none",
    "random": "random",
    "Hadamard-like": "random Hadamard-like",
    "data-free": "learned, data-free",
    "cross-entropy": "learned, cross-entropy",
}
Record = dict[str, Any]


def read(path: Path) -> Record:
    return dict(json.loads(path.read_text(encoding="utf-8")))


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


def best_rate(record: Record, name: str) -> str:
    """The learning rate with the lowest objective; runs that diverged never win."""
    found = {key: run for key, run in record["runs"].items() if key.startswith(f"{name} | ")}
    return min(found, key=lambda key: found[key]["objective"] or float("inf")).rpartition(" | ")[2]


def optimizer_table(record: Record) -> str:
    """A row per optimizer at its best rate: objective, distance and seconds of the runs; bare steps by size."""
    sizes = list(record["steps"])
    titles = ["optimizer", "best lr", "objective", "max abs(RᵀR - I)", "s in 40 steps"]
    titles += [f"step, n = {n}" for n in sizes] + ["memory"]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for name in METHODS:
        rate = best_rate(record, name)
        run = record["runs"][f"{name} | {rate}"]
        cells = [
            name,
            rate,
            f"{run['objective']:.5f}",
            f"{run['largest_entry']:.0e}",
            f"{run['seconds_in_optimizer']:.2f}",
        ]
        cells += [f"{record['steps'][n][name]['times_landing']:.2f}" for n in sizes]
        cells.append(f"{record['steps'][sizes[0]][name]['peak_matrices']:.0f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


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
    perplexities = read(PERPLEXITIES)
    print(perplexity_table(perplexities), optimizer_table(read(OPTIMIZERS)), sep="\n\n")
    draw(perplexities, FIGURE)


if __name__ == "__main__":
    main()
