"""diagnostics(), and the events it counts: shortened steps, recoveries, and gradients that are not finite."""

import pytest
import torch
from contract.factories import (
    ALL,
    CLASSES,
    LANDING,
    OWN,
    assert_same,
    copies_of,
    feed,
    landing_of,
    of,
    orthonormal,
    parameters,
    random_gradients,
    seeded,
)
from literal import exact_distance, random_matrix

import glideslope as gs

SHAPES = [(6, 3), (3, 6), (4, 5, 3)]
MATRICES = [1, 1, 4]
COUNTERS = ("shortened", "recovered", "skipped")


@of(ALL)
@pytest.mark.parametrize("steps", [0, 2])
def test_there_is_a_row_per_parameter_with_an_entry_per_matrix(make, steps):
    params = parameters(SHAPES)
    optimizer = make(params, lr=0.1)
    feed(optimizer, params, random_gradients(params, steps))
    rows = landing_of(optimizer).diagnostics()
    assert [row.name for row in rows] == ["parameter 0", "parameter 1", "parameter 2"]
    for row, param, matrices in zip(rows, params, MATRICES, strict=True):
        tall = param.detach().mT if param.shape[-2] < param.shape[-1] else param.detach()
        assert row.distance == pytest.approx(exact_distance(tall).reshape(-1).tolist(), abs=1e-13)
        assert all(len(getattr(row, counter)) == matrices for counter in COUNTERS)
        assert all(type(count) is int for counter in COUNTERS for count in getattr(row, counter))


@of(CLASSES)
def test_it_prints_as_an_aligned_table(make):
    model = torch.nn.Sequential(torch.nn.Conv2d(2, 4, 3), torch.nn.Flatten(), torch.nn.Linear(8, 8))
    gs.orthogonalize_(model)
    optimizer = make(gs.param_groups(model), lr=0.1)
    text = str(optimizer.diagnostics())
    header, *rows = text.splitlines()
    assert header.split() == ["name", "matrices", "distance", *COUNTERS]
    assert [row.split()[0] for row in rows] == ["0.weight", "2.weight"]
    assert len({len(line) for line in (header, *rows)}) == 1
    assert repr(optimizer.diagnostics()) == text


def test_free_parameters_and_empty_optimizers_have_no_rows():
    optimizer = gs.LandingSGD([{"params": parameters(SHAPES), "orthogonal": False}])
    assert optimizer.diagnostics() == []
    assert len(str(optimizer.diagnostics()).splitlines()) == 1


def test_numbering_goes_on_over_groups():
    first, second = parameters([(6, 3), (4, 4)]), parameters([(6, 3)], seed=9)
    optimizer = gs.LandingSGD([{"params": first, "orthogonal": False}, {"params": second}])
    assert [row.name for row in optimizer.diagnostics()] == ["parameter 2"]


def test_the_distance_of_a_half_precision_parameter_is_that_of_its_master():
    (X,) = parameters([(6, 3)], torch.bfloat16)
    optimizer = gs.LandingSGD([X], lr=0.01, normal_step="polar")
    assert optimizer.diagnostics()[0].distance[0] > 1e-3
    feed(optimizer, [X], random_gradients([X], 2))
    assert optimizer.diagnostics()[0].distance[0] < 1e-5


@pytest.mark.parametrize("foreach", [True, False])
@of(LANDING)
def test_shortened_steps_and_recoveries_are_counted_per_matrix(make, foreach):
    params = parameters([(4, 5, 3), (5, 3), (5, 3)])
    optimizer = make(params, lr=1e-3, foreach=foreach)
    quiet = [[1e-3 * g for g in given] for given in random_gradients(params, 3)]
    feed(optimizer, params, quiet[:1])
    rows = optimizer.diagnostics()
    assert all(sum(getattr(row, counter)) == 0 for row in rows for counter in COUNTERS)
    for group in optimizer.param_groups:
        group["lr"] = 1e6
    feed(optimizer, params, [[torch.ones_like(g) * g for g in random_gradients(params, 1)[0]]])
    rows = optimizer.diagnostics()
    assert [row.shortened for row in rows] == [[1] * 4, [1], [1]]
    for group in optimizer.param_groups:
        group["lr"] = 1e-3
    params[0].data[2].mul_(3.0)
    params[1].data.mul_(3.0)
    feed(optimizer, params, quiet[1:2])
    rows = optimizer.diagnostics()
    assert [row.recovered for row in rows] == [[0, 0, 1, 0], [1], [0]]
    assert all(sum(row.skipped) == 0 for row in rows)


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@of(OWN)
def test_a_gradient_that_is_not_finite_leaves_its_matrix_and_moments_and_is_counted(make, bad, foreach):
    """The step with a bad gradient might as well not have been for that matrix, then and later."""
    params = parameters([(4, 5, 3), (5, 3), (5, 3)])
    first, second, third = random_gradients(params, 3)
    sound = copies_of(params)
    optimizer, plain = make(params, lr=0.05, foreach=foreach), make(sound, lr=0.05, foreach=foreach)
    feed(optimizer, params, [first])
    before = [param.detach().clone() for param in params]
    spoiled = [gradient.clone() for gradient in second]
    spoiled[0][2, 1, 1] = bad
    spoiled[1][0, 0] = bad
    feed(optimizer, params, [spoiled])
    assert torch.equal(params[0][2], before[0][2])
    assert torch.equal(params[1], before[1])
    assert all(torch.isfinite(v).all() for state in optimizer.state.values() for v in state.values())
    feed(optimizer, params, [third])
    feed(plain, sound, [first, third])
    assert_same([params[0][2], params[1]], [sound[0][2], sound[1]], 1e-13)
    assert [row.skipped for row in optimizer.diagnostics()] == [[0, 0, 1, 0], [1], [0]]


