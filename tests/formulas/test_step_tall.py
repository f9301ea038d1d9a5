"""Five products for a tall matrix with a normal step: the same step as six give, also where terms cancel."""

import literal
import pytest
import torch
from literal import exact_distance, point_at_distance, random_matrix

from glideslope.formulas import host
from glideslope.formulas.rule import StepRule
from glideslope.formulas.step import take_step

TYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def rounding(dtype):
    return torch.finfo(dtype).eps


@pytest.mark.parametrize("metric", ["canonical", "euclidean"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("normal_step", ["newton-schulz", "polar"])
@pytest.mark.parametrize("shape", [(36, 3), (70, 5), (13, 1), (1700, 140)])
@pytest.mark.parametrize("step_size", [0.01, 0.3, 1e6])
def test_five_products_give_the_step_of_six(shape, normal_step, dtype, metric, step_size, monkeypatch, generator):
    X = point_at_distance(*shape, 0.3, dtype=dtype, generator=generator)
    G = random_matrix(*shape, dtype=dtype, generator=generator)
    rule = StepRule(normal_step=normal_step, metric=metric)
    five = take_step(X, G, step_size, rule)
    monkeypatch.setattr(host, "TALL", float("inf"))
    six = take_step(X, G, step_size, rule)
    assert five.shortened == six.shortened
    torch.testing.assert_close(five.X, six.X, rtol=0, atol=100 * rounding(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
@pytest.mark.parametrize("normal_step", ["newton-schulz", "polar"])
@pytest.mark.parametrize("size", [1.0, 1e3, 1e6, 1e18, 1e25])
def test_a_gradient_almost_normal_to_the_manifold_costs_no_digits(size, normal_step, dtype, generator):
    """Its tangent part is a 10⁴th: the terms of a long step are long, and cancel."""
    X = point_at_distance(60, 4, 1e-3, dtype=dtype, generator=generator)
    normal = X @ literal.sym(random_matrix(4, 4, dtype=dtype, generator=generator))
    G = size * (normal + 1e-4 * random_matrix(60, 4, dtype=dtype, generator=generator))
    for step_size in (0.1 / size, 1e3 / size, 1e4 / size):
        outcome = take_step(X, G, step_size, StepRule(normal_step=normal_step))
        assert outcome.X.isfinite().all()
        if normal_step == "polar":
            assert exact_distance(outcome.X) < 30 * rounding(dtype)
        else:
            assert exact_distance(outcome.X) < 0.5
