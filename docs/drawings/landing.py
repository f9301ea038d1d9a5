"""Draws docs/images/landing-{light,dark}.svg: landing steps on the unit circle, computed by `gs.landing_step`.

Run from the root of the repository: `python docs/drawings/landing.py`. The circle is the set of 2 x 1 matrices with
X'X = 1, the band around it the safe region. Each step is drawn as its two parts: along the tangent, and the pull.
"""

import math
from pathlib import Path

import torch

import glideslope as gs

IMAGES = Path(__file__).parents[1] / "images"
WIDTH, HEIGHT, UNIT, CENTRE = 760, 430, 300, (380, 450)
STEP, SAFE_RADIUS, SECONDS = 0.42, 0.5, 1.1
OPTIONS = {"attraction": 0.6, "safe_radius": SAFE_RADIUS, "metric": "euclidean"}
COLOURS = {
    "light": {"ink": "#263238", "band": "#c5cae9", "edge": "#7986cb", "tangent": "#d84315", "pull": "#2e7d32"},
    "dark": {"ink": "#eceff1", "band": "#303a6b", "edge": "#7986cb", "tangent": "#ff8a65", "pull": "#81c784"},
}
Point = tuple[float, float]


def unit_vector(degrees: float) -> torch.Tensor:
    """A point of the circle, as a 2 x 1 matrix."""
    angle = math.radians(degrees)
    return torch.tensor([[math.cos(angle)], [math.sin(angle)]], dtype=torch.float64)


def steps() -> list[tuple[Point, Point, Point]]:
    """Where each step starts, where its tangent part leads, and where it ends."""
    X, target = unit_vector(152), unit_vector(38)
    taken = []
    for _ in range(9):
        T = gs.formulas.riemannian_gradient(X, -target, metric="euclidean")
        moved = gs.landing_step(X, -target, step_size=STEP, **OPTIONS)
        taken.append(tuple(on_page(P) for P in (X, X - STEP * T, moved)))
        X = moved
    return taken


def on_page(X: torch.Tensor) -> Point:
    """Where a matrix is drawn."""
    return round(CENTRE[0] + UNIT * float(X[0]), 1), round(CENTRE[1] - UNIT * float(X[1]), 1)


def arc(radius: float, start: float, end: float) -> str:
    """The path of an arc, from one angle to another in degrees."""
    (x0, y0), (x1, y1) = (on_page(radius * unit_vector(degrees)) for degrees in (start, end))
    r = round(UNIT * radius, 1)
    return f"{x0} {y0} A {r} {r} 0 0 {int(start > end)} {x1} {y1}"


def appearing(element: str, at: float, total: float) -> str:
    """An element that is there from one moment of the animation to its end, and always where nothing moves."""
    share = at / total
    keys = f'values="0;0;1;1" keyTimes="0;{share:.3f};{min(1, share + 0.02):.3f};1"'
    return f'<g>{element}<animate attributeName="opacity" dur="{total}s" repeatCount="indefinite" {keys}/></g>'


def drawing(colours: dict[str, str]) -> str:
    """The picture as SVG."""
    outer, inner = math.sqrt(1 + SAFE_RADIUS), math.sqrt(1 - SAFE_RADIUS)
    taken, ink = steps(), colours["ink"]
    total = round((len(taken) + 2) * SECONDS, 2)
    parts = [
        f'<path d="M {arc(outer, 165, 15)} L {arc(inner, 15, 165)} Z" fill="{colours["band"]}" opacity="0.75"/>',
        f'<path d="M {arc(1, 165, 15)}" fill="none" stroke="{colours["edge"]}" stroke-width="3"/>',
    ]
    for number, (start, aside, end) in enumerate(taken):
        arrows = line(start, aside, colours["tangent"], "tangent") + line(aside, end, colours["pull"], "pull")
        dot = f'<circle cx="{end[0]}" cy="{end[1]}" r="4" fill="{ink}"/>'
        parts.append(appearing(arrows + dot, number * SECONDS, total))
    first = taken[0][0]
    parts.append(f'<circle cx="{first[0]}" cy="{first[1]}" r="4" fill="{ink}"/>')
    words = [
        (380, 200, "middle", colours["edge"], "orthonormal matrices"),
        (380, 229, "middle", ink, "safe region: no step leaves it"),
        (10, 26, "start", colours["tangent"], "1  move along the tangent"),
        (10, 56, "start", colours["pull"], "2  be pulled back, by products alone"),
        (60, 345, "start", ink, "start"),
        (736, 300, "end", ink, "solution"),
    ]
    parts += [
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}">{text}</text>'
        for x, y, anchor, colour, text in words
    ]
    heads = "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="3.6" markerHeight="3.6" orient="auto">'
        f'<path d="M 0 0 L 8 4 L 0 8 z" fill="{colours[name]}"/></marker>'
        for name in ("tangent", "pull")
    )
    title = "<title>Landing steps leave the manifold a little, stay in the safe region, and land</title>"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif"'
    return f'{head} font-size="24">{title}<defs>{heads}</defs>\n' + "\n".join(parts) + "\n</svg>\n"


def line(start: Point, end: Point, colour: str, head: str) -> str:
    """An arrow."""
    return (
        f'<line x1="{start[0]}" y1="{start[1]}" x2="{end[0]}" y2="{end[1]}" stroke="{colour}" stroke-width="2.5" '
        f'marker-end="url(#{head})"/>'
    )


if __name__ == "__main__":
    for name, colours in COLOURS.items():
        (IMAGES / f"landing-{name}.svg").write_text(drawing(colours), encoding="utf-8")
