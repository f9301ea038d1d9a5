"""The whole step: equal to the plain formula, and decided at every edge, in place and in batches."""

import literal
import pytest
import torch
from combinations import every_pair
from literal import exact_distance, point_at_distance, random_matrix, region_distance

import glideslope as gs
from glideslope.engine.production import take_step
from glideslope.engine.products import Workspace
from glideslope.engine.rule import StepRule

SHAPES = [(1, 1), (4, 4), (6, 5), (7, 3), (6, 1), (40, 3), (2, 8, 2), (2, 3, 5, 5)]
TYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]
METRICS = ["canonical", "euclidean"]
NORMAL_STEPS = ["landing", "newton-schulz", "polar"]
SAFEGUARDS = ["lemma", "exact", None]


def tolerance(dtype):
    return {"rtol": 1e-4, "atol": 1e-5} if dtype in (torch.float32, torch.complex64) else {"rtol": 1e-10, "atol": 1e-11}


def start(shape, dtype, generator, distance=0.3):
    X = point_at_distance(*shape[-2:], distance, batch=shape[:-2], dtype=dtype, generator=generator)
    return X, random_matrix(*shape, dtype=dtype, generator=generator)


@every_pair(metric=METRICS, dtype=TYPES, shape=SHAPES, step_size=[0.02, 5.0])
def test_a_landing_step_is_the_plain_formula_with_the_safeguard_of_equation_14(
    shape, dtype, metric, step_size, generator
):
    X, G = start(shape, dtype, generator)
    plain = literal.landing_step(X, G, step_size, 0.8, 0.5, metric)
    ours = gs.landing_step(X, G, step_size=step_size, attraction=0.8, metric=metric)
    torch.testing.assert_close(ours, plain, **tolerance(dtype))


@every_pair(metric=METRICS, dtype=TYPES, shape=SHAPES, step_size=[0.02, 5.0])
def test_the_automatic_attraction_is_the_one_whose_cap_is_the_step_size(shape, dtype, metric, step_size, generator):
    X, G = start(shape, dtype, generator)
    plain = literal.landing_step(X, G, step_size, 1 / (2 * step_size), 0.5, metric)
    ours = gs.landing_step(X, G, step_size=step_size, attraction="auto", metric=metric)
    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)  # it is smaller by a millionth
    specified = gs.formulas.landing_step(X, G, step_size=step_size, attraction="auto", metric=metric)
    torch.testing.assert_close(ours, specified, **tolerance(dtype))


@pytest.mark.parametrize("shape", [(9, 4), (4, 4), (3, 9, 4)])
def test_with_the_automatic_attraction_the_distance_is_the_square_of_the_step_whatever_it_was(shape, generator):
    """Δ⁺ = η² T^H T + O(Δ² + η T Δ): Δ itself is gone. A constant λ keeps 1 - 2 η λ of it."""
    X, G = start(shape, torch.float64, generator, distance=1e-3)
    for step_size in (1e-4, 1e-2):
        for given in (step_size, torch.full(shape[:-2], step_size, dtype=torch.float64)):
            outcome = gs.landing_step(X, G, step_size=given, attraction="auto")
            T = gs.formulas.riemannian_gradient(X, G, metric="euclidean")
            expected = step_size**2 * literal.norm(T.mH @ T) + 1e-3 * step_size * literal.norm(T)
            assert (exact_distance(outcome) <= expected + 3e-6).all()
    constant = gs.landing_step(X, G, step_size=1e-4, attraction=1.0)
    assert (exact_distance(constant) > 9e-4).all()