@of(OWN)
def test_a_first_gradient_that_is_not_finite_does_not_spoil_the_start(make):
    params = parameters([(5, 3), (5, 3)])
    sound = copies_of(params)
    gradients = random_gradients(params, 2)
    feed(make(sound, lr=0.05), sound, gradients)
    optimizer = make(params, lr=0.05)
    feed(optimizer, params, [[torch.full_like(params[0], torch.nan)] * 2, *gradients])
    assert_same(params, sound, 1e-13)


@of(OWN)
def test_a_parameter_that_became_nan_does_not_stop_the_others(make):
    params = parameters([(5, 3), (5, 3), (3, 5, 3)])
    sound = copies_of(params)
    gradients = random_gradients(params, 2)
    feed(make(sound, lr=0.05), sound, gradients)
    optimizer = make(params, lr=0.05)
    params[0].data.fill_(torch.nan)
    params[2].data[1] = torch.nan
    feed(optimizer, params, gradients)
    assert_same([params[1], params[2][0], params[2][2]], [sound[1], sound[2][0], sound[2][2]], 1e-13)
    assert optimizer.diagnostics()[0].skipped == [2]


def test_the_counters_survive_saving():
    X = torch.nn.Parameter(orthonormal((5, 3)))
    optimizer = gs.LandingSGD([X], lr=0.1)
    feed(optimizer, [X], [[torch.full_like(X, torch.nan)]] * 3)
    fresh = torch.nn.Parameter(X.detach().clone())
    resumed = gs.LandingSGD([fresh], lr=0.1)
    resumed.load_state_dict(optimizer.state_dict())
    assert resumed.diagnostics()[0].skipped == [3]


def step_often(optimizer, X, scale, steps=101):
    for seed in range(steps):
        X.grad = scale * random_matrix(*X.shape, dtype=X.dtype, generator=seeded(seed))
        optimizer.step()


@pytest.mark.parametrize("normal_step", ["landing", "newton-schulz"])
def test_a_matrix_whose_steps_are_mostly_shortened_is_told_of_once(normal_step):
    X = torch.nn.Parameter(gs.random_stiefel(20, 5, generator=seeded()))
    optimizer = gs.LandingSGD([("layer.weight", X)], lr=1.0, normal_step=normal_step)
    with pytest.warns(UserWarning, match=r"100 of the last 100 steps of 'layer.weight'.*lower lr") as told:
        step_often(optimizer, X, 100.0)
    assert ("newton-schulz" in str(told[0].message)) == (normal_step == "landing")
    step_often(optimizer, X, 100.0)  # a second warning would be an error


def test_a_matrix_whose_gradients_are_mostly_not_finite_is_told_of_once():
    X = torch.nn.Parameter(gs.random_stiefel(20, 5, generator=seeded()))
    optimizer = gs.LandingSGD([("layer.weight", X)], lr=0.01)
    with pytest.warns(UserWarning, match=r"100 of the last 100 gradients of 'layer.weight'.*infinite or NaN"):
        step_often(optimizer, X, float("nan"))
    step_often(optimizer, X, float("inf"))  # a second warning would be an error
    with pytest.warns(UserWarning, match="shortened"):  # the other kind of trouble is still told of
        step_often(optimizer, X, 1e6, steps=201)


