"""Orthogonal Procrustes, min ½‖AX - B‖² over orthonormal X: landing against a QR retraction.

B = A X* for a random orthonormal X*, so the optimal value is zero. Both methods have the same start, the same
gradient and the same step length; the clock runs for gradients and steps only, not for the evaluations.
"""

import argparse
import time
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from rich.console import Console
from rich.progress import track

import glideslope as gs

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--output", type=Path, default="output/procrustes.png", help="where the picture goes")
output = parser.parse_args().output

ROWS, N, P, STEPS, STEP_SIZE = 100, 2000, 100, 300, 0.1
generator = torch.Generator().manual_seed(0)
A, *points = torch.randn(ROWS + 2 * P, N, generator=generator, dtype=torch.float64).split([ROWS, P, P])
A *= torch.linspace(0.3, 1, ROWS)[:, None]
A /= torch.linalg.matrix_norm(A, ord=2) * STEP_SIZE**0.5  # now ‖A‖² = 1 / STEP_SIZE
optimum, start = (torch.linalg.qr(point.mT).Q for point in points)
B = A @ optimum


def landing(X, G):
    return gs.landing_step(X, G, step_size=STEP_SIZE, metric="euclidean")


def qr_retraction(X, G):
    C = X.mT @ G  # on the manifold the gradient of the Euclidean metric is G - X sym(C)
    return gs.formulas.retract(X, X @ ((C + C.mT) * (STEP_SIZE / 2)) - STEP_SIZE * G, kind="qr")


figure, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
table = f"{'method':<15}{'seconds':>9}{'gap f - f*':>13}{'distance':>11}\n"
for name, step, colour in (("landing", landing, "#0072b2"), ("QR retraction", qr_retraction, "#d55e00")):
    X, clock, history = start, 0.0, []
    for _ in track(range(STEPS), description=f"{name:<15}", console=Console(stderr=True)):
        begin = time.perf_counter()
        X = step(X, A.mT @ (A @ X - B))
        clock += time.perf_counter() - begin
        history.append((clock, (A @ X - B).square().sum().item() / 2, gs.formulas.distance(X).item()))
    table += "{:<15}{:>9.2f}{:>13.1e}{:>11.1e}\n".format(name, *history[-1])
    seconds, *curves = zip(*history, strict=True)
    for panel, curve, label in zip(panels, curves, ("gap f(X) - f*", "distance ‖XᵀX - I‖"), strict=True):
        panel.semilogy(seconds, curve, color=colour, label=name, linewidth=2)
        panel.set(xlabel="seconds (gradients and steps)", ylabel=label)

panels[0].legend(frameon=False)
output.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(output, dpi=110)
print(f"{table}The picture is in {output}")
