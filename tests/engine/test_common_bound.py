"""A batch none of whose matrices is shortened takes one step for all, and the same one as matrix by matrix."""

import pytest
import torch
from combinations import every_pair
from hypothesis import given
from hypothesis import strategies as st
from literal import landing_field, point_at_distance, random_matrix

from glideslope.engine.common_bound import CommonBound, common_bound
from glideslope.engine.decision import admissible_step, affordable_share, plan_step
from glideslope.engine.point import point_of
from glideslope.engine.production import take_step
from glideslope.engine.products import Workspace
from glideslope.engine.rule import StepRule
from glideslope.formulas.orthogonality import distance

SHAPES = [(4, 6, 6), (4, 9, 4), (1, 5, 1)]


def start(shape, dtype, generator, farthest=0.3):
    points = [
        point_at_distance(*shape[1:], farthest / (i + 1), dtype=dtype, generator=generator) for i in range(shape[0])
    ]
    return torch.stack(points), random_matrix(*shape, dtype=dtype, generator=generator)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("metric", ["canonical", "euclidean"])
@pytest.mark.parametrize("shape", SHAPES)
def test_one_step_for_all_is_the_literal_step_of_each(shape, metric, dtype, generator):
    X, G = start(shape, dtype, generator)
    rule = StepRule(attraction=0.7, metric=metric)
    outcome = take_step(X, G, 1e-2, rule)
    assert outcome[2:] == (False, False, False), "nothing was to be told apart"
    for x, g, moved in zip(X, G, outcome.X, strict=True):
        expected = x - 1e-2 * landing_field(x, g, 0.7, metric)
        torch.testing.assert_close(moved, expected, rtol=0, atol=1e-13)
    torch.testing.assert_close(outcome.distance, distance(X))


@pytest.mark.parametrize("out", ["X", "other", None])
def test_the_result_is_where_it_was_asked_for(out, generator):
    X, G = start((4, 9, 4), torch.float64, generator)
    expected = take_step(X, G, 1e-2, StepRule()).X.clone()
    target = {"X": X, "other": torch.empty_like(X), None: None}[out]
    moved = take_step(X, G, 1e-2, StepRule(), out=target).X
    assert target is None or moved is target
    assert torch.equal(moved, expected)


@pytest.mark.parametrize("shape", SHAPES[:2])
@pytest.mark.parametrize("bad", [1e3, float("inf"), float("nan")])
def test_a_matrix_moves_by_the_same_bits_whatever_becomes_of_another(bad, shape, generator):
    """Shortened or skipped: the others do not notice."""
    X, G = start(shape, torch.float32, generator)
    expected = take_step(X, G, 0.05, StepRule()).X.clone()
    G[1] *= bad
    outcome = take_step(X, G, 0.05, StepRule())
    others = [0, 2, 3]
    assert torch.equal(outcome.X[others], expected[others])
    finite = torch.isfinite(G[1]).all()
    assert torch.as_tensor(outcome.shortened).expand(4).tolist() == [False, bool(finite), False, False]
    assert torch.as_tensor(outcome.skipped).expand(4).tolist() == [False, not finite, False, False]
    assert torch.equal(outcome.X[1], X[1]) != finite
    assert distance(outcome.X).max() <= 0.5


def test_matrices_that_may_not_move_stay(generator):
    X, G = start((4, 9, 4), torch.float32, generator)
    active = torch.tensor([True, False, True, True])
    free = take_step(X, G, 0.05, StepRule()).X.clone()
    outcome = take_step(X, G, 0.05, StepRule(), active=active)
    assert outcome.skipped.tolist() == [False, True, False, False]
    assert torch.equal(outcome.X[active], free[active])
    assert torch.equal(outcome.X[1], X[1])


@pytest.mark.parametrize("step_size", [0.0, -1.0, 1e-44])
def test_a_field_that_overflows_does_not_spoil_a_step_of_no_length(step_size):
    """G S is beyond float32 where X^H G is of size one."""
    X = 1.05 * torch.eye(9, 4).repeat(3, 1, 1)
    G = torch.zeros_like(X)
    G[1, 4:] = 3.3e38
    G[1, 0, 1], G[1, 1, 0] = 1.0, -1.0
    outcome = take_step(X, G, step_size, StepRule(attraction=1e-9))
    assert torch.isfinite(outcome.X).all()
    assert distance(outcome.X).max() <= 0.5