@pytest.mark.parametrize("shape", [(9, 4), (4, 4), (3, 9, 4)])
@pytest.mark.parametrize("step_size", [0.0, 1e-300, 1e-30, 1e-13, 1.0, 1e39])
def test_the_automatic_attraction_takes_any_step_size(shape, step_size, generator):
    """A step of zero moves nothing; a whole step does not count as shortened by rounding of its own cap."""
    X, G = start(shape, torch.float32, generator, distance=0.1)
    G = G / 100
    for given in (step_size, torch.tensor(step_size)):
        outcome = take_step(X.clone(), G, given, StepRule(attraction="auto"))
        assert (exact_distance(outcome.X) <= 0.5 * (1 + 1e-6)).all()
        assert torch.as_tensor(outcome.shortened).any() == (step_size > 1)
        assert torch.equal(outcome.X, X) == (step_size < 1e-20)


@every_pair(metric=METRICS, dtype=TYPES, shape=SHAPES)
def test_without_a_safeguard_the_step_is_the_plain_formula(shape, dtype, metric, generator):
    X, G = start(shape, dtype, generator)
    plain = literal.landing_step(X, G, 2.0, 0.8, 0.5, metric, safeguarded=False)
    ours = gs.landing_step(X, G, step_size=2.0, attraction=0.8, metric=metric, safeguard=None)
    torch.testing.assert_close(ours, plain, **tolerance(dtype))


@every_pair(metric=METRICS, dtype=TYPES, shape=SHAPES)
def test_the_two_step_landing_is_a_tangent_step_and_one_newton_schulz_step(shape, dtype, metric, generator):
    X, G = start(shape, dtype, generator)
    Y = X - 0.05 * literal.skew_matrix(X, G, metric) @ X
    plain = Y @ (1.5 * literal.eye_like(Y.mH @ Y) - Y.mH @ Y / 2)
    ours = gs.landing_step(X, G, step_size=0.05, metric=metric, normal_step="newton-schulz", safeguard=None)
    torch.testing.assert_close(ours, plain, **tolerance(dtype))


@every_pair(metric=METRICS, dtype=TYPES, shape=SHAPES)
def test_the_polar_step_is_the_polar_factor_of_the_tangent_step(shape, dtype, metric, generator):
    X, G = start(shape, dtype, generator)
    Y = X - 0.05 * literal.skew_matrix(X, G, metric) @ X
    U, _, Vh = torch.linalg.svd(Y, full_matrices=False)
    ours = gs.landing_step(X, G, step_size=0.05, metric=metric, normal_step="polar")
    torch.testing.assert_close(ours, U @ Vh, **tolerance(dtype))
    assert (exact_distance(ours) < (1e-5 if dtype in (torch.float32, torch.complex64) else 1e-13)).all()


def test_the_distance_after_a_two_step_landing_is_the_fourth_power_of_the_step(generator):
    X, G = start((9, 4), torch.float64, generator, distance=0.0)
    distances = [exact_distance(gs.landing_step(X, G, step_size=h, normal_step="newton-schulz")) for h in (0.02, 0.01)]
    assert distances[0] / distances[1] == pytest.approx(16, rel=0.05)


@every_pair(shape=[(9, 4), (60, 4), (3, 9, 4)], normal_step=["newton-schulz", "polar"], safeguard=["lemma", "exact"])
def test_a_shortened_step_goes_as_far_as_its_normal_part_can_mend(shape, normal_step, safeguard, generator):
    """It ends where a bound of the largest eigenvalue is at the reach, not far from the longest step there is."""
    X, G = start(shape, torch.float64, generator, distance=0.1)
    rule = StepRule(normal_step=normal_step, safeguard=safeguard, metric="euclidean")
    T = gs.formulas.riemannian_gradient(X, G, metric="euclidean")
    new = take_step(X, G, 1e3, rule)
    assert torch.as_tensor(new.shortened).all()

    def mended(step):
        Y = X - step * T
        if normal_step == "newton-schulz":
            return Y @ (1.5 * torch.eye(4, dtype=torch.float64) - Y.mH @ Y / 2)
        U, _, Vh = torch.linalg.svd(Y, full_matrices=False)
        return U @ Vh

    def largest_eigenvalue(step):
        Y = X - step * T
        return torch.linalg.eigvalsh(Y.mH @ Y).amax(-1) - 1

    low, high = torch.zeros_like(T[..., :1, :1]), torch.full_like(T[..., :1, :1], 1e3)
    for _ in range(100):
        middle = (low + high) / 2
        inside = (largest_eigenvalue(middle) <= rule.upper_reach)[..., None, None]
        low, high = torch.where(inside, middle, low), torch.where(inside, high, middle)
    # Find the step that was taken by the same bisection on how far it went from X.
    went = torch.linalg.matrix_norm(new.X - X)
    least, most = torch.zeros_like(low), low * 1.001
    for _ in range(100):
        middle = (least + most) / 2
        short = (torch.linalg.matrix_norm(mended(middle) - X) < went)[..., None, None]
        least, most = torch.where(short, middle, least), torch.where(short, most, middle)
    assert (least <= low * (1 + 1e-6)).all()
    assert (least >= 0.6 * low).all()
    torch.testing.assert_close(new.X, mended(least), rtol=1e-6, atol=1e-6)


