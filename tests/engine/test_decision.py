"""The numbers of a step: the same from floats as from tensors, and decided at their edges."""

import pytest
import torch
from literal import point_at_distance

from glideslope.engine.decision import plan_step
from glideslope.engine.production import take_step
from glideslope.engine.rule import StepRule

TINY = torch.finfo(torch.float32).tiny


@pytest.mark.parametrize("size", [0.0, 1e-3, 1e20, 2e38])
@pytest.mark.parametrize("rule", [StepRule(), StepRule(attraction=3.0), StepRule(normal_step="polar")], ids=str)
def test_floats_and_tensors_give_the_same_plan(rule, size):
    """At 2e38 the share 1/σ is subnormal in float32: such a gradient is not followed."""
    for distance, drift, step_size in [(0.0, 0.0, 0.1), (0.4, 1e-6 * size, 1e-3), (0.5, 0.3 * size, 1e3)]:
        plan = plan_step(distance, size, drift, rule, 0.5, step_size, TINY)
        tensors = (torch.tensor(number, dtype=torch.float64) for number in (distance, size, drift))
        assert plan == pytest.approx([float(n) for n in plan_step(*tensors, rule, 0.5, step_size, TINY)], rel=1e-12)
        assert (plan.share == 0) == (size > 1 / TINY)


@pytest.mark.parametrize("step_size", [1e-9, 0.1])
def test_a_start_beyond_the_reach_by_a_rounding_follows_its_gradient_however_short_the_step(step_size):
    """It has no slack, and not a negative one, which a short step would magnify: the pull pays for the drift."""
    assert plan_step(0.5, 1.0, 1e-3, StepRule(), 0.5 - 1e-6, step_size, TINY).share == 1
    distance, size, drift = torch.tensor([[0.5], [1.0], [1e-3]])
    assert plan_step(distance, size, drift, StepRule(), 0.5 - 1e-6, step_size, TINY).share == 1


@pytest.mark.parametrize("safeguard", ["lemma", "exact"])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_the_longest_landing_step_is_one_over_twice_the_attraction(batch, safeguard, generator):
    """Along the attraction alone that is X - ½ X Δ, inside of the region by far."""
    X = point_at_distance(9, 4, 0.2, batch=batch, generator=generator)
    outcome = take_step(X, torch.zeros_like(X), 10.0, StepRule(attraction=3.0, safeguard=safeguard))
    torch.testing.assert_close(outcome.X, X @ (1.5 * torch.eye(4, dtype=X.dtype) - X.mH @ X / 2))
    assert torch.as_tensor(outcome.shortened).all()
