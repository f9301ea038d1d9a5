"""A gradient given by its factors steps as the gradient itself does."""

import itertools

import pytest
import torch
from combinations import every_pair
from literal import exact_distance, landing_step, point_at_distance, random_matrix

from glideslope.engine.gradient import Factored
from glideslope.engine.production import take_step
from glideslope.engine.products import Workspace
from glideslope.engine.rule import StepRule

METRICS = ["canonical", "euclidean"]
NORMAL_STEPS = ["landing", "newton-schulz", "polar"]
SAFEGUARDS = ["lemma", "exact", None]
SHAPES = [(12, 5, 3), (6, 6, 4), (9, 1, 1)]  # n, p and the rows of a batch


def factors(n, p, b, dtype, generator, distance=0.2):
    X = point_at_distance(n, p, distance, dtype=dtype, generator=generator)
    A, W = (random_matrix(b, width, dtype=dtype, generator=generator) for width in (n, p))
    return X, Factored(A, W, A @ X)


def test_the_dense_gradient_is_the_conjugate_transpose_of_the_rows_times_the_derivatives(generator):
    _, G = factors(7, 3, 4, torch.complex128, generator)
    torch.testing.assert_close(G.dense(), torch.einsum("bn,bp->np", G.A.conj(), G.W))


@every_pair(dtype=[torch.float64, torch.complex128], safeguard=SAFEGUARDS, normal_step=NORMAL_STEPS, metric=METRICS)
def test_a_factored_step_is_the_step_of_the_dense_gradient(metric, normal_step, safeguard, dtype, generator):
    rule = StepRule(0.8, 0.5, metric, normal_step, safeguard)
    for (n, p, b), step_size in itertools.product(SHAPES, [0.01, 0.3, 10.0]):
        if safeguard is None and step_size == 10.0:
            continue
        X, G = factors(n, p, b, dtype, generator)
        ours, dense = (take_step(X, one, step_size, rule) for one in (G, G.dense()))
        torch.testing.assert_close(ours.X, dense.X, rtol=1e-11, atol=1e-11)
        assert bool(ours.shortened) == bool(dense.shortened)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("metric", METRICS)
def test_a_factored_step_is_the_literal_step_of_the_paper(metric, dtype, generator):
    for step_size in (0.05, 50.0):
        X, G = factors(12, 5, 3, dtype, generator)
        ours = take_step(X, G, step_size, StepRule(attraction=1.0, metric=metric)).X
        torch.testing.assert_close(ours, landing_step(X, G.A.mH @ G.W, step_size, 1.0, 0.5, metric), atol=1e-9, rtol=0)


@every_pair(
    dtype=[torch.float32, torch.float64, torch.complex64],
    safeguard=["lemma", "exact"],
    normal_step=NORMAL_STEPS,
    metric=METRICS,
)
def test_a_factored_step_of_any_size_stays_in_the_safe_region(metric, normal_step, safeguard, dtype, generator):
    rule = StepRule(metric=metric, normal_step=normal_step, safeguard=safeguard)
    for (n, p, b), size in itertools.product(SHAPES, [1.0, 1e5, 1e15]):
        X, _ = factors(n, p, b, dtype, generator, distance=0.499)
        for _ in range(6):
            A, W = (random_matrix(b, width, dtype=dtype, generator=generator) for width in (n, p))
            X = take_step(X, Factored(A, W * size, A @ X), 1e5, rule).X
            assert exact_distance(X) <= 0.5


@every_pair(normal_step=NORMAL_STEPS, metric=METRICS, size=[1e3, 1e6, 1e12])
def test_terms_that_cancel_each_other_do_not_push_an_iterate_out(size, metric, normal_step, generator):
    """A^H W is nearly zero, its roundings are those of terms of any size: the drift is charged for the terms."""
    rule = StepRule(metric=metric, normal_step=normal_step)
    for n, p, b in [(64, 8, 16), (300, 4, 40), (9, 9, 4)]:
        X = point_at_distance(n, p, 0.49, dtype=torch.float32, generator=generator)
        for _ in range(6):
            A, W, V = (random_matrix(b, width, dtype=torch.float32, generator=generator) for width in (n, p, p))
            A, W = torch.cat([A, -A]), torch.cat([size * W + V, size * W])
            X = take_step(X, Factored(A, W, A @ X), 1e5, rule).X
            assert exact_distance(X) <= 0.5


def test_many_small_steps_along_cancelling_terms_stay_inside(generator):
    X = point_at_distance(64, 8, 0.49, dtype=torch.float32, generator=generator)
    A, W = (random_matrix(16, width, dtype=torch.float32, generator=generator) for width in (64, 8))
    A, W = torch.cat([A, -A]), 1e6 * torch.cat([W, W])
    for _ in range(300):
        X = take_step(X, Factored(A, W, A @ X), 0.3, StepRule()).X
    assert exact_distance(X) <= 0.5


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_factors_that_are_not_finite_leave_the_iterate_where_it_was(bad, generator):
    X, G = factors(12, 5, 3, torch.float64, generator)
    G.W[1, 2] = bad
    outcome = take_step(X, G, 0.1, StepRule())
    assert bool(outcome.skipped)
    assert torch.equal(outcome.X, X)


@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
def test_a_factored_step_writes_where_it_is_told(normal_step, generator):
    rule = StepRule(normal_step=normal_step)
    X, G = factors(12, 5, 3, torch.float64, generator)
    expected = take_step(X.clone(), G.dense(), 0.1, rule).X
    kept, out = X.clone(), torch.empty_like(X)
    assert take_step(X, G, 0.1, rule, out=out).X is out
    torch.testing.assert_close(out, expected)
    assert torch.equal(X, kept)
    take_step(X, G, 0.1, rule, out=X, workspace=Workspace())
    torch.testing.assert_close(X, expected)
