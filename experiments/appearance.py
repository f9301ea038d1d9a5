"""How the compared methods appear: their names in the report, and the colour and line of each in every figure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Method:
    """How a method is drawn."""

    label: str
    colour: str
    line: str = "-"


# Name of the solver in its benchmark, or of a control, -> how it is drawn. Landing is blue to green, Riemannian red to
# yellow, the penalty violet, what a user would pick instead grey or brown.
METHODS: dict[str, Method] = {
    "landing": Method("landing", "#0b5fa5"),
    "landing-defaults": Method("landing, library's defaults", "#12a5a5"),
    "landing-10": Method("landing, λ = 10", "#0b5fa5", "--"),
    "landing-euclidean": Method("landing, Euclidean metric", "#3fa7d6"),
    "landing-two-step": Method("landing, two-step", "#18a558"),
    "landing-gd": Method("landing GD", "#8fb8de"),
    "landing-sgd": Method("landing SGD", "#0b5fa5"),
    "landing-saga": Method("landing SAGA", "#18a558"),
    "landing-svrg": Method("landing SVRG", "#7bc950"),
    "riemannian-qr": Method("Riemannian, QR", "#d1495b"),
    "riemannian-polar": Method("Riemannian, polar", "#e8833a"),
    "riemannian-cayley": Method("Riemannian, Cayley", "#e3b23c"),
    "riemannian-exponential": Method("Riemannian, exponential", "#9c2c3c", ":"),
    "riemannian-gd-qr": Method("Riemannian GD, QR", "#e99aa5"),
    "riemannian-gd-exponential": Method("Riemannian GD, exponential", "#e99aa5", ":"),
    "riemannian-sgd-qr": Method("Riemannian SGD, QR", "#d1495b"),
    "riemannian-sgd-exponential": Method("Riemannian SGD, exponential", "#9c2c3c", ":"),
    "riemannian-qr-longer": Method("Riemannian, QR, step size 0.3", "#d1495b", ":"),
    "geoopt-qr": Method("geoopt, QR", "#6b4f3a", "--"),
    "penalty-1": Method("penalty, λ = 1", "#b07cc6"),
    "penalty-100": Method("penalty, λ = 10²", "#b07cc6"),
    "penalty-1000": Method("penalty, λ = 10³", "#6d3b8e"),
    "penalty-10000": Method("penalty, λ = 10⁴", "#6d3b8e"),
    "picard-o": Method("Picard-O", "#555555"),
    "fastica": Method("FastICA", "#a9a9a9"),
    "trivialization": Method("trivialization (GeoTorch)", "#6b4f3a"),
    "unconstrained": Method("unconstrained SGD", "#999999", "--"),
}


def in_order(names: set[str]) -> list[str]:
    """Methods in the order of the table; unknown ones are an error."""
    unknown = sorted(names - set(METHODS))
    if unknown:
        raise ValueError(f"methods without a colour: {', '.join(unknown)}; add them to METHODS")
    return [name for name in METHODS if name in names]