@every_pair(
    step_size=[7e38, 1e39, 1e160, 1e300],
    dtype=[torch.float32, torch.complex64, torch.float64],
    shape=[(3, 9, 4), (3, 6, 6), (9, 4)],
)
def test_a_step_size_beyond_the_type_is_shortened_like_any_other(shape, dtype, step_size, generator):
    X = point_at_distance(*shape[-2:], 0.3, batch=shape[:-2], dtype=dtype, generator=generator)
    G = random_matrix(*shape, dtype=dtype, generator=generator)
    for gradient in (G, G * 1e-3, G * 1e30, G * 0):
        outcome = take_step(X, gradient, step_size, StepRule())
        assert torch.isfinite(outcome.X).all()
        assert distance(outcome.X).max() <= 0.5


@pytest.mark.parametrize("attraction", [2e38, 1e300])
@pytest.mark.parametrize("shape", [(3, 9, 4), (3, 6, 6), (9, 4), (6, 6)])
def test_an_attraction_beyond_the_type_loses_nothing(shape, attraction, generator):
    X = point_at_distance(*shape[-2:], 0.3, batch=shape[:-2], dtype=torch.float32, generator=generator)
    G = random_matrix(*shape, dtype=torch.float32, generator=generator)
    outcome = take_step(X, G, 0.1, StepRule(attraction=attraction))
    assert torch.isfinite(outcome.X).all()
    assert distance(outcome.X).max() <= 0.5


def test_another_default_device_is_not_used(generator):
    X, G = start((3, 9, 4), torch.float32, generator)
    expected = take_step(X, G, 0.1, StepRule()).X
    with torch.device("meta"):
        assert torch.equal(take_step(X, G, 0.1, StepRule()).X, expected)
        assert take_step(X[0], G[0], 0.1, StepRule()).X.device.type == "cpu"


@given(
    distances=st.lists(st.floats(0, 0.5), min_size=1, max_size=5),
    sizes=st.floats(-3, 6),
    step=st.floats(-6, 1),
    attraction=st.floats(0.1, 10) | st.just("auto"),
    metric=st.sampled_from(["canonical", "euclidean"]),
    seed=st.integers(0, 99),
)
def test_what_is_admitted_for_all_is_admitted_for_each(distances, sizes, step, attraction, metric, seed):
    generator = torch.Generator().manual_seed(seed)
    rule = StepRule(attraction=attraction, metric=metric)
    X = torch.stack([point_at_distance(7, 3, d, generator=generator) for d in distances]).float()
    G = random_matrix(*X.shape, dtype=torch.float32, generator=generator) * 10**sizes
    at = point_of(X, G, rule, Workspace())
    alike = common_bound(X, at, rule, 10**step, None)
    if alike is None:
        return
    tiny = torch.finfo(torch.float32).tiny
    assert (affordable_share(at.drift, at.distance, alike.attraction, alike.reach, 10**step, tiny) == 1).all()
    fields = [landing_field(x, g, alike.attraction, metric) for x, g in zip(X, G, strict=True)]
    norms = torch.stack([torch.linalg.norm(field) for field in fields])
    if alike.admits(norms.max().item()):
        plan = plan_step(at.distance, at.size, at.drift, rule, alike.reach, 10**step, tiny)
        bound = admissible_step(plan, at.distance, norms / plan.scale, alike.reach) / plan.scale
        assert (bound >= 10**step * (1 - 1e-5)).all()


def test_extremes_of_distance_bound_all_between():
    """The least pull is at an extreme, the least slack at the farthest."""
    alike = CommonBound(0.1, 2.0, 0.0, 0.4, 0.0, 0.5, 1e-19, None)
    longest = 0.1**0.5 / 0.1  # η² g² = slack exactly, without any pull
    assert alike.admits(longest * 0.999)
    assert not alike.admits(longest * 1.001)
    assert alike._replace(nearest=0.4).admits(longest * 1.1), "with a pull it may be longer"
    assert not alike._replace(step_size=0.26).admits(1e-3), "1/(2 λ) is the longest"