def flat_direction(n, p, length):
    """A tangent direction at [I; 0] all of whose singular values are `length`; its Frobenius norm is p^½ times that."""
    X, Z = torch.zeros(n, p), torch.zeros(n, p)
    X[:p], Z[p : 2 * p] = torch.eye(p), length * torch.eye(p)
    return X, Z


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("normal_step", ["newton-schulz", "polar"])
def test_a_step_is_not_shortened_for_its_frobenius_norm(normal_step, foreach):
    """Singular values of 0.8, Frobenius norm 8: the Gram matrix has eigenvalues 1.64, which the normal step mends."""
    X, G = flat_direction(250, 100, 0.8)
    X, G = (X[None], G[None]) if foreach else (X, G)
    outcome = take_step(X, G, 1.0, StepRule(normal_step=normal_step, metric="euclidean"))
    assert not torch.as_tensor(outcome.shortened).any()
    assert region_distance(outcome.X, normal_step).max() <= 0.5
    half = StepRule(normal_step=normal_step, metric="canonical")
    assert torch.as_tensor(take_step(X, G, 1.5, half).shortened).logical_not().all()
    assert torch.as_tensor(take_step(X, G, 3.0, half).shortened).all()


@every_pair(normal_step=NORMAL_STEPS, safeguard=SAFEGUARDS, distance=[0.6, 1.0, 1.5], shape=[(6, 6), (9, 4), (5, 1)])
def test_from_outside_the_safe_region_the_step_is_one_newton_schulz_step(
    shape, distance, safeguard, normal_step, generator
):
    X = point_at_distance(*shape, 0.0, generator=generator)
    X[:, 0] *= (1 + distance) ** 0.5
    G = random_matrix(*shape, generator=generator)
    outcome = take_step(X, G, 0.1, StepRule(normal_step=normal_step, safeguard=safeguard))
    S = X.mH @ X
    torch.testing.assert_close(outcome.X, X @ (1.5 * literal.eye_like(S) - S / 2))
    assert outcome.recovered
    assert not outcome.shortened


@every_pair(normal_step=NORMAL_STEPS, scale=[3.0, 1e3, 1e9], shape=[(6, 6), (9, 4), (5, 1)])
def test_recovery_from_far_away_reaches_the_manifold_and_is_never_nan(shape, scale, normal_step, generator):
    X = scale * random_matrix(*shape, dtype=torch.float32, generator=generator)
    G = random_matrix(*shape, dtype=torch.float32, generator=generator)
    for _ in range(60):
        X = gs.landing_step(X, G * 0, step_size=0.1, normal_step=normal_step)
        assert torch.isfinite(X).all()
    assert exact_distance(X) < 1e-3


@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
def test_recovery_from_almost_zero_does_not_shrink_a_matrix_of_many_columns(normal_step, generator):
    """There d is √p, which says nothing of the norm of X: dividing by it would end at zero."""
    X = 1e-3 * point_at_distance(120, 100, 0.0, dtype=torch.float32, generator=generator)
    for _ in range(30):
        X = gs.landing_step(X, torch.zeros_like(X), step_size=0.5, normal_step=normal_step)
    assert exact_distance(X) < 1e-4


