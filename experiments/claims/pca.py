"""Claims of section 4.1 and of the appendix on online PCA."""

from __future__ import annotations

from typing import Any

from experiments.claims.judgement import Claim, Part, Verdict, absent
from experiments.records import SEARCH, last, runs, seconds_per_epoch, seconds_to_reach

FASTER = Claim(
    "An epoch of landing takes less time than one of Riemannian SGD with QR, at every p.", "§ 4.1, fig. 3, 6"
)
SOONER = Claim("Landing reaches a given loss sooner than Riemannian SGD with QR.", "§ 4.1, fig. 3, 6")
CLOSE = Claim("Landing is not precisely on the constraint, but N(X) ≤ 10⁻⁶.", "§ 4.1")
FALLS = Claim("The distance of landing decreases further when the step size is decreased.", "§ 4.1")
TOO_SMALL = Claim("Penalty with λ = 10²: the distance stays large and the loss becomes negative.", "§ 4.1")
TOO_LARGE = Claim("Penalty with λ = 10⁴: close to the constraint, but very slow.", "§ 4.1")
CLOSE_ENOUGH = 1e-6
SIZE_OF_THE_TEXT = 5000
EPOCHS_OF_THE_TEXT = 60
SLACK = 1.05  # a loss counts as reached within this factor


def verdicts(studies: dict[str, Any]) -> list[Verdict]:
    """One verdict per claim over all sizes."""
    rows = sorted(studies.values(), key=lambda records: int(records["p"].iloc[0]))
    return [faster(rows), sooner(rows), close(rows), falls(rows), too_small(rows), too_large(rows)]


def size(records: Any) -> str:
    """Which study, in short."""
    row = records.iloc[0]
    model = "" if "-text-" in row["study"] else ", published data"
    return f"p = {row['p']}{model}"


def told(records: Any, methods: tuple[str, ...], holds: bool, text: str) -> Part:
    """A part of a verdict on losses and distances, which depend on the length of a run.

    At the size of the text, a run of fewer epochs than the text's is too short where the claim fails, or where a method
    chose the longest step of its grid.
    """
    epochs = float(runs(records)["epoch"].max())
    edge = at_the_edge(records, methods)
    if records["n"].iloc[0] < SIZE_OF_THE_TEXT or epochs >= EPOCHS_OF_THE_TEXT or (holds and not edge):
        return Part(holds, text)
    why = f"after {epochs:g} of {EPOCHS_OF_THE_TEXT} epochs" + (", step sizes at the edge of the grid" if edge else "")
    return Part(holds, f"{text} ({why}: too short)", too_short=True)


def at_the_edge(records: Any, methods: tuple[str, ...]) -> bool:
    """Whether the search of any of the methods chose the longest step of the grid."""
    search = records[records["phase"] == SEARCH]
    if not len(search):
        return False
    chosen = runs(records).groupby("method")["step_size"].first()
    return any(chosen[name] >= search["step_size"].max() for name in methods)


def faster(rows: list[Any]) -> Verdict:
    """Seconds per epoch."""
    parts = []
    for records in rows:
        if absent(records, "landing", "riemannian-qr"):
            continue
        ours, theirs = (seconds_per_epoch(records, name) for name in ("landing", "riemannian-qr"))
        text = f"{size(records)}: {ours:.3g} s against {theirs:.3g} s ({theirs / ours:.2g}×)"
        parts.append(Part(ours < theirs, text))
    return FASTER.judge_all(parts, "needs runs of landing and riemannian-qr")


def sooner(rows: list[Any]) -> Verdict:
    """Seconds to the loss, at the projected point, that both reach by their end."""
    parts = []
    for records in rows:
        if absent(records, "landing", "riemannian-qr"):
            continue
        ends = last(records)
        ends = ends[ends["method"].isin(["landing", "riemannian-qr"])]
        target = SLACK * float(ends["value"].max())
        ours, theirs = (seconds_to_reach(records, name, "value", target) for name in ("landing", "riemannian-qr"))
        text = f"{size(records)}, loss {target:.2g}: {ours:.3g} s against {theirs:.3g} s"
        parts.append(told(records, ("landing", "riemannian-qr"), ours < theirs, text))
    return SOONER.judge_all(parts, "needs runs of landing and riemannian-qr")


