"""Landing with a tracked residual: the same iterates as the plain step, and the safe region for any step size."""

import torch
from combinations import every_pair
from literal import point_at_distance, random_matrix

import glideslope as gs
from glideslope.engine.gradient import Factored
from glideslope.engine.low_rank import STEPS_BETWEEN_GRAMS, TrackedLanding, pays
from glideslope.engine.production import take_step
from glideslope.engine.rule import StepRule
from glideslope.solve.methods import LandingMethod
from glideslope.stiefel.geometry import Whole

N, P, B = 60, 12, 5


def gradients(X, dtype, generator, size=1.0):
    """The factors of a PCA batch's gradient at X."""
    A = random_matrix(B, N, dtype=dtype, generator=generator) * size
    Y = A @ X
    return Factored(A, -Y / B, Y)


def tracked_run(X, dtype, generator, *, steps, step_size, size=1.0, rule=None):
    tracked, shortened = TrackedLanding(X, rule or StepRule()), 0
    for _ in range(steps):
        moved = tracked.step(X, gradients(X, dtype, generator, size), step_size)
        assert moved is not None
        X, short = moved
        shortened += short
        yield X, shortened


@every_pair(
    dtype=[torch.float64, torch.complex128],
    step_size=[0.01, 1.0],
    rule=[StepRule(), StepRule(metric="euclidean"), StepRule(attraction="auto", metric="euclidean")],
)
def test_tracked_steps_are_plain_steps(dtype, step_size, rule):
    """Over more steps than there are between two Gram matrices; at 0.01 free, at 1 shortened by the safeguard."""
    start = point_at_distance(N, P, 0.2, dtype=dtype, generator=torch.Generator().manual_seed(1))
    plain, generator = start.clone(), torch.Generator().manual_seed(2)
    other = torch.Generator().manual_seed(2)
    steps = 2 * STEPS_BETWEEN_GRAMS + 3
    for X, shortened in tracked_run(start.clone(), dtype, generator, steps=steps, step_size=step_size, rule=rule):
        plain = take_step(plain, gradients(plain, dtype, other), step_size, rule).X
        torch.testing.assert_close(X, plain, rtol=0, atol=1e-10)
        was_shortened = shortened > 0
    assert was_shortened == (step_size == 1.0)


@every_pair(
    size=[1e-3, 1.0, 1e3],
    dtype=[torch.float32, torch.complex64],
    options=[{}, {"metric": "euclidean"}],
)
def test_no_tracked_step_with_lr_1e5_leaves_the_safe_region(dtype, size, options):
    """Where a step cannot be tracked the method takes a plain one."""
    for radius in (0.5, 0.1):
        generator = torch.Generator().manual_seed(3)
        X = point_at_distance(N, P, radius * 0.9, dtype=dtype, generator=generator)
        method, first = LandingMethod(X, StepRule(safe_radius=radius, **options), Whole()), X.clone()
        for _ in range(100):
            X = method.step(X, gradients(X, dtype, generator, size), 1e5)
            assert gs.formulas.distance(X.to(torch.complex128)) <= radius * (1 + 1e-6)
        assert method.shortened == 100
        assert (X - first).abs().max() > 1e-3


def test_the_tracked_residual_is_computed_anew_and_after_a_step_of_another_kind(generator):
    X = point_at_distance(N, P, 0.2, generator=generator)
    tracked = TrackedLanding(X, StepRule())
    for _ in range(3):
        X, _ = tracked.step(X, gradients(X, torch.float64, generator), 0.1)
    torch.testing.assert_close(tracked._Delta, gs.formulas.residual(X), rtol=0, atol=1e-13)
    G = gradients(X, torch.float64, generator)
    assert tracked.step(X, G._replace(W=G.W * float("inf")), 0.1) is None  # the plain step moves X in place then
    X.mul_(1.01)
    X, _ = tracked.step(X, gradients(X, torch.float64, generator), 0.1)
    torch.testing.assert_close(tracked._Delta, gs.formulas.residual(X), rtol=0, atol=1e-13)


def test_the_landing_method_tracks_where_it_pays(generator):
    X = point_at_distance(N, P, 0.2, generator=generator)
    G = gradients(X, torch.float64, generator)
    assert pays(G, X, StepRule())
    assert not pays(G, X, StepRule(safeguard="exact"))
    assert not pays(G, X[:20], StepRule())
    method, plain = LandingMethod(X, StepRule(), Whole()), take_step(X.clone(), G, 0.1, StepRule()).X
    moved = method.step(X, G, 0.1)
    assert moved is not X
    torch.testing.assert_close(moved, plain)


def test_minimize_with_tracked_steps_finds_the_principal_components(generator):
    data = random_matrix(400, N, dtype=torch.float64, generator=generator) * torch.linspace(3, 0.2, N)
    problem = gs.problems.PCA(data, P)
    run = {"gradient": "minibatch", "batch_size": B, "step_size": 0.02, "schedule": "1/sqrt", "max_epochs": 60}
    solution = gs.minimize(problem, **run, tolerance=0)
    best = problem.optimum().value
    assert solution.distance < 0.05
    assert problem.value(gs.project(solution.X)) - best < 0.02 * abs(best)
