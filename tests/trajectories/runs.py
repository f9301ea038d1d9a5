"""Deterministic runs of everything public: optimizers, `landing_step`, SAGA and SVRG, `minimize`, both estimators.

Each run takes `Inputs` and returns its final tensors and its counters, both by name.
"""

import warnings
from functools import partial

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

import glideslope as gs

landing_step = getattr(gs, "landing_step", None) or gs.formulas.landing_step


class Inputs:
    """Random numbers from one seed; with a nudge, each is off by about that many units of rounding."""

    def __init__(self, dtype=torch.float64, nudge=0.0):
        self.dtype, self.nudge = dtype, nudge
        self.wide = torch.complex128 if dtype.is_complex else torch.float64
        self.eps = torch.finfo(torch.float32 if dtype == torch.bfloat16 else dtype).eps
        self.generator, self.noise = (torch.Generator().manual_seed(seed) for seed in (20240517, 1))

    def draw(self, *shape):
        return self._rounded(torch.randn(*shape, generator=self.generator, dtype=self.wide))

    def start(self, *shape):
        """Orthonormal columns, or rows where they are fewer."""
        drawn = torch.randn(*shape, generator=self.generator, dtype=self.wide)
        wide = shape[-2] < shape[-1]
        Q = torch.linalg.qr(drawn.mH if wide else drawn).Q
        return self._rounded(Q.mH if wide else Q)

    def spread(self, N, n):
        """Samples whose deviations fall from 2 to 1/2, so that their components are well separated."""
        return self.draw(N, n) * torch.logspace(0.3, -0.3, n, dtype=torch.float64).to(self.dtype)

    def mixed(self, N, n, strength=1.0):
        """Mixtures of super- and sub-Gaussian sources in turn, almost Gaussian for a small strength."""
        drawn = self.draw(N, n)
        above, below = drawn.sgn() * drawn.abs() ** (1 + strength), torch.tanh(3 * strength * drawn)
        return torch.where(torch.arange(n) % 2 == 0, above, below) @ self.draw(n, n) + 1

    def number(self, value):
        """A step size; nudged in bfloat16, where nudged matrices are rounded to what they were."""
        return value * (1 + self.nudge * self.eps) if self.dtype == torch.bfloat16 else value

    def _rounded(self, values):
        noise = torch.randn(values.shape, generator=self.noise, dtype=torch.float64)
        return (values * (1 + self.nudge * self.eps * noise)).to(self.dtype).contiguous()


# Optimizers: all shapes at once

SHAPES = {"tall": (9, 3), "square": (5, 5), "wide": (3, 7), "batch": (3, 6, 2), "one": (1, 1), "conv": (4, 12)}
STARTS = {
    "on": lambda X, noise: X,
    "inside": lambda X, noise: X + 0.03 * noise,
    "outside": lambda X, noise: X + 0.5 * noise,
    "far": lambda X, noise: 100 * noise,
}
GRADIENTS = {
    "usual": lambda X, weight, noise: weight * X + noise,
    "huge": lambda X, weight, noise: 1e20 * (weight * X + noise),
    "almost normal": lambda X, weight, noise: 1e3 * normal(X, weight) + noise,
    "huge, almost normal": lambda X, weight, noise: 1e17 * (1e3 * normal(X, weight) + noise),
}


def normal(X, weight):
    """X S with a symmetric S, which is normal to the manifold at X; S X for a wide X."""
    return weight @ weight.mH @ X if X.shape[-2] < X.shape[-1] else X @ (weight.mH @ weight)


def train(inputs, make, *, lr=0.05, steps=30, start="on", gradients="usual", nan_at=None, shapes=SHAPES):
    """Matrices and counters of an optimizer; starts are written after construction, which would refuse some."""
    shapes = {name: [shape] for name, shape in shapes.items()} | {"many small": 5 * [(3, 3)]}
    params = {name: [torch.nn.Parameter(inputs.start(*shape)) for shape in shapes[name]] for name in shapes}
    kernels = [torch.nn.Parameter(X.detach().reshape(4, 3, 2, 2)) for X in params.pop("conv", [])]
    matrices = [X for together in params.values() for X in together]
    groups = [{"params": matrices}] + [{"params": kernels, "view": "conv"}] * bool(kernels)
    optimizer = make(groups, lr=inputs.number(lr))
    everything = [*matrices, *kernels]
    views = [X.data.flatten(1) if X.ndim == 4 else X.data for X in everything]
    weights = [inputs.draw(*X.shape) for X in views]
    for X in views:
        X.copy_(STARTS[start](X, inputs.draw(*X.shape)))
    for k in range(steps):
        for i, (X, weight) in enumerate(zip(views, weights, strict=True)):
            gradient = GRADIENTS[gradients](X, weight, inputs.draw(*X.shape))
            if k == nan_at and i % 2 == 0:
                gradient[..., -1, 0] = float("nan")
            everything[i].grad = gradient.reshape(everything[i].shape)
        optimizer.step()
    rows = getattr(optimizer, "landing", optimizer).diagnostics()
    counters = {name: [n for row in rows for n in getattr(row, name)] for name in ("shortened", "recovered", "skipped")}
    params |= {"conv": kernels} if kernels else {}
    return {name: torch.stack(list(together)) for name, together in params.items()}, counters