def landing_penalties(records: Any) -> tuple[float, float] | None:
    """Largest N(X) over seeds of landing at the last record before the first decay, and at the end."""
    own = runs(records)
    own = own[own["method"] == "landing"]
    milestone = own["first_milestone"].iloc[0] if len(own) else float("inf")
    if not len(own) or own["epoch"].max() <= milestone:
        return None
    before = own[own["epoch"] <= milestone].sort_values("epoch").groupby("seed").tail(1)
    ends = last(records)
    return float(before["penalty"].max()), float(ends[ends["method"] == "landing"]["penalty"].max())


def close(rows: list[Any]) -> Verdict:
    """The threshold is the paper's, for its size."""
    parts = []
    for records in rows:
        own = runs(records)
        own = own[(own["method"] == "landing") & (own["epoch"] >= 1)]
        if len(own) and records["n"].iloc[0] >= SIZE_OF_THE_TEXT:
            worst, end = float(own["penalty"].max()), float(last(own)["penalty"].max())
            text = f"{size(records)}: at most {worst:.1e}, at the end {end:.1e}"
            parts.append(told(records, ("landing",), worst <= CLOSE_ENOUGH, text + with_more_attraction(records)))
    return CLOSE.judge_all(parts, f"the threshold belongs to n = {SIZE_OF_THE_TEXT}")


def with_more_attraction(records: Any) -> str:
    """What λ = 10 gives, which the authors' published runs used where the text says λ = 1."""
    own = runs(records)
    own = own[(own["method"] == "landing-10") & (own["epoch"] >= 1)]
    if not len(own):
        return ""
    return f" (with λ = 10 at most {own['penalty'].max():.1e}, at the end {last(own)['penalty'].max():.1e})"


def falls(rows: list[Any]) -> Verdict:
    """N(X) at the end against N(X) before the first decay."""
    parts = []
    for records in rows:
        found = landing_penalties(records)
        if found is not None:
            before, after = found
            parts.append(told(records, (), after < before, f"{size(records)}: from {before:.1e} to {after:.1e}"))
    return FALLS.judge_all(parts, "no run of landing lasted beyond its first decay")


def too_small(rows: list[Any]) -> Verdict:
    """Far: N(X) is above landing's in every seed; and f - f* at the iterate is negative."""
    parts = []
    for records in rows:
        if absent(records, "landing", "penalty-100"):
            continue
        ends = last(records).set_index("method")
        ours, theirs = ends.loc[["landing"]], ends.loc[["penalty-100"]]
        far, near = float(theirs["penalty"].min()), float(ours["penalty"].max())
        lowest = float(theirs["gap_at_iterate"].max())
        text = f"{size(records)}: N(X) = {far:.1e} against {near:.1e}, f - f* = {lowest:.2g} at the iterate"
        parts.append(told(records, ("penalty-100",), far > near and lowest < 0, text))
    return TOO_SMALL.judge_all(parts, "needs runs of landing and penalty-100")


def too_large(rows: list[Any]) -> Verdict:
    """Slow: at the end its loss, at the projected point, is at least twice landing's in every seed."""
    parts = []
    for records in rows:
        if absent(records, "landing", "penalty-10000"):
            continue
        ends = last(records).set_index("method")
        best = float(ends.loc[["penalty-10000"]]["value"].min())
        ours = float(ends.loc[["landing"]]["value"].max())
        near = float(ends.loc[["penalty-10000"]]["penalty"].max())
        text = f"{size(records)}: loss {best:.2g} against {ours:.2g}, N(X) = {near:.1e}"
        parts.append(told(records, ("landing", "penalty-10000"), best > 2 * ours, text))
    return TOO_LARGE.judge_all(parts, "needs runs of landing and penalty-10000")
