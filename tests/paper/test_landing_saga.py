"""Section 3.3 of the paper: landing SAGA, its direction without bias, its variance, and its convergence."""

import pytest
import torch
from literal import landing_field, norm, point_at_distance, skew

import glideslope as gs
from glideslope.engine.gradient import dense
from glideslope.solve.sources import SagaSource


def paper_ica(seed=0, n=10, samples=10_000):
    """Laplace sources, mixed by a random orthogonal matrix; the rows are the samples (section 4.2)."""
    generator = torch.Generator().manual_seed(seed)
    uniform = torch.rand(samples, n, generator=generator, dtype=torch.float64) - 0.5
    sources = -torch.sign(uniform) * torch.log1p(-2 * uniform.abs())
    return sources @ gs.random_stiefel(n, n, generator=generator, dtype=torch.float64).mT


def memory_after_some_steps(problem, generator, *, batch_size):
    """A SAGA source whose memory comes from different iterates, as in the middle of a run."""
    source = SagaSource(problem, batch_size, "iid", seed=0)
    source.start(point_at_distance(*problem.shape, 0.3, generator=generator))
    for _ in range(2 * source.n_slots):
        source.gradient(point_at_distance(*problem.shape, 0.3, generator=generator))
    return source


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("kind", [gs.problems.PCA, gs.problems.ICA])
def test_the_saga_direction_averages_to_the_landing_field(kind, batch_size, generator):
    """By enumeration of the slots, the last of which is smaller for batches of 5."""
    problem = kind(torch.randn(13, 6, dtype=torch.float64, generator=generator), 3)
    source = memory_after_some_steps(problem, generator, batch_size=batch_size)
    X = point_at_distance(6, 3, 0.4, generator=generator)
    memory, mean = source.memory.clone(), source.mean.clone()
    directions = []
    for slot in range(source.n_slots):
        source.memory, source.mean, source._drawn = memory.clone(), mean.clone(), torch.tensor([slot])
        directions.append(landing_field(X, source.gradient(X), 1.0))
    expected = landing_field(X, problem.gradient(X), 1.0)
    torch.testing.assert_close(sum(directions) / len(directions), expected)
    assert max(norm(one - expected) for one in directions) > 1e-2  # the directions themselves are not the field


def test_the_saga_direction_is_the_formula_of_section_3_3(generator):
    """grad f_i - skew(Φ_i Xᵀ)X + mean skew(Φ_j Xᵀ)X + λX(XᵀX - I), with Φ_i the remembered gradients."""
    A = torch.randn(7, 5, dtype=torch.float64, generator=generator)
    problem = gs.problems.ICA(A, 3)
    source = memory_after_some_steps(problem, generator, batch_size=1)
    X = point_at_distance(5, 3, 0.4, generator=generator)
    slots = [int(slot) for slot in source._slots]
    remembered = [torch.outer(A[i], source.memory[i]) for i in range(7)]
    source._drawn = torch.tensor([4])
    i = slots[4]
    tangent = [skew(Phi @ X.mT) @ X for Phi in remembered]
    fresh = skew(dense(problem.batch_gradient(X, torch.tensor([i]))) @ X.mT) @ X
    attraction = X @ (X.mT @ X - torch.eye(3))
    expected = fresh - tangent[i] + sum(tangent) / 7 + attraction
    torch.testing.assert_close(landing_field(X, source.gradient(X), 1.0), expected)
    torch.testing.assert_close(source.memory[i], torch.tanh(A[i] @ X))


def test_the_variance_of_the_saga_direction_is_bounded_by_the_distance_to_the_memory(generator):
    """(21) to (26): E‖Λ_i‖² = ‖Λ‖² + E‖D_i - E D‖² <= ‖Λ‖² + E‖D_i‖², and ‖D_i‖ <= (1+ε) L_f ‖X - X_i‖."""
    problem = gs.problems.ICA(torch.randn(9, 5, dtype=torch.float64, generator=generator), 3)
    smoothness = problem.constants(0.5, each_term=True).smoothness
    X = point_at_distance(5, 3, 0.5, generator=generator)
    places = [point_at_distance(5, 3, 0.5, generator=generator) for _ in range(9)]

    def gradient(i, at):
        return dense(problem.batch_gradient(at, torch.tensor([i])))

    D = torch.stack([skew((gradient(i, X) - gradient(i, places[i])) @ X.mT) @ X for i in range(9)])
    field = landing_field(X, problem.gradient(X), 1.0)
    directions = field + D - D.mean(0)
    second = directions.square().sum(dim=(-2, -1)).mean()
    torch.testing.assert_close(second, norm(field) ** 2 + (D - D.mean(0)).square().sum(dim=(-2, -1)).mean())
    assert second <= norm(field) ** 2 + D.square().sum(dim=(-2, -1)).mean()
    for i in range(9):
        assert norm(D[i]) <= 1.5 * smoothness * norm(X - places[i])


def test_proposition_saga_with_a_constant_step_passes_the_plateau_of_sgd_on_the_papers_ica():
    """n = 10, N = 1e4, batches of 100: gradient norm 1e-10 and distance 1e-12, where SGD stays above 1e-3."""
    problem = gs.problems.ICA(paper_ica())
    run = {"batch_size": 100, "step_size": 0.1, "max_epochs": 100}
    saga = gs.minimize(problem, gradient="saga", tolerance=1e-12, **run)
    assert saga.converged
    assert saga.gradient_norm < 1e-10
    assert saga.distance < 1e-12
    sgd = gs.minimize(problem, gradient="minibatch", tolerance=1e-12, **{**run, "max_epochs": saga.n_passes})
    assert sgd.history.gradient_norm.min() > 1e-3
    assert sgd.history.distance[1:].min() > 1e-6


def test_proposition_saga_converges_with_the_step_of_the_theory(generator):
    """With the step the proposition allows the merit never rises over a pass, however slow that is."""
    problem = gs.problems.PCA(torch.randn(20, 4, dtype=torch.float64, generator=generator) / 4, 2)
    solution = gs.minimize(
        problem,
        gradient="saga",
        batch_size=1,
        step_size="theory",
        max_epochs=300,
        tolerance=0,
        sampling="iid",
        **gs.PAPER_OPTIONS,
    )
    values = solution.history.value
    assert solution.n_shortened == 0
    assert values[-1] < values[0]
    assert solution.history.gradient_norm[-1] < solution.history.gradient_norm[0]
