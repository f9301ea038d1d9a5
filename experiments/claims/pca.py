"""Claims of section 4.1 and of the appendix on online PCA."""

from __future__ import annotations

from typing import Any

from experiments.claims.judgement import Claim, Verdict, absent
from experiments.records import last, runs, seconds_per_epoch, seconds_to_reach

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


def faster(rows: list[Any]) -> Verdict:
    """Seconds per epoch."""
    parts = []
    for records in rows:
        if absent(records, "landing", "riemannian-qr"):
            continue
        ours, theirs = (seconds_per_epoch(records, name) for name in ("landing", "riemannian-qr"))
        parts.append((ours < theirs, f"{size(records)}: {ours:.3g} s against {theirs:.3g} s ({theirs / ours:.2g}×)"))
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
        parts.append((ours < theirs, f"{size(records)}, loss {target:.2g}: {ours:.3g} s against {theirs:.3g} s"))
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
            parts.append((worst <= CLOSE_ENOUGH, text + with_more_attraction(records)))
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
            parts.append((after < before, f"{size(records)}: from {before:.1e} to {after:.1e}"))
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
        parts.append(
            (
                far > near and lowest < 0,
                f"{size(records)}: N(X) = {far:.1e} against {near:.1e}, f - f* = {lowest:.2g} at the iterate",
            )
        )
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
        parts.append((best > 2 * ours, f"{size(records)}: loss {best:.2g} against {ours:.2g}, N(X) = {near:.1e}"))
    return TOO_LARGE.judge_all(parts, "needs runs of landing and penalty-10000")
