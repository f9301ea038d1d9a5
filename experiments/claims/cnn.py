"""Claims of section 4.3 and of the appendix on networks with orthogonal convolutions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from experiments.appearance import METHODS
from experiments.claims.judgement import Claim, Part, Verdict, absent
from experiments.records import last, seconds_per_epoch, seconds_to_reach

ACCURATE = Claim("Landing reaches the test accuracy of Riemannian SGD with QR: within the band of its seeds.", "§ 4.3")
DEFAULTS = Claim("So does landing with the defaults of this library (not in the paper).", "§ 4.3")
SOONER = Claim("Riemannian SGD with QR takes longer than landing to reach a good test accuracy.", "§ 4.3, fig. 5")
LOWEST = Claim("QR retractions achieve the lowest distance to the constraint.", "§ 4.3, fig. 5")
WEAK = Claim("Penalty with λ = 1: good test accuracy, but a poor distance to the constraint.", "§ 4.3, fig. 5")
STRONG = Claim("Penalty with λ = 10³: as close to the constraint as landing, but a poor accuracy.", "§ 4.3, fig. 5")
SLOW = Claim("Trivialization by GeoTorch takes many times as long (about 14 on the paper's VGG16).", "§ 4.3, fig. 7")
VARIANTS = ("landing-euclidean", "landing-two-step")
POOR = 10.0  # times landing's
POOR_ACCURACY = 0.05  # below QR's
MANY = 5.0  # times
ALL_OF_CIFAR = 50_000
FEWEST_SEEDS = 2


def verdicts(studies: dict[str, Any]) -> list[Verdict]:
    """One verdict per claim over all networks."""
    rows = list(studies.values())
    accuracies = [accurate(rows, "landing", ACCURATE), accurate(rows, "landing-defaults", DEFAULTS)]
    return [*accuracies, sooner(rows), lowest(rows), weak(rows), strong(rows), slow(rows)]


def title(records: Any) -> str:
    """Which network, in short."""
    return str(records["title"].iloc[0])


def ends(records: Any, method: str, column: str) -> Any:
    """A column at the end, one value per seed."""
    final = last(records)
    return final[final["method"] == method][column]


def images(records: Any) -> float:
    """Number of training images of CIFAR-10; inf for other data, of which all are used."""
    found = re.search(r"CIFAR-10 .*: (\d+) training", str(records["data"].iloc[0])) if "data" in records else None
    return int(found[1]) if found else math.inf


def most_telling(rows: list[Any]) -> list[Any]:
    """For every network the studies with the most training images, of these the ones with the most finished runs."""

    def weight(records: Any) -> tuple[float, int]:
        return images(records), len(last(records))

    most: dict[str, tuple[float, int]] = {}
    for records in rows:
        name = title(records).partition(" ")[0]
        most[name] = max(most.get(name, (0.0, 0)), weight(records))
    return [records for records in rows if weight(records) == most[title(records).partition(" ")[0]]]


def told(records: Any, methods: tuple[str, ...], holds: bool, text: str, shown: Iterable[str] = ()) -> Part:
    """A part of a verdict on accuracies, which needs all images of CIFAR-10 and two seeds of every method.

    Where step sizes of these methods, or of others that the text shows, differ, it says so.
    """
    fewest = min(len(ends(records, name, "seed")) for name in methods)
    steps = {name: float(ends(records, name, "step_size").iloc[0]) for name in (*methods, *shown)}
    if len(set(steps.values())) > 1:
        text += ", step sizes: " + ", ".join(f"{METHODS[name].label} {step:g}" for name, step in steps.items())
    if images(records) < ALL_OF_CIFAR:
        return Part(holds, f"{text} ({images(records)} training images: too few)", too_short=True)
    if fewest < FEWEST_SEEDS:
        return Part(holds, f"{text} ({fewest} seed: too few)", too_short=True)
    return Part(holds, f"{text} ({fewest} seeds)")


def there_are(records: Any, names: tuple[str, ...]) -> list[str]:
    """Those of these methods of which there are runs."""
    return [name for name in names if not absent(records, name)]


def accurate(rows: list[Any], method: str, claim: Claim) -> Verdict:
    """The method's median against the lowest of QR's seeds; and what other options of landing reach."""
    parts = []
    for records in most_telling(rows):
        if absent(records, method, "riemannian-qr"):
            continue
        ours = float(ends(records, method, "accuracy").median())
        theirs = ends(records, "riemannian-qr", "accuracy")
        text = f"{title(records)}: {ours:.4f} against {theirs.min():.4f} to {theirs.max():.4f}"
        variants = there_are(records, VARIANTS if method == "landing" else ())
        for name in variants:
            text += f", {METHODS[name].label} {float(ends(records, name, 'accuracy').median()):.4f}"
        text += f", sum of N {float(ends(records, method, 'penalty').median()):.1e}"
        parts.append(told(records, (method, "riemannian-qr"), ours >= float(theirs.min()), text, variants))
    return claim.judge_all(parts, f"needs runs of {method} and riemannian-qr")


def sooner(rows: list[Any]) -> Verdict:
    """Seconds to 98 % of the lower of both final accuracies."""
    parts = []
    for records in most_telling(rows):
        if absent(records, "landing", "riemannian-qr"):
            continue
        pair = ("landing", "riemannian-qr")
        target = 0.98 * min(float(ends(records, name, "accuracy").min()) for name in pair)
        ours, theirs = (seconds_to_reach(records, name, "accuracy", target, above=True) for name in pair)
        epochs = "/".join(f"{seconds_per_epoch(records, name):.3g}" for name in pair)
        text = f"{title(records)}, accuracy {target:.3f}: {ours:.3g} s against {theirs:.3g} s (per epoch {epochs} s)"
        variants = there_are(records, (*VARIANTS, "landing-defaults"))
        timed = [name for name in variants if math.isfinite(seconds_per_epoch(records, name))]
        for name in timed:
            other = seconds_to_reach(records, name, "accuracy", target, above=True)
            text += f", {METHODS[name].label} {other:.3g} s"
        parts.append(told(records, pair, ours < theirs, text, timed))
    return SOONER.judge_all(parts, "needs runs of landing and riemannian-qr")


def lowest(rows: list[Any]) -> Verdict:
    """Medians of the sum of N at the end, against landing and the penalties."""
    parts = []
    for records in rows:
        rivals = there_are(records, ("landing", "penalty-1", "penalty-1000"))
        if absent(records, "riemannian-qr") or not rivals:
            continue
        theirs = float(ends(records, "riemannian-qr", "penalty").median())
        others = {name: float(ends(records, name, "penalty").median()) for name in rivals}
        text = ", ".join(f"{METHODS[name].label} {value:.1e}" for name, value in others.items())
        parts.append(Part(theirs < min(others.values()), f"{title(records)}: QR {theirs:.1e}, {text}"))
    return LOWEST.judge_all(parts, "needs runs of riemannian-qr and of landing or a penalty")


def weak(rows: list[Any]) -> Verdict:
    """Accuracies that overlap with those of QR's seeds, or are above them; sum of N at least ten times landing's."""
    parts = []
    for records in most_telling(rows):
        if absent(records, "landing", "riemannian-qr", "penalty-1"):
            continue
        ours, theirs = (ends(records, name, "accuracy") for name in ("penalty-1", "riemannian-qr"))
        far, near = (float(ends(records, name, "penalty").median()) for name in ("penalty-1", "landing"))
        text = f"{title(records)}: accuracy {ours.min():.4f} to {ours.max():.4f} against {theirs.min():.4f} to "
        text += f"{theirs.max():.4f}, sum of N {far:.1e} against {near:.1e}"
        holds = float(ours.max()) >= float(theirs.min()) and far >= POOR * near
        parts.append(told(records, ("penalty-1", "riemannian-qr", "landing"), holds, text))
    return WEAK.judge_all(parts, "needs runs of landing, riemannian-qr and penalty-1")


def strong(rows: list[Any]) -> Verdict:
    """Accuracy well below that of QR."""
    parts = []
    for records in most_telling(rows):
        if absent(records, "landing", "riemannian-qr", "penalty-1000"):
            continue
        accuracy, theirs = (
            float(ends(records, name, "accuracy").median()) for name in ("penalty-1000", "riemannian-qr")
        )
        near, ours = (float(ends(records, name, "penalty").median()) for name in ("penalty-1000", "landing"))
        text = f"{title(records)}: accuracy {accuracy:.4f} against {theirs:.4f}, N {near:.1e}, landing {ours:.1e}"
        holds = accuracy <= theirs - POOR_ACCURACY and near <= POOR * ours
        parts.append(told(records, ("penalty-1000", "riemannian-qr", "landing"), holds, text))
    return STRONG.judge_all(parts, "needs runs of landing, riemannian-qr and penalty-1000")


def slow(rows: list[Any]) -> Verdict:
    """Seconds per epoch against landing's."""
    parts = []
    for records in rows:
        if absent(records, "landing", "trivialization"):
            continue
        ratio = seconds_per_epoch(records, "trivialization") / seconds_per_epoch(records, "landing")
        if math.isfinite(ratio):
            parts.append(Part(ratio >= MANY, f"{title(records)}: {ratio:.3g} times as long per epoch as landing"))
    return SLOW.judge_all(parts, "needs runs of landing and trivialization")
