"""One matrix on the host: it steps as in a batch; a tall one in five products as in six, also where terms cancel."""

import itertools

import literal
import pytest
import torch
from combinations import every_pair
from literal import exact_distance, point_at_distance, random_matrix, region_distance

import glideslope as gs
from glideslope.engine import one_matrix as host
from glideslope.engine import production
from glideslope.engine.production import take_step
from glideslope.engine.products import Workspace
from glideslope.engine.rounding import distance_margin
from glideslope.engine.rule import StepRule

METRICS = ["canonical", "euclidean"]
NORMAL_STEPS = ["landing", "newton-schulz", "polar"]
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


def both_ways(X, G, step_size, rule, **options):
    """One matrix on the host, and the same as a batch of one."""
    one = take_step(X, G, step_size, rule, **options)
    many = take_step(X.unsqueeze(0), G.unsqueeze(0), step_size, rule)
    return one, many


@every_pair(
    dtype=[torch.float32, torch.float64, torch.complex64],
    safeguard=["lemma", "exact", None],
    normal_step=NORMAL_STEPS,
    metric=METRICS,
)
def test_one_matrix_on_the_host_steps_as_a_batch_of_one(metric, normal_step, safeguard, dtype, generator):
    # The exact step is never taken on the host, and at the boundary the root of its quartic magnifies roundings.
    distances = [0.1, 0.6] if safeguard == "exact" else [0.0, 1e-4, 0.3, 0.4999, 0.5, 0.6]
    step_sizes = [0.0, 0.02, 0.4] if safeguard is None else [0.0, 0.02, 0.4, 1e5]
    for (n, p), distance, step_size in itertools.product([(11, 4), (5, 5)], distances, step_sizes):
        X = point_at_distance(n, p, distance, dtype=dtype, generator=generator)
        direction = random_matrix(n, p, dtype=dtype, generator=generator)
        for size in (1e-20, 1e-6, 1.0, 1e6, 1e20):
            if safeguard is None and size > 1:
                continue
            one, many = both_ways(X, direction * size, step_size, StepRule(1.3, 0.5, metric, normal_step, safeguard))
            torch.testing.assert_close(one.X, many.X[0], rtol=0, atol=1000 * torch.finfo(dtype).eps)
            assert bool(one.recovered) == bool(many.recovered)
            assert bool(one.skipped) == bool(many.skipped)
            if 0 < step_size * size < 1e-8 or step_size * size > 1e3:  # elsewhere a rounding may decide
                assert bool(one.shortened) == bool(many.shortened)


def test_the_host_path_is_taken_by_one_matrix_and_not_by_a_batch(generator, monkeypatch):
    calls = []
    original = production.step_of_batch
    monkeypatch.setattr(production, "step_of_batch", lambda *given: calls.append(1) or original(*given))
    X, G = point_at_distance(12, 5, 0.2, generator=generator), random_matrix(12, 5, generator=generator)
    take_step(X, G, 0.1, StepRule())
    assert calls == []
    take_step(X.unsqueeze(0), G.unsqueeze(0), 0.1, StepRule())
    assert calls == [1]


@pytest.mark.parametrize(
    "change", [{"metric": "euclidean"}, {"attraction": 3.0}, {"safe_radius": 0.1}, {"normal_step": "newton-schulz"}]
)
def test_what_a_step_prepared_is_not_used_for_another_rule_shape_or_type(change, generator):
    workspace = Workspace()
    rules = [StepRule(), StepRule(**change)]
    for shape, dtype in [((9, 4), torch.float64), ((7, 7), torch.float64), ((9, 4), torch.float32)]:
        X = gs.random_stiefel(*shape, dtype=dtype, generator=generator)
        G = random_matrix(*shape, dtype=dtype, generator=generator)
        for rule in [*rules, *rules]:
            expected = take_step(X.clone(), G, 0.3, rule).X
            torch.testing.assert_close(take_step(X.clone(), G, 0.3, rule, workspace=workspace).X, expected)


@pytest.mark.parametrize("value", [1.0, 0.1])
@pytest.mark.parametrize(("n", "p"), [(100_000, 1), (100_000, 16), (30_000, 128), (3000, 200), (9, 4)])
def test_the_norm_of_a_field_is_as_close_as_the_margin_of_a_step(n, p, value):
    """Fields of equal numbers are the worst: every rounding of the sum goes the same way."""
    X = torch.empty(n, p)
    prepared = host.HostStep(X, StepRule(), square=False, workspace=Workspace())
    prepared.F.fill_(value)
    expected = torch.linalg.vector_norm(prepared.F.double()).item()
    assert abs(prepared.field_norm() / expected - 1) < distance_margin(X)
