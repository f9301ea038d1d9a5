"""Five products for a tall matrix with a normal step: the same step as six give, also where terms cancel."""

import literal
import pytest
import torch
from combinations import every_pair
from literal import exact_distance, point_at_distance, random_matrix, region_distance

from glideslope.engine import one_matrix as host
from glideslope.engine.production import take_step
from glideslope.engine.products import Workspace
from glideslope.engine.rule import StepRule

TYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def rounding(dtype):
    return torch.finfo(dtype).eps


@pytest.fixture
def taken(monkeypatch):
    """Whether each step took five products, also where matrices are small."""
    seen, method = [], host.HostStep.step_by_grams

    def spy(self, *arguments):
        outcome = method(self, *arguments)
        seen.append(outcome is not None)
        return outcome

    monkeypatch.setattr(host.HostStep, "step_by_grams", spy)
    monkeypatch.setattr(host, "LEAST_WORK", 0)
    return seen


@every_pair(
    metric=["canonical", "euclidean"],
    dtype=TYPES,
    normal_step=["newton-schulz", "polar"],
    shape=[(36, 3), (13, 1), (1560, 130)],
    step_size=[0.0, 0.1],
)
def test_five_products_give_the_step_of_six(
    shape, normal_step, dtype, metric, step_size, taken, monkeypatch, generator
):
    X = point_at_distance(*shape, 0.3, dtype=dtype, generator=generator)
    G = random_matrix(*shape, dtype=dtype, generator=generator)
    rule = StepRule(normal_step=normal_step, metric=metric)
    five = take_step(X, G, step_size, rule)
    assert taken == [True]
    monkeypatch.setattr(host, "TALL", float("inf"))
    six = take_step(X, G, step_size, rule)
    assert taken == [True]
    assert five.shortened == six.shortened
    torch.testing.assert_close(five.X, six.X, rtol=0, atol=100 * rounding(dtype))


@pytest.mark.parametrize("normal_step", ["newton-schulz", "polar"])
def test_in_place_in_a_workspace_and_of_a_view_the_step_is_the_same(normal_step, taken, generator):
    X = point_at_distance(60, 4, 0.2, generator=generator)
    G = random_matrix(60, 4, generator=generator)
    rule, workspace = StepRule(normal_step=normal_step), Workspace()
    expected = take_step(X, G, 0.05, rule).X
    kept = X.clone(), G.clone()
    for _ in range(2):
        assert torch.equal(take_step(X, G, 0.05, rule, workspace=workspace).X, expected)
    assert torch.equal(X, kept[0])
    assert torch.equal(G, kept[1])
    in_place, wide = X.clone(), X.mT.contiguous().mT
    take_step(in_place, G, 0.05, rule, out=in_place, workspace=workspace)
    assert torch.equal(in_place, expected)
    torch.testing.assert_close(take_step(wide, G.mT.contiguous().mT, 0.05, rule).X, expected)
    assert taken == [True] * 5


@every_pair(
    dtype=[torch.float32, torch.complex64],
    p=[4, 30],
    normal_step=["newton-schulz", "polar"],
    size=[1.0, 1e6, 1e18, 1e25],
)
def test_a_gradient_almost_normal_to_the_manifold_costs_no_digits(size, normal_step, p, dtype, taken, generator):
    """Its tangent part is a 10⁴th: the terms of a long step are long, and cancel."""
    X = point_at_distance(15 * p, p, 1e-3, dtype=dtype, generator=generator)
    normal = X @ literal.sym(random_matrix(p, p, dtype=dtype, generator=generator))
    G = size * (normal + 1e-4 * random_matrix(15 * p, p, dtype=dtype, generator=generator))
    for step_size in (0.1, 0.3, 1.0, 2.0, 3.0, 5.0, 10.0, 30.0, 1e3, 1e4):
        outcome = take_step(X, G, step_size / size, StepRule(normal_step=normal_step))
        assert outcome.X.isfinite().all()
        if normal_step == "polar":
            assert exact_distance(outcome.X) < 10 * rounding(dtype) * p
        else:
            assert region_distance(outcome.X, normal_step) < 0.5
    if size < 1e18:  # the square of its norm is finite
        assert taken[0]
    assert not any(taken[-1:])  # nor is one so huge that its norm overflows even asked


def test_a_gradient_that_is_not_finite_or_zero_is_left_to_the_other_paths(taken, generator):
    X = point_at_distance(60, 4, 0.2, generator=generator)
    rule = StepRule(normal_step="polar")
    for bad in (float("nan"), float("inf")):
        assert torch.equal(take_step(X, torch.full_like(X, bad), 0.1, rule).X, X)
    still = take_step(X, torch.zeros_like(X), 0.1, rule).X
    assert exact_distance(still) < 1e-13
