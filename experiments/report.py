"""report.html: figures, claims, step sizes and provenance of all records in a folder, in one file."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from experiments import penalty_figure, tables
from experiments.appearance import METHODS, in_order
from experiments.claims import DOES_NOT_HOLD, HOLDS, verdicts
from experiments.figures import Panel, draw_beside_the_paper, draw_panels, drawing, save
from experiments.provenance import COLUMNS
from experiments.published import ends_for
from experiments.records import last, read, runs

PANELS: dict[str, tuple[Panel, ...]] = {
    "pca": (
        Panel("seconds", "value", "seconds", "f - f* at the projected point"),
        Panel("seconds", "penalty", "seconds", "N(X)"),
        Panel("epoch", "value", "epochs", "f - f* at the projected point"),
        Panel("epoch", "penalty", "epochs", "N(X)"),
    ),
    "ica": (
        Panel("seconds", "value", "seconds", "f - f* at the projected point", x_log=True, floor=1e-16),
        Panel("seconds", "penalty", "seconds", "N(X)", x_log=True),
        Panel("seconds", "amari", "seconds", "Amari distance", x_log=True),
        Panel("seconds", "witness_correlation", "seconds", "correlation with the EOG", x_log=True, y_log=False),
        Panel("epoch", "value", "epochs", "f - f* at the projected point", x_log=True, floor=1e-16),
    ),
    "cnn": (
        Panel("seconds", "accuracy", "seconds", "test accuracy", y_log=False),
        Panel("seconds", "penalty", "seconds", "sum of N(X) over layers"),
        Panel("epoch", "accuracy", "epochs", "test accuracy", y_log=False),
        Panel("epoch", "penalty", "epochs", "sum of N(X) over layers"),
    ),
}
SECTIONS = {
    "penalty": (
        "Penalty methods (§ 3.4, figure 2)",
        "Above, contours of f + λN in dimensions (n, p) = (2, 1). Below, the two claims of the proposition on a 6 × 3 "
        "linear problem: the minimiser is off by the order of 1/λ, and the conditioning there grows like λ.",
    ),
    "pca": (
        "Online PCA (§ 4.1, figures 3 and 6)",
        "Lines are medians over seeds, bands their minimum and maximum. The loss is evaluated at the projection of X "
        "in float64, because f - f* can be negative off the manifold; the table has both. Evaluation is outside the "
        "clock. All methods of glideslope get the gradient of a batch as two factors: a step of landing never forms "
        "it, a retraction has to. The canonical metric of the paper's landing makes its step, off the span of X, half "
        "as long as the Euclidean one of the Riemannian methods at the same step size.",
    ),
}
SECTIONS["ica"] = (
    "Independent component analysis (§ 4.2, figure 4)",
    "Every seed draws its own sources and mixing. The loss is measured from the minimum that the automatic search of "
    "`minimize` finds from the true mixing (for the EEG, from the identity). Picard-O and FastICA are what a user "
    "would pick instead: they are run anew for every point, with more iterations each time, which "
    "stand for epochs.",
)
SECTIONS["cnn"] = (
    "Networks with orthogonal convolutions (§ 4.3, figures 5 and 7)",
    "Every kernel is constrained as a matrix n_out × (n_in k²), transposed if that is wide. All methods start from the "
    "same network, with orthonormal kernels, and see the same batches. Step sizes are chosen on every tenth training "
    "image, held out for that; the runs use all of them. Seconds are those of training, without evaluation.",
)
BESIDE = (
    "Figures 5 and 7 of the paper and ours: to the left the ends of the authors' published runs (the paper shows "
    "whole curves), to the right the records. Machine, width and number of epochs differ: compare the order."
)
CSS = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1d2733; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { margin-top: 2.6rem; border-bottom: 2px solid #0b5fa5; } h3 { margin-top: 1.8rem; }
img { width: 100%; height: auto; } .scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.86rem; margin: 0.6rem 0; width: 100%; }
th, td { padding: 0.28rem 0.6rem; border-bottom: 1px solid #dbe1e8; text-align: left; vertical-align: top; }
th { background: #f1f5f9; } td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.holds { color: #11703c; font-weight: 600; } .not { color: #a61e2f; font-weight: 600; } .untested { color: #66707c; }
.swatch { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.4em; border-radius: 2px; }
.where, .method { white-space: nowrap; } .note { color: #4a5561; font-size: 0.92rem; }
"""


