"""A step in blocks of rows, summed by hand in one process: the same step, and as safe, wherever the rows are cut."""

import itertools

import pytest
import torch
from combinations import every_pair
from hypothesis import given
from hypothesis import strategies as st
from literal import exact_distance, region_distance

import glideslope as gs
from glideslope.engine.production import take_step
from glideslope.engine.row_blocks import run_together, step_of_rows, tangent_rows
from glideslope.engine.rule import StepRule
from glideslope.formulas.field import without_normal_part

RULES = [
    StepRule(),
    StepRule(metric="euclidean", safeguard="exact"),
    StepRule(normal_step="newton-schulz"),
    StepRule(normal_step="polar", metric="euclidean"),
    StepRule(attraction=3.0, safe_radius=0.2, metric="euclidean"),
]


def added_up(asked):
    """What an all-reduce does: every block gets the sums of the terms of all."""
    sums = [sum(terms[1:], terms[0].clone()) for terms in zip(*asked.values(), strict=True)]
    return {position: [total.clone() for total in sums] for position in asked}


def in_blocks(X, G, step_size, rule, cuts, active=None):
    """The step with the rows cut at the given places; the outcomes of the blocks."""
    bounds = [0, *sorted(cuts), X.shape[-2]]
    blocks = [slice(a, b) for a, b in itertools.pairwise(bounds)]
    steps = [
        step_of_rows(
            X[..., rows, :].contiguous(),
            G[..., rows, :].contiguous(),
            step_size,
            rule,
            rows=X.shape[-2],
            active=active,
        )
        for rows in blocks
    ]
    with torch.no_grad():
        return run_together(steps, added_up)


