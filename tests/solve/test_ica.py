"""Independent components: the adaptive score finds sub- and super-Gaussian sources, under every gradient source."""

import numpy as np
import pytest
import torch
from solve.sums import stiefel

import glideslope as gs
from glideslope.solve.sources import make_source

SAMPLES = 4000


@pytest.fixture(scope="module")
def mixed():
    """Two uniform and two Laplace sources of unit variance behind an orthogonal mixing, whitened."""
    rng = np.random.default_rng(0)
    uniform = rng.uniform(-(3**0.5), 3**0.5, size=(SAMPLES, 2))
    laplace = rng.laplace(scale=0.5**0.5, size=(SAMPLES, 2))
    sources = np.concatenate([uniform, laplace], axis=1)
    sources -= sources.mean(0)
    values, vectors = np.linalg.eigh(sources.T @ sources / SAMPLES)
    white = vectors @ np.diag(values**-0.5) @ vectors.T
    mixing = stiefel(4, 4, seed=9).numpy()
    return sources @ white @ mixing.T, mixing


def crosstalk(found, mixing):
    """0 where every column is one source, whatever its order and sign."""
    return float(np.sort(abs(mixing.T @ found), axis=0)[-2].max())


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, 0.1),
        ({"step_size": 0.3}, 0.1),
        ({"step_size": 1.0, "gradient": "minibatch", "max_epochs": 60, "schedule": "1/sqrt"}, 0.1),
        ({"step_size": 0.3, "gradient": "saga", "max_epochs": 100}, 0.05),
        ({"step_size": 0.3, "gradient": "svrg", "max_epochs": 100}, 0.05),
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_adaptive_score_finds_both_kinds_of_sources(mixed, options, limit, seed):
    data, mixing = mixed
    problem = gs.problems.ICA(data, score="adaptive")
    solution = gs.minimize(problem, seed=seed, **options)
    assert isinstance(solution.X, np.ndarray)
    assert crosstalk(solution.X, mixing) < limit
    assert sorted(problem.signs.tolist()) == [-1, -1, 1, 1]


def test_logcosh_alone_does_not_find_them(mixed):
    """Log cosh is smallest along Gaussian-like mixtures of the two uniform sources."""
    data, mixing = mixed
    solution = gs.minimize(gs.problems.ICA(data))
    assert solution.converged
    assert crosstalk(solution.X, mixing) > 0.4


def test_the_signs_follow_the_point_and_change_value_and_gradient(mixed):
    data, mixing = mixed
    problem = gs.problems.ICA(data, score="adaptive")
    X = torch.from_numpy(mixing)
    plain = gs.problems.ICA(data).gradient(X)
    assert problem.refresh(X)
    assert problem.signs.tolist() == [-1, -1, 1, 1]
    assert not problem.refresh(X)
    torch.testing.assert_close(problem.gradient(X), plain * torch.tensor([-1.0, -1, 1, 1], dtype=torch.float64))
    assert problem.refresh(X[:, [2, 0, 3, 1]])
    assert problem.signs.tolist() == [1, -1, 1, -1]


@pytest.mark.parametrize("kind", ["saga", "svrg"])
def test_variance_reduction_has_no_bias_after_the_signs_changed(mixed, kind):
    data, mixing = mixed
    problem = gs.problems.ICA(data[:90], score="adaptive")
    source = make_source(kind, problem, batch_size=20, sampling="iid", seed=0)
    X = torch.from_numpy(mixing.copy())
    problem.refresh(X)
    source.start(X)
    problem.signs = -problem.signs
    source.renew(X)
    Z = stiefel(4, 4, seed=3)
    if kind == "saga":
        memory, mean = source.memory.clone(), source.mean.clone()
    total = 0
    for slot in range(source.n_slots):
        if kind == "saga":
            source.memory, source.mean = memory.clone(), mean.clone()
        source.generator.manual_seed(next(s for s in range(99) if first_number(s) > 0.5))  # no new anchor
        source._drawn = torch.tensor([slot])
        total = total + source.gradient(Z)
    torch.testing.assert_close(total / source.n_slots, problem.gradient(Z))


def first_number(seed):
    return float(torch.rand((), generator=torch.Generator().manual_seed(seed)))


def test_the_best_point_is_not_compared_with_values_of_other_signs(mixed):
    """All signs -1 give values far below those of the right signs: a point met then must not be called the best."""
    data, mixing = mixed
    problem = gs.problems.ICA(data, score="adaptive")
    uniform = torch.from_numpy(mixing[:, [0, 1]])
    X0 = torch.cat([uniform, torch.from_numpy(mixing[:, [2, 3]])], dim=1)

    steps = []
    original = problem.refresh

    def refresh(X):
        changed = original(X)
        if not steps:
            problem.signs = -torch.ones_like(problem.signs)
        steps.append(1)
        return changed or len(steps) == 2

    problem.refresh = refresh
    solution = gs.minimize(problem, X0, step_size=1e-3, max_epochs=5, tolerance=0)
    assert solution.history.value[0] < solution.history.value[1] - 0.1
    assert solution.value == solution.history.value[1:].min()