@every_pair(
    bad=[float("nan"), float("inf"), -float("inf")],
    normal_step=NORMAL_STEPS,
    safeguard=SAFEGUARDS,
    shape=[(3, 6, 6), (3, 9, 4)],
)
def test_a_gradient_that_is_not_finite_leaves_its_matrix_where_it_was_and_the_others_step(
    shape, safeguard, normal_step, bad, generator
):
    X, G = start(shape, torch.float32, generator)
    rule = StepRule(normal_step=normal_step, safeguard=safeguard)
    clean = take_step(X, G, 0.1, rule)
    spoiled = G.clone()
    spoiled[1, 2, 0] = bad
    outcome = take_step(X, spoiled, 0.1, rule)
    torch.testing.assert_close(outcome.X[1], X[1], rtol=0, atol=0)
    torch.testing.assert_close(outcome.X[0::2], clean.X[0::2], rtol=0, atol=0)
    assert outcome.skipped.tolist() == [False, True, False]
    assert not torch.as_tensor(clean.skipped).any()


@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
def test_huge_and_small_gradients_still_move_the_iterate(normal_step, generator):
    X, G = start((9, 4), torch.float32, generator, distance=0.1)
    rule = StepRule(normal_step=normal_step)
    for scale, step_size in [(1e30, 1e-30), (1e30, 1e-2), (1e30, 1e5), (1e-10, 1e10)]:
        outcome = take_step(X, G * scale, step_size, rule)
        assert not outcome.skipped
        if normal_step != "landing" or scale > 1:  # 1/(2 λ) caps the landing step
            assert (outcome.X - X).norm() > 0.1


def test_a_zero_gradient_on_the_manifold_leaves_the_iterate_there():
    X = torch.eye(5, 3)
    torch.testing.assert_close(gs.landing_step(X, torch.zeros(5, 3), step_size=10.0), X, rtol=0, atol=0)


def test_a_zero_step_size_leaves_the_iterate_where_it_is(generator):
    X, G = start((2, 9, 4), torch.float64, generator)
    torch.testing.assert_close(gs.landing_step(X, G, step_size=0.0), X, rtol=0, atol=0)


def test_large_steps_do_not_collapse_the_iterate():
    """Without the cap 1/(2 λ), lr = 1 and λ = 10 would send X to zero."""
    X = 1.1 * torch.eye(6, 3, dtype=torch.float64)
    for _ in range(20):
        X = gs.landing_step(X, torch.zeros_like(X), step_size=1.0, attraction=10.0)
    assert exact_distance(X) < 1e-12


@every_pair(safeguard=SAFEGUARDS, normal_step=NORMAL_STEPS, shape=[(4, 6, 6), (4, 9, 4)])
def test_each_matrix_of_a_batch_steps_as_if_alone(shape, normal_step, safeguard, generator):
    X, G = start(shape, torch.float64, generator)
    G = G * torch.tensor([1e-6, 1.0, 1e3, 1e9], dtype=torch.float64)[:, None, None]
    options = {"step_size": 0.1, "normal_step": normal_step, "safeguard": safeguard}
    if safeguard is None:
        G = G.clamp(-1, 1)
    together = gs.landing_step(X, G, **options)
    alone = torch.stack([gs.landing_step(x, g, **options) for x, g in zip(X, G, strict=True)])
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)