def point(n, p, *, batch=(), dtype=torch.float64, radius=0.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    X = gs.random_stiefel(n, p, batch=batch, dtype=dtype, generator=generator)
    G = torch.randn((*batch, n, p), dtype=dtype, generator=generator)
    if radius:  # singular values all alike: ‖X^H X - I‖ = |s² - 1| √p
        X = X * (1 + radius / p**0.5) ** 0.5
    return X, G


@every_pair(rule=RULES, dtype=[torch.float32, torch.float64, torch.complex128], cuts=[(), (5,), (0, 3, 3, 17, 20)])
def test_a_step_in_blocks_is_the_step_of_the_whole(rule, dtype, cuts):
    X, G = point(20, 4, batch=(3,), dtype=dtype, radius=0.1)
    G[1] *= 1e4
    outcomes = in_blocks(X, G, 0.3, rule, cuts)
    whole = take_step(X, G, 0.3, rule)
    moved = torch.cat([outcome.X for outcome in outcomes], dim=-2)
    tolerance = 2e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(moved, whole.X, rtol=0, atol=tolerance)
    for outcome in outcomes:
        assert torch.equal(outcome.shortened, whole.shortened)
        assert not outcome.skipped.any()
    assert bool(whole.shortened[1])


@given(
    st.integers(0, 4),
    st.integers(1, 6),
    st.integers(0, 20),
    st.sampled_from([torch.float32, torch.float64, torch.complex64]),
    st.floats(0, 1),
    st.floats(-30, 37),
    st.floats(-10, 10),
    st.floats(0, 1),
    st.sampled_from(RULES),
    st.lists(st.integers(0, 26), max_size=4),
    st.integers(0, 2**30),
)
def test_no_step_in_blocks_leaves_the_safe_region(extra, p, more, dtype, inside, size, lr, normal, rule, cuts, seed):
    """Any finite gradient, tangent or almost normal to the manifold, any step size, any cut."""
    n = p + extra + more
    X, G = point(n, p, dtype=dtype, radius=inside * rule.safe_radius * 0.999, seed=seed)
    S = torch.randn(p, p, dtype=dtype, generator=torch.Generator().manual_seed(seed))
    G = (1 - normal) * G + normal * X @ (S + S.mH)
    largest = torch.finfo(dtype).max / 1e3
    G = G * min(10.0**size, largest / float(G.abs().max()))
    outcomes = in_blocks(X, G, 10.0**lr, rule, [min(cut, n) for cut in cuts])
    moved = torch.cat([outcome.X for outcome in outcomes], dim=-2)
    assert torch.isfinite(moved).all()
    rounding = 2 * torch.finfo(dtype).eps * p**0.5
    assert region_distance(moved, rule.normal_step, rule.safeguard) <= rule.safe_radius + rounding
    decisions = {(bool(o.shortened), bool(o.recovered), bool(o.skipped)) for o in outcomes}
    assert len(decisions) == 1


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize(("n", "p"), [(1, 1), (6, 1), (3, 3), (200, 3)])
def test_gradients_normal_to_the_manifold_are_charged_for_the_rounding_of_their_tangent_part(rule, n, p):
    """Computed, that part is rounding alone: no lemma bounds what it does to the distance."""
    for seed in range(3):
        for size in (1e14, 1e30):
            X, _ = point(n, p, dtype=torch.float32, radius=0.1 * (seed % 3), seed=seed)
            S = torch.randn(p, p, generator=torch.Generator().manual_seed(seed))
            for _ in range(3):
                outcomes = in_blocks(X, size * X @ (S + S.mT), 1e5, rule, (n // 2,))
                X = torch.cat([outcome.X for outcome in outcomes], dim=-2)
                assert region_distance(X, rule.normal_step, rule.safeguard) <= rule.safe_radius + 1e-6


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_gradient_that_is_not_finite_in_one_block_leaves_all_blocks_where_they_are(rule, bad):
    X, G = point(12, 3, batch=(2,))
    G[0, 11, 1] = bad
    outcomes = in_blocks(X, G, 0.1, rule, (4, 8))
    moved = torch.cat([outcome.X for outcome in outcomes], dim=-2)
    assert torch.equal(moved[0], X[0])
    assert not torch.equal(moved[1], X[1])
    assert [outcome.skipped.tolist() for outcome in outcomes] == [[True, False]] * 3


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_matrix_outside_recovers_in_blocks_as_in_one_piece(rule):
    X, G = point(12, 3, radius=1.5)
    outcomes = in_blocks(X, G, 0.1, rule, (4, 8))
    moved = torch.cat([outcome.X for outcome in outcomes], dim=-2)
    torch.testing.assert_close(moved, take_step(X, G, 0.1, rule).X, rtol=0, atol=1e-14)
    assert all(bool(outcome.recovered) for outcome in outcomes)
    assert exact_distance(moved) < exact_distance(X)


def test_only_matrices_that_are_active_move():
    X, G = point(12, 3, batch=(2,))
    outcomes = in_blocks(X, G, 0.1, StepRule(), (5,), active=torch.tensor([True, False]))
    moved = torch.cat([outcome.X for outcome in outcomes], dim=-2)
    assert torch.equal(moved[1], X[1])
    assert not torch.equal(moved[0], X[0])


def test_the_sums_of_a_step_have_a_size_that_does_not_depend_on_the_rows():
    counted = []

    def count(asked):
        counted.append([terms.numel() for terms in asked[0]])
        return added_up(asked)

    for n in (10, 1000):
        X, G = point(n, 4)
        run_together([step_of_rows(X, G, 0.1, StepRule(), rows=n)], count)
    assert counted == [[16, 16], [1]] * 2


def test_the_gradient_without_its_normal_part_in_blocks():
    X, G = point(12, 3, radius=0.2)
    one = torch.ones(())
    parts = run_together([tangent_rows(X[:7], G[:7], one), tangent_rows(X[7:], G[7:], one)], added_up)
    torch.testing.assert_close(torch.cat([part for part, _ in parts]), without_normal_part(X, G))
    assert [count.item() for _, count in parts] == [2, 2]


def test_where_one_step_raises_the_others_are_closed_before_the_error_is_seen():
    put_back = []

    def borrowing(number):
        try:
            yield [torch.ones(1)]
        finally:
            put_back.append(number)

    def failing():
        yield [torch.ones(1)]
        raise MemoryError

    with pytest.raises(MemoryError):
        run_together([failing(), borrowing(1), borrowing(2)], lambda asked: asked)
    assert put_back == [1, 2]