def write_report(folder: Path, notes: list[str]) -> Path:
    """Draw and write folder/report.html from folder/records; figures also as PNG files in folder/figures."""
    studies = read(folder / "records")
    if not studies:
        raise ValueError(f"no records in {folder / 'records'}: run an experiment first")
    scales = ", ".join(sorted({scale for records in studies.values() for scale in records["scale"].unique()}))
    parts = [
        "<h1>Landing on the Stiefel manifold: the paper's experiments</h1>",
        f"<p>Ablin, Vary, Gao, Absil, JMLR 2024, section 4 and appendix A. Scale: <b>{escape(scales)}</b>.</p>",
        claims_table(studies),
    ]
    with drawing():
        for experiment, (title, text) in SECTIONS.items():
            own = {name: rows for name, rows in studies.items() if rows["experiment"].iloc[0] == experiment}
            if own:
                parts.append(f"<h2>{escape(title)}</h2><p class='note'>{escape(text)}</p>")
                parts += [section(name, rows, folder / "figures") for name, rows in in_size_order(own)]
    parts += [provenance_table(studies), *(f"<p class='note'>{escape(note)}</p>" for note in notes)]
    page = folder / "report.html"
    head = f"<!doctype html><html lang='en'><meta charset='utf-8'><title>glideslope: report</title><style>{CSS}</style>"
    page.write_text(head + "<body>" + "\n".join(parts) + "</body></html>\n", encoding="utf-8")
    return page


def in_size_order(studies: dict[str, Any]) -> list[tuple[str, Any]]:
    """By number of columns, then by name."""
    return sorted(studies.items(), key=lambda item: (item[1]["p"].iloc[0] if "p" in item[1] else 0, item[0]))


def panels_of(records: Any) -> tuple[Panel, ...]:
    """The panels whose columns the records have."""
    return tuple(panel for panel in PANELS[records["experiment"].iloc[0]] if panel.y in records)


def section(name: str, records: Any, figures: Path) -> str:
    """Figure and tables of one study."""
    experiment = records["experiment"].iloc[0]
    figure = penalty_figure.draw(records) if experiment == "penalty" else draw_panels(records, panels_of(records))
    address = save(figure, figures, name)
    title = "" if experiment == "penalty" else f"<h3>{escape(records['title'].iloc[0])}</h3>"
    shown = f"{title}<img alt='{escape(name)}' src='{address}'>"
    if experiment == "penalty":
        return shown
    if published := ends_for(records):
        beside = save(draw_beside_the_paper(records, published), figures, f"{name}-beside-the-paper")
        shown += f"<p class='note'>{escape(BESIDE)}</p><img alt='{escape(name)} beside the paper' src='{beside}'>"
    return shown + unfinished(records) + tables.ends(records, experiment) + tables.step_sizes(records)


def unfinished(records: Any) -> str:
    """A note where methods of a study have fewer seeds than others, or were searched for a step size and not run."""
    seeds = last(records).groupby("method")["seed"].nunique()
    waiting = sorted(set(records["method"]) - set(runs(records)["method"]))
    if seeds.nunique() <= 1 and not waiting:
        return ""
    parts = [f"{METHODS[name].label} {seeds[name]}" for name in in_order(set(seeds.index))]
    parts += [f"{METHODS[name].label} none" for name in waiting]
    return f"<p class='note'>A part of the study, to be continued: finished seeds of {escape(', '.join(parts))}.</p>"


def claims_table(studies: dict[str, Any]) -> str:
    """The claims with their verdicts."""
    classes = {HOLDS: "holds", DOES_NOT_HOLD: "not"}
    rows = [
        f"<tr><td>{escape(row.claim)}</td><td class='where'>{escape(row.where)}</td>"
        f"<td class='{classes.get(row.outcome, 'untested')}'>{escape(row.outcome)}</td>"
        f"<td>{escape(row.evidence)}</td></tr>"
        for row in verdicts(studies)
    ]
    head = "<tr><th>Claim of the paper</th><th>Where</th><th>Here</th><th>By</th></tr>"
    return f"<h2>Claims</h2><div class='scroll'><table>{head}{''.join(rows)}</table></div>"


def provenance_table(studies: dict[str, Any]) -> str:
    """Where the records come from, one row per origin."""
    origins: dict[tuple[str, ...], list[str]] = {}
    columns = [name for name in COLUMNS if name != "recorded"]
    for name, records in studies.items():
        for values in records[columns].astype(str).drop_duplicates().itertuples(index=False):
            origins.setdefault(tuple(values), []).append(name)
    head = "".join(f"<th>{escape(title)}</th>" for title in ("records", *columns))
    rows = [
        "<tr>" + "".join(f"<td>{escape(text)}</td>" for text in (", ".join(names), *values)) + "</tr>"
        for values, names in origins.items()
    ]
    table = f"<div class='scroll'><table><tr>{head}</tr>{''.join(rows)}</table></div>"
    return f"<h2>Where the records come from</h2>{table}"