def test_a_tensor_of_step_sizes_is_one_per_matrix(generator):
    X, G = start((2, 3, 9, 4), torch.float64, generator)
    sizes = torch.tensor([0.01, 0.02, 0.03], dtype=torch.float64)
    together = gs.landing_step(X, G, step_size=sizes)
    torch.testing.assert_close(together[1, 2], gs.landing_step(X[1, 2], G[1, 2], step_size=0.03))
    torch.testing.assert_close(
        gs.landing_step(X[0, 0], G[0, 0], step_size=sizes[0]), together[0, 0], rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
@pytest.mark.parametrize("shape", [(6, 6), (9, 4), (3, 9, 4)])
def test_in_place_and_in_a_workspace_the_result_is_the_same(shape, normal_step, generator):
    X, G = start(shape, torch.float64, generator)
    rule = StepRule(normal_step=normal_step)
    expected = take_step(X, G, 0.1, rule).X
    inplace, workspace = X.clone(), Workspace()
    outcome = take_step(inplace, G, 0.1, rule, out=inplace, workspace=workspace)
    assert outcome.X is inplace
    torch.testing.assert_close(inplace, expected, rtol=0, atol=0)
    out = torch.empty_like(X)
    assert gs.landing_step(X, G, step_size=0.1, normal_step=normal_step, out=out) is out
    torch.testing.assert_close(out, expected, rtol=0, atol=0)


def test_the_arguments_are_not_written(generator):
    X, G = start((3, 9, 4), torch.float64, generator)
    before = X.clone(), G.clone()
    gs.landing_step(X, G, step_size=0.1)
    torch.testing.assert_close((X, G), before, rtol=0, atol=0)


def test_strided_views_step_like_their_copies(generator):
    wide = point_at_distance(9, 4, 0.2, generator=generator).mT.contiguous()
    G = random_matrix(4, 9, generator=generator)
    torch.testing.assert_close(
        gs.landing_step(wide.mT, G.mT, step_size=0.1),
        gs.landing_step(wide.mT.contiguous(), G.mT.contiguous(), step_size=0.1),
    )


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_steps_are_computed_in_float32(half, generator):
    X, G = start((9, 4), torch.float32, generator)
    X, G = X.to(half), G.to(half)
    expected = gs.landing_step(X.float(), G.float(), step_size=0.1).to(half)
    torch.testing.assert_close(gs.landing_step(X, G, step_size=0.1), expected, rtol=0, atol=0)
    out = X.clone()
    gs.landing_step(out, G, step_size=0.1, out=out)
    torch.testing.assert_close(out, expected, rtol=0, atol=0)


def test_a_batch_of_no_matrices_is_returned_as_it_is():
    X = torch.zeros(0, 4, 2)
    assert gs.landing_step(X, X, step_size=0.1).shape == (0, 4, 2)


@pytest.mark.parametrize("safeguard", SAFEGUARDS)
@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    ("shape", "dtype"), [((7, 7), torch.float64), ((60, 4), torch.float64), ((3, 9, 4), torch.complex128)], ids=str
)
def test_the_production_step_is_its_specification(shape, dtype, metric, normal_step, safeguard, generator):
    """Where nothing is shortened, at the lemma's bound, and outside; where eigenvalues decide it goes no further."""
    options = {"metric": metric, "normal_step": normal_step, "safeguard": safeguard}
    X, G = start(shape, dtype, generator, distance=0.3)
    for step_size in (0.01, 3.0 if safeguard == "lemma" and normal_step == "landing" else 0.02):
        expected = gs.formulas.landing_step(X, G, step_size=step_size, **options)
        torch.testing.assert_close(
            gs.landing_step(X, G, step_size=step_size, **options), expected, rtol=1e-9, atol=1e-9
        )
    far = 1.4 * X
    expected = gs.formulas.landing_step(far, G, step_size=0.1, **options)
    if safeguard is not None or normal_step == "landing":
        torch.testing.assert_close(gs.landing_step(far, G, step_size=0.1, **options), expected)
    if safeguard is not None and normal_step != "landing":
        longest = gs.formulas.landing_step(X, G, step_size=1e3, **options)
        ours = gs.landing_step(X, G, step_size=1e3, **options)
        assert (literal.norm(ours - X) <= literal.norm(longest - X) * (1 + 1e-9)).all()
