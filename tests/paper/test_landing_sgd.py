"""Section 3.2 of the paper: landing SGD (20), its expected decrease, and its rates with the propositions' steps."""

import math

import numpy as np
import pytest
import torch
from literal import landing_field, point_at_distance

import glideslope as gs
from glideslope.engine.gradient import dense
from glideslope.formulas.merit import merit
from glideslope.formulas.penalty import penalty
from glideslope.theory import Theory


def small_problem(name, generator):
    A = torch.randn(12, 6, dtype=torch.float64, generator=generator)
    if name == "pca":
        return gs.problems.PCA(A, 2)
    if name == "ica":
        return gs.problems.ICA(A, 2)
    return gs.problems.Procrustes(A, torch.randn(12, 2, dtype=torch.float64, generator=generator))


@pytest.mark.parametrize("name", ["pca", "ica", "procrustes"])
def test_assumption_the_landing_field_is_the_mean_of_the_terms_fields(name, generator):
    problem = small_problem(name, generator)
    X = point_at_distance(6, 2, 0.3, generator=generator)
    fields = [landing_field(X, dense(problem.batch_gradient(X, torch.tensor([i]))), 1.0) for i in range(12)]
    torch.testing.assert_close(sum(fields) / 12, landing_field(X, problem.gradient(X), 1.0))


@pytest.mark.parametrize("share", [1.0, 0.3])
@pytest.mark.parametrize("name", ["pca", "ica", "procrustes"])
def test_proposition_landing_sgd_decreases_the_merit_function_in_expectation(name, share, generator):
    """E[L(X_{k+1})] <= L(X_k) - η/4 ‖grad f‖² - ην/2 N + L_g B η²/2, the expectation by enumeration."""
    problem = small_problem(name, generator)
    theory = Theory(constants=problem.constants(0.5, each_term=True))
    step = share * theory.gradient_descent_step

    def merit_at(X):
        value, G = problem.value_and_gradient(X)
        return merit(X, value, G, mu=theory.mu)

    for far in (0.0, 0.2, 0.5):
        X = point_at_distance(6, 2, far, generator=generator)
        gradients = [dense(problem.batch_gradient(X, torch.tensor([i]))) for i in range(12)]
        fields = torch.stack([landing_field(X, G, 1.0) for G in gradients])
        variance = (fields - fields.mean(0)).square().sum(dim=(-2, -1)).mean()
        expected = torch.stack([merit_at(X - step * F) for F in fields]).mean()
        slope = gs.formulas.riemannian_gradient(X, problem.gradient(X))
        decrease = step / 4 * slope.square().sum() + step * theory.nu / 2 * penalty(X)
        bound = merit_at(X) - decrease + theory.merit_smoothness * variance * step**2 / 2
        assert expected <= bound
        assert expected - merit_at(X) < 0 or variance > 0


def squared_gradients(problem, schedule, steps, seeds):
    """Means over seeds and over the steps, weighted by the step sizes, of the squared gradient norm."""
    means = []
    for seed in range(seeds):
        history = gs.minimize(
            problem,
            gradient="minibatch",
            batch_size=1,
            step_size=0.3,
            schedule=schedule,
            max_epochs=steps / problem.n_terms,
            tolerance=0,
            record_every=max(1, steps // 64),
            seed=seed,
        ).history
        weights = history.step_size[1:]
        means.append((weights * history.gradient_norm[1:] ** 2).sum() / weights.sum())
    return float(np.mean(means))


@pytest.mark.parametrize("schedule", ["1/sqrt", "1/sqrt(K)"])
def test_propositions_landing_sgd_converges_like_one_over_the_root_of_k(schedule, generator):
    """With η_0/√(1+k) up to a logarithm, with η_0/√(1+K) without one; a constant step does not converge."""
    A = torch.randn(64, 5, dtype=torch.float64, generator=generator) * torch.linspace(1.5, 0.5, 5)
    problem = gs.problems.PCA(A, 2)
    steps = [2**k for k in (8, 10, 12)]
    means = [squared_gradients(problem, schedule, K, seeds=3) for K in steps]
    slope = np.polyfit(np.log(steps), np.log(means), 1)[0]
    assert slope < -0.35
    stuck = squared_gradients(problem, "constant", steps[-1], seeds=1)
    assert stuck > 5 * means[-1]


def test_the_schedules_are_those_of_the_propositions(generator):
    problem = small_problem("pca", generator)
    theory = Theory(constants=problem.constants(0.5, each_term=True))
    run = {
        "gradient": "minibatch",
        "batch_size": 3,
        **gs.PAPER_OPTIONS,
        "step_size": "theory",
        "max_epochs": 2,
        "record_every": 1,
        "tolerance": 0,
    }
    decreasing = gs.minimize(problem, **run).history.step_size[:-1]
    np.testing.assert_allclose(decreasing, [theory.decreasing_step(k) for k in range(len(decreasing))])
    fixed = gs.minimize(problem, schedule="1/sqrt(K)", **run).history.step_size[:-1]
    np.testing.assert_allclose(fixed, theory.gradient_descent_step / math.sqrt(1 + 8))