def rule(normal_step="landing", safeguard="lemma", metric="canonical", attraction=1.0):
    return {
        "normal_step": normal_step,
        "safeguard": safeguard,
        "metric": metric,
        "attraction": attraction,
        "safe_radius": 0.5,
    }


def attached(host, **options):
    """A torch optimizer with attach_landing."""

    def make(groups, lr):
        params = [X for group in groups for X in group["params"]]
        return gs.attach_landing(host(params, lr=lr), groups, **options)

    return make


def with_free(groups, lr):
    """LandingSGD of all but the first matrix, which is a free parameter."""
    free, *matrices = groups[0]["params"]
    groups = [{"params": matrices}, *groups[1:], {"params": [free], "orthogonal": False, "weight_decay": 0.1}]
    return gs.LandingSGD(groups, lr=lr, momentum=0.9, **rule())


def steps_of_formula(inputs, steps=20, **options):
    """`landing_step` as a function, of a batch with a step size for each matrix."""
    X, sizes = inputs.start(2, 3, 7, 3), torch.tensor([0.02, 0.1, 0.5], dtype=inputs.draw(1).real.dtype)
    for _ in range(steps):
        X = landing_step(X, inputs.draw(2, 3, 7, 3), step_size=sizes, **options)
    return {"X": X}, {}


def variance_reduced(inputs, kind, steps=40, slots=(3, 1, 2, 4)):
    """LandingSGD along the corrected gradients of a matrix and a free vector."""
    X, b = torch.nn.Parameter(inputs.start(6, 3)), torch.nn.Parameter(inputs.draw(3))
    data = [(inputs.draw(size, 6), inputs.draw(size, 3)) for size in slots]
    optimizer = gs.LandingSGD([{"params": [X]}, {"params": [b], "orthogonal": False}], lr=0.02, momentum=0.5, **rule())

    def backward(slot):
        A, B = data[slot]
        ((A @ X + b - B).abs() ** 2).sum(1).mean().backward()

    def full():
        total = sum(((A @ X + b - B).abs() ** 2).sum() for A, B in data)
        (total / sum(slots)).backward()

    reduced = gs.SAGA([X, b], len(slots), sizes=slots) if kind == "SAGA" else gs.SVRG([X, b])
    for k in range(steps):
        slot = (3 * k + k // 4) % len(slots)
        if kind == "SVRG" and k % 10 == 0:
            reduced.anchor_(full)
        optimizer.zero_grad()
        backward(slot)
        reduced.correct_(slot) if kind == "SAGA" else reduced.correct_(partial(backward, slot))
        optimizer.step()
    return {"X": X, "b": b}, {}


# minimize


def pca(inputs, N=60, n=8, p=3):
    return gs.problems.PCA(inputs.spread(N, n), p)


def ica(inputs, score):
    data = inputs.mixed(80, 4)
    values, vectors = torch.linalg.eigh(torch.cov(data.mT))
    return gs.problems.ICA((data - data.mean(0)) @ (vectors / values.sqrt()), 4, score=score)


def procrustes(inputs):
    return gs.problems.Procrustes(inputs.draw(60, 8), inputs.draw(60, 3))


def finite_sum(inputs):
    A, B = inputs.draw(30, 8), inputs.draw(30, 3)
    mean = lambda X, index: ((A[index] @ X - B[index]).abs() ** 4).sum() / len(index)  # noqa: E731
    return gs.problems.FiniteSum(mean, 30, shape=(8, 3), dtype=A.dtype)


def function(inputs):
    M = inputs.draw(8, 3)
    return lambda X: ((X - M).abs() ** 4).sum()


def solve(inputs, problem, *, numpy=False, **options):
    problem = problem(inputs)
    X0 = inputs.start(*(getattr(problem, "shape", None) or (8, 3)))
    found = gs.minimize(problem, X0.numpy() if numpy else X0, **{"tolerance": 0, "max_epochs": 12, **options})
    counters = {name: getattr(found, name) for name in ("n_steps", "n_gradients", "n_shortened", "stop_reason")}
    return {"X": found.X, "value": [found.value]}, {**counters, "records": len(found.history)}


# Estimators


def components(inputs, estimator, samples, *, batches=0, names=("components_", "mean_"), **options):
    """Attributes of an estimator after `fit`, or after `partial_fit` of a number of batches."""
    learner = getattr(gs.estimators, estimator)(random_state=0, **options)
    data = samples(inputs).numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # some runs are to end early
        for batch in np.split(data, batches) if batches else ():
            learner.partial_fit(batch)
        if not batches:
            learner.fit(data)
    counters = {name: getattr(learner, name) for name in ("n_iter_", "n_samples_seen_")}
    return {name.strip("_"): getattr(learner, name) for name in names}, counters
