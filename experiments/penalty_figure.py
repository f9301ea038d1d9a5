"""Figure 2 and the penalty proposition, section 3.4: a small weight is inexact, a large one badly conditioned."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import torch

from glideslope.formulas import penalty, penalty_gradient
from glideslope.solve.problems import LinearProblem

CONTOUR_WEIGHTS = (0.3, 2.0, 20.0)
SINGULAR_VALUES = (0.5, 1.0, 2.0)
PRECISION = 1e-3  # gradient descent runs until the distance to the minimiser has shrunk to this share


def contour_problem() -> LinearProblem:
    """A linear problem in dimensions (n, p) = (2, 1)."""
    return LinearProblem(torch.tensor([[-0.8], [-0.6]], dtype=torch.float64))


def linear_problem(n: int = 6) -> LinearProblem:
    """A linear problem of n x 3 with the singular values above."""
    generator = torch.Generator().manual_seed(0)
    left = torch.linalg.qr(torch.randn(n, 3, generator=generator, dtype=torch.float64)).Q
    right = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64)).Q
    return LinearProblem(left @ torch.diag(torch.tensor(SINGULAR_VALUES, dtype=torch.float64)) @ right.mT)


def measure(weights: tuple[float, ...], seed: int = 0) -> Any:
    """Distance of the penalised minimiser to the solution, conditioning there, and steps of gradient descent, per λ."""
    problem = linear_problem()
    solution = problem.optimum().X
    rows = []
    for weight in weights:
        X = problem.penalty_minimiser(weight)
        values, vectors = hessian(problem, weight, X)
        rows.append(
            {
                "weight": weight,
                "error": float(torch.linalg.vector_norm(X - solution)),
                "conditioning": float(values[-1] / values[0]),
                "steps": steps_of_descent(problem, weight, X, values, vectors),
                "seed": seed,
            }
        )
    return pd.DataFrame(rows).assign(experiment="penalty", study="penalty", title="Penalty", phase="run")


def hessian(problem: LinearProblem, weight: float, X: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Eigenvalues and eigenvectors of the Hessian of f + λ N at X."""

    def penalised(Y: torch.Tensor) -> torch.Tensor:
        return (problem.M * Y).sum() + weight * penalty(Y)

    H = torch.autograd.functional.hessian(penalised, X)  # type: ignore[no-untyped-call]
    values, vectors = torch.linalg.eigh(H.reshape(X.numel(), X.numel()))
    return values, vectors


def steps_of_descent(
    problem: LinearProblem, weight: float, X: torch.Tensor, values: torch.Tensor, vectors: torch.Tensor
) -> int:
    """Gradient steps of 1/λ_max(H) from X + 1e-4 E, E the flattest direction, until the distance has shrunk."""
    start = 1e-4
    Y = X + start * vectors[:, 0].reshape(X.shape)
    step = 1 / float(values[-1])
    for k in range(1_000_000):
        if float(torch.linalg.vector_norm(Y - X)) <= PRECISION * start:
            return k
        Y = Y - step * (problem.M + weight * penalty_gradient(Y))
    return 1_000_000


def slope(table: Any, column: str, largest: int = 4) -> float:
    """Slope of log(column) against log(λ) over the largest λ, where the proposition's limits hold."""
    tail = table.sort_values("weight").tail(largest)
    return float(np.polyfit(np.log(tail["weight"]), np.log(tail[column]), 1)[0])


def draw(table: Any) -> Any:
    """The contours for three λ above, the two claims of the proposition as curves below."""
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(2, 3, figsize=(10, 6.6))
    for axes, weight in zip(grid[0], CONTOUR_WEIGHTS, strict=True):
        draw_contours(axes, weight)
    grid[0][0].legend(loc="lower left", fontsize=8, framealpha=0.9)
    smallest = min(SINGULAR_VALUES)
    curves: tuple[tuple[str, str, Any, str], ...] = (
        ("error", "distance to the solution", lambda w: norm_of_values() / (2 * w), "‖σ‖ / (2λ)"),
        ("conditioning", "conditioning at the minimiser", lambda w: 2 * w / smallest, "2λ / σ₁"),
        (
            "steps",
            f"gradient steps to {PRECISION:g}",
            lambda w: 2 * w / smallest * math.log(1 / PRECISION),
            "2λ / σ₁ · log(1/precision)",
        ),
    )
    for axes, (column, label, reference, formula) in zip(grid[1], curves, strict=True):
        axes.loglog(table["weight"], table[column], "o-", color="#6d3b8e", label="measured")
        axes.loglog(table["weight"], reference(table["weight"]), ":", color="#555555", label=formula)
        axes.set_xlabel("penalty weight λ")
        axes.set_title(label, fontsize=10)
        axes.grid(color="#e3e3e3", lw=0.6)
        axes.legend(fontsize=8)
    figure.tight_layout()
    return figure


def norm_of_values() -> float:
    """‖σ‖: the minimiser's singular values are 1 + σ/(2λ) to first order."""
    return math.sqrt(sum(value**2 for value in SINGULAR_VALUES))


def draw_contours(axes: Any, weight: float) -> None:
    """Contours of f + λ N in the plane, the circle of orthonormal X, both minimisers."""
    problem = contour_problem()
    side = np.linspace(-1.8, 1.8, 241)
    first, second = np.meshgrid(side, side)
    m = problem.M.ravel().tolist()
    values = m[0] * first + m[1] * second + weight / 4 * (first**2 + second**2 - 1) ** 2
    levels = values.min() + (values.max() - values.min()) * np.linspace(0, 1, 28) ** 3
    axes.contour(first, second, values, levels=levels, cmap="viridis", linewidths=0.8)
    angle = np.linspace(0, 2 * math.pi, 200)
    axes.plot(np.cos(angle), np.sin(angle), color="#222222", lw=1.2, label="XᵀX = 1")
    star, solution = problem.penalty_minimiser(weight).ravel().tolist(), problem.optimum().X.ravel().tolist()
    axes.plot(*star, "o", color="#6d3b8e", ms=8, label="minimiser of f + λN")
    axes.plot(*solution, "*", color="#d1495b", ms=12, label="constrained solution")
    axes.set_title(f"λ = {weight:g}", fontsize=10)
    axes.set_aspect("equal")
    axes.set_xticks([-1, 0, 1])
    axes.set_yticks([-1, 0, 1])
