"""Every optimizer ends at the solution, with momentum too: safe is not enough.

At a constrained solution the Euclidean gradient is normal and does not vanish. A momentum buffer that summed it would
hold ten times a large normal matrix, whose tangent part at the next X is amplified noise: such an optimizer stays in
the safe region and ends at wrong points. So buffers lose their normal part in every step, and these runs end at
rounding.
"""

from functools import partial

import pytest
import torch
from combinations import covering
from contract.factories import attached, seeded

import glideslope as gs

RATES = (0.01, 0.03, 0.1)
METRICS = ("canonical", "euclidean")
NORMAL_STEPS = ("landing", "newton-schulz", "polar")
MOMENTUM = {"heavy ball": {"momentum": 0.9}, "nesterov": {"momentum": 0.9, "nesterov": True}}
SGD = {
    f"LandingSGD {metric} {normal_step} {name}": partial(
        gs.LandingSGD, metric=metric, normal_step=normal_step, **options
    )
    for metric in METRICS
    for normal_step in NORMAL_STEPS
    for name, options in MOMENTUM.items()
}
SGD |= {
    f"RiemannianSGD {metric} {name}": partial(gs.RiemannianSGD, metric=metric, **options)
    for metric in METRICS
    for name, options in MOMENTUM.items()
}
SGD |= {
    f"RiemannianSGD {retraction}": partial(gs.RiemannianSGD, momentum=0.9, retraction=retraction)
    for retraction in ("polar", "cayley", "exponential")
}
SGD |= {f"attached SGD {name}": attached(torch.optim.SGD, **options) for name, options in MOMENTUM.items()}
SGD |= {"LandingSGD dampening": partial(gs.LandingSGD, momentum=0.9, dampening=0.2)}
ADAM = {
    f"LandingAdam {metric} {normal_step}": partial(gs.LandingAdam, metric=metric, normal_step=normal_step)
    for metric in METRICS
    for normal_step in NORMAL_STEPS
}


class Quadratics:
    """½ tr(X^H A X W) - tr(B^H X) with known minima: smallest and largest eigenvalues, Brockett, Procrustes."""

    def __init__(self, n, p):
        A, W = torch.diag(torch.linspace(1, 3, n)).double(), torch.diag(torch.linspace(1, 2, p)).double()
        values, weights, identity = A.diagonal(), W.diagonal(), torch.eye(p, dtype=A.dtype)
        target = torch.randn(n, p, dtype=A.dtype, generator=seeded(3))
        self.A = torch.stack([A, -A, A, torch.zeros_like(A)])
        self.W = torch.stack([identity, identity, W, identity])
        self.B = torch.stack([torch.zeros(n, p, dtype=A.dtype)] * 3 + [target])
        smallest, largest = values[:p], values[-p:]
        self.minima = torch.stack(
            [
                smallest.sum() / 2,
                -largest.sum() / 2,
                (smallest.flip(0) * weights).sum() / 2,
                -torch.linalg.svdvals(target).sum(),
            ]
        )
        self.start = gs.random_stiefel(n, p, batch=(4,), dtype=A.dtype, generator=seeded(5))

    def gradient(self, X):
        return self.A @ X @ self.W - self.B

    def gap(self, X):
        return (X * (self.A @ X @ self.W / 2 - self.B)).sum(dim=(-2, -1)) - self.minima


class SquareProblems:
    """Square matrices: Procrustes in the component of its solution, and the paper's ICA of Laplace sources."""

    def __init__(self, n=4, samples=400):
        U, _, V = torch.linalg.svd(torch.randn(n, n, dtype=torch.float64, generator=seeded(6)))
        turn = torch.linalg.matrix_exp(torch.triu(torch.ones(n, n), 1).double() * 0.3)
        self.target = U @ torch.diag(torch.linspace(0.5, 1.5, n)).double() @ V
        uniform = torch.rand(samples, n, dtype=torch.float64, generator=seeded(7)) - 0.5
        sources = -torch.sign(uniform) * torch.log1p(-2 * uniform.abs())
        self.data = torch.linalg.qr(sources).Q * samples**0.5
        self.start = torch.stack(
            [U @ V @ torch.linalg.qr(turn).Q, gs.random_stiefel(n, n, generator=seeded(8)).double()]
        )
        self.start = gs.project(self.start)

    def gradient(self, X):
        ica = self.data.T @ torch.tanh(self.data @ X[1]) / len(self.data)
        return torch.stack([-self.target, ica])

    def gap(self, X):
        """Of Procrustes its value; of ICA the squared Riemannian gradient, which bounds the gap of a local minimum."""
        procrustes = torch.linalg.svdvals(self.target).sum() - (X[0] * self.target).sum()
        stationary = gs.formulas.riemannian_gradient(X[1], self.gradient(X)[1]).square().sum()
        return torch.stack([procrustes, stationary])


def end_of(make, problem, steps, gamma=1.0):
    """Gaps and distances after a number of steps with every learning rate, one parameter each."""
    params = [torch.nn.Parameter(problem.start.clone()) for _ in RATES]
    optimizer = make([{"params": [X]} for X in params])
    for group, rate in zip(optimizer.param_groups, RATES * 2, strict=False):
        group["lr"] = rate
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma)
    for _ in range(steps):
        for X in params:
            X.grad = problem.gradient(X.detach())
        optimizer.step()
        schedule.step()
    points = [X.detach() for X in params]
    return torch.stack([problem.gap(X).abs() for X in points]), torch.stack([gs.formulas.distance(X) for X in points])


def assert_solved(gaps, distances):
    assert gaps.max() < 1e-8, gaps
    assert distances.max() < 1e-8, distances


# Every pair of options; the whole product is in the slow test below.
TALL = [f"LandingSGD {' '.join(options)}" for options in covering(METRICS, NORMAL_STEPS, list(MOMENTUM))]
TALL += ["RiemannianSGD canonical nesterov", "RiemannianSGD euclidean heavy ball"]
TALL += [f"RiemannianSGD {retraction}" for retraction in ("polar", "cayley", "exponential")]
TALL += ["attached SGD heavy ball", "attached SGD nesterov", "LandingSGD dampening"]
SQUARE = ["LandingSGD canonical landing heavy ball", "LandingSGD euclidean landing nesterov"]
SQUARE += ["RiemannianSGD canonical heavy ball", "attached SGD nesterov"]
BY_ATTRACTION = ("landing", "dampening")  # the distance shrinks with the rate, and the smallest rate needs more steps


@pytest.mark.parametrize("name", TALL)
def test_momentum_of_tangent_gradients_ends_at_the_solution(name):
    steps = 950 if any(word in name.split() for word in BY_ATTRACTION) else 500
    assert_solved(*end_of(SGD[name], Quadratics(6, 2), steps))


@pytest.mark.parametrize("name", SQUARE)
def test_momentum_of_square_matrices_ends_at_the_solution(name):
    assert_solved(*end_of(SGD[name], SquareProblems(), 1000 if "landing" in name.split() else 750))


@pytest.mark.slow
@pytest.mark.parametrize("problem", [Quadratics(6, 2), SquareProblems()], ids=["tall", "square"])
@pytest.mark.parametrize("make", ADAM.values(), ids=ADAM.keys())
def test_adam_with_a_decaying_rate_ends_at_the_solution(make, problem):
    assert_solved(*end_of(make, problem, 6500, gamma=0.9985))


@pytest.mark.slow
@pytest.mark.parametrize("make", SGD.values(), ids=SGD.keys())
def test_momentum_ends_at_the_solution_of_problems_with_small_gaps(make):
    assert_solved(*end_of(make, Quadratics(20, 5), 10_000))