def test_a_few_shortened_steps_are_not_told_of():
    X = torch.nn.Parameter(gs.random_stiefel(20, 5, generator=seeded()))
    optimizer = gs.LandingSGD([X], lr=0.01)
    step_often(optimizer, X, 100.0, steps=40)
    step_often(optimizer, X, 0.1, steps=160)
    assert optimizer.diagnostics()[0].shortened[0] > 30


def point_with_equal_eigenvalues(n, p, excess):
    """X with X^H X = (1 + excess) I: spectral distance `excess`, Frobenius distance p^½ times that."""
    return gs.random_stiefel(n, p, generator=seeded()) * (1 + excess) ** 0.5


def test_a_start_is_judged_in_the_norm_of_the_safe_region():
    start = point_with_equal_eigenvalues(50, 40, 0.2)
    assert gs.formulas.distance(start) > 1
    assert gs.formulas.spectral_distance(start).item() == pytest.approx(0.2, abs=1e-5)
    for options in ({"normal_step": "newton-schulz"}, {"normal_step": "polar"}, {"safeguard": "exact"}):
        X = torch.nn.Parameter(start.clone())
        optimizer = gs.LandingSGD([X], lr=0.01, **options)
        X.grad = random_matrix(50, 40, dtype=X.dtype, generator=seeded(1))
        optimizer.step()
        assert optimizer.diagnostics()[0].recovered == [0]
        assert gs.formulas.spectral_distance(X.detach()) < 0.5
    with pytest.raises(ValueError, match=r"starts at distance 1\.2"):
        gs.LandingSGD([torch.nn.Parameter(start.clone())], lr=0.01)


def test_counters_of_a_loaded_state_are_not_taken_for_new_steps():
    X = torch.nn.Parameter(gs.random_stiefel(20, 5, generator=seeded()))
    optimizer = gs.LandingSGD([X], lr=0.01)
    step_often(optimizer, X, 100.0, steps=60)
    resumed = gs.LandingSGD([X], lr=0.01)
    resumed.load_state_dict(optimizer.state_dict())
    step_often(resumed, X, 0.1)  # a warning would be an error
    assert resumed.diagnostics()[0].shortened[0] > 50


@pytest.mark.parametrize("shape", [(40, 30), (2, 40, 30)])
@pytest.mark.parametrize(
    "options", [{"normal_step": "newton-schulz"}, {"normal_step": "polar"}, {"safeguard": "exact"}]
)
def test_a_matrix_just_inside_the_spectral_ball_is_never_thrown_out_of_it(shape, options):
    """Eigenvalues of X^H X - I up to 0.499: bounds of them are far above, and cannot tell whether X is inside."""
    basis = torch.linalg.qr(random_matrix(30, 30, generator=seeded(2))).Q
    values = torch.linspace(-0.499, 0.499, 30, dtype=torch.float64)
    root = basis @ torch.diag((1 + values).sqrt()) @ basis.mT
    X = torch.nn.Parameter(gs.random_stiefel(40, 30, generator=seeded(), dtype=torch.float64).expand(shape) @ root)
    optimizer = gs.LandingSGD([X], lr=1e-3, **options)
    for seed in range(5):
        X.grad = random_matrix(*shape, generator=seeded(seed))
        optimizer.step()
        assert gs.formulas.spectral_distance(X.detach()).max() <= 0.5


@pytest.mark.parametrize(
    "options", [{"normal_step": "newton-schulz"}, {"normal_step": "polar"}, {"safeguard": "exact"}]
)
def test_a_shortened_step_does_not_depend_on_the_other_matrices_of_a_batch(options):
    start = point_with_equal_eigenvalues(40, 10, 0.1).double()
    other = point_with_equal_eigenvalues(40, 10, 0.45 / 10**0.5).double()
    G = random_matrix(40, 10, generator=seeded(3))
    alone = gs.landing_step(start, G, step_size=10.0, **options)
    both = gs.landing_step(torch.stack([start, other]), torch.stack([G, G]), step_size=10.0, **options)
    torch.testing.assert_close(both[0], alone)


@pytest.mark.parametrize("make", [gs.LandingSGD, gs.RiemannianSGD])
def test_momentum_of_a_matrix_far_outside_is_not_amplified(make):
    """A load that multiplied X by 1000: its normal part would be a million times too long."""
    X = torch.nn.Parameter(gs.random_stiefel(12, 4, generator=seeded()))
    optimizer = make([X], lr=1e-3, momentum=0.9)
    X.data.mul_(1000)
    step_often(optimizer, X, 1.0, steps=30)
    assert optimizer.state[X]["momentum_buffer"].norm() < 100
