"""The guarantee: from inside the safe region no finite gradient, learning rate or gradient source leads out of it."""

from functools import cache, partial

import pytest
import torch
from contract.factories import HALF, attached, distances, landing_of, rounding, seeded
from literal import point_at_distance, random_matrix, sym

import glideslope as gs
from glideslope.stiefel.views import as_matrices, copy_matrices_, matrix_shape

SOURCES = {
    "sgd": gs.LandingSGD,
    "momentum": partial(gs.LandingSGD, momentum=0.9),
    "nesterov": partial(gs.LandingSGD, momentum=0.9, nesterov=True),
    "adam": gs.LandingAdam,
    "attached AdamW": attached(torch.optim.AdamW),
    "attached SGD": attached(torch.optim.SGD, momentum=0.9),
}
if hasattr(torch.optim, "Muon"):
    SOURCES["attached Muon"] = attached(torch.optim.Muon)
TYPES = [torch.float32, torch.float64, torch.complex64, torch.bfloat16]
SHAPES = [((7, 3), "matrix"), ((3, 8), "matrix"), ((4, 4), "matrix"), ((1, 1), "matrix")]
STACKED_SHAPES = [((3, 6, 2), "matrix"), ((4, 3, 2, 2), "conv"), ((8, 2, 3), "grouped_conv:2")]
NORMAL_STEPS = ["landing", "newton-schulz", "polar"]
RULES = [
    {"safe_radius": radius, "attraction": attraction, "normal_step": normal_step, "safeguard": safeguard, **metric}
    for radius in (0.3, 0.1, 0.01)
    for attraction in (0.1, "auto", 10.0)
    for normal_step, safeguard, metric in [
        ("landing", "lemma", {}),
        ("landing", "exact", {"metric": "euclidean"}),
        ("newton-schulz", "lemma", {"metric": "euclidean"}),
        ("newton-schulz", "exact", {}),
        ("polar", "lemma", {}),
        ("polar", "exact", {"metric": "euclidean"}),
    ]
]
STEPS = 2


@cache
def start(shape, view, dtype, distance):
    """A random tensor whose matrices are at the given distance."""
    *batch, n, p = matrix_shape(shape, view)
    wide = torch.float32 if dtype in HALF else dtype
    X = point_at_distance(n, p, distance, batch=batch, dtype=wide, generator=seeded())
    return copy_matrices_(torch.zeros(shape, dtype=dtype), X, view)


def points_inside(shapes, dtype, radius):
    """One parameter per shape, from the manifold to the boundary of the safe region."""
    fractions = [0.0 if dtype in HALF else (i % 3) / 2 for i in range(len(shapes))]
    starts = [start(*one, dtype, fraction * radius) for one, fraction in zip(shapes, fractions, strict=True)]
    return [(torch.nn.Parameter(X.clone()), view) for X, (_, view) in zip(starts, shapes, strict=True)]


def set_gradients(params, step, generator):
    """Random gradients, in every second step plus a large one normal to the manifold."""
    for param, view in params:
        dtype = torch.float32 if param.dtype in HALF else param.dtype
        gradient = random_matrix(*param.shape, dtype=dtype, generator=generator)
        if step % 2:
            X = as_matrices(param.detach().to(dtype), view)
            S = random_matrix(*X.shape[:-2], X.shape[-1], X.shape[-1], dtype=dtype, generator=generator)
            normal = torch.empty_like(gradient)
            copy_matrices_(normal, 1e3 * X @ sym(S), view)
            gradient = gradient + normal
        param.grad = gradient.to(param.dtype)


def groups_of(params):
    views = dict.fromkeys(view for _, view in params)
    return [{"params": [param for param, given in params if given == view], "view": view} for view in views]


def check_no_step_leaves_the_safe_region(make, dtype, shapes, rule, lr=1e5, seed=0):
    generator = seeded(seed)
    params = points_inside(shapes, dtype, rule["safe_radius"])
    optimizer = make(groups_of(params), lr=lr, **rule)
    for step in range(STEPS):
        set_gradients(params, step, generator)
        optimizer.step()
        for param, view in params:
            assert torch.isfinite(param).all()
            worst = distances(param, view, optimizer).max().item()
            assert worst <= rule["safe_radius"] + rounding(param, view), (tuple(param.shape), step, rule)
    return params, optimizer


def shapes_for(source):
    return SHAPES if source == "attached Muon" else SHAPES + STACKED_SHAPES


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("source", SOURCES)
def test_no_step_with_lr_1e5_leaves_the_safe_region(source, dtype):
    if source == "attached Muon" and dtype.is_complex:
        pytest.skip("Muon takes real matrices only")
    types = [one for one in TYPES if source != "attached Muon" or not one.is_complex]
    offset = list(SOURCES).index(source) + types.index(dtype)
    for i, rule in enumerate(RULES):
        # Every source meets every rule, in one type; every type meets every rule, from one source or two.
        if (i + offset) % len(types) == 0:
            check_no_step_leaves_the_safe_region(SOURCES[source], dtype, shapes_for(source), rule, seed=i)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("source", SOURCES)
def test_no_step_with_lr_1e5_leaves_the_safe_region_for_any_rule_in_any_type(source, dtype):
    """The whole product of which the test above takes a quarter."""
    if source == "attached Muon" and dtype.is_complex:
        pytest.skip("Muon takes real matrices only")
    for i, rule in enumerate(RULES):
        check_no_step_leaves_the_safe_region(SOURCES[source], dtype, shapes_for(source), rule, seed=100 + i)


@pytest.mark.parametrize("source", SOURCES)
def test_a_step_with_lr_1e5_moves_the_point(source):
    """The region is not kept by standing still."""
    rule = RULES[0]
    params, optimizer = check_no_step_leaves_the_safe_region(SOURCES[source], torch.float64, SHAPES, rule)
    fresh = points_inside(SHAPES, torch.float64, rule["safe_radius"])
    for (param, _), (first, _) in zip(params[:2], fresh, strict=False):
        assert (param - first).abs().max() > 1e-3
    assert all(row.skipped == [0] for row in landing_of(optimizer).diagnostics())


@pytest.mark.parametrize("size", [1e-30, 1e-8, 1e8, 1e30])
@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
def test_no_size_of_gradient_leads_out(normal_step, size):
    rule = {"safe_radius": 0.1, "attraction": 1.0, "normal_step": normal_step}
    for dtype in (torch.float32, torch.complex64):
        X = torch.nn.Parameter(point_at_distance(6, 3, 0.1, dtype=dtype, generator=seeded()))
        optimizer = gs.LandingSGD([X], lr=1e5, momentum=0.5, **rule)
        for seed in range(5):
            X.grad = size * random_matrix(6, 3, dtype=dtype, generator=seeded(seed))
            optimizer.step()
            assert distances(X).item() <= 0.1 + rounding(X)


@pytest.mark.parametrize("retraction", ["qr", "polar", "cayley", "exponential"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_riemannian_sgd_stays_orthonormal_with_lr_1e5(retraction, dtype):
    params = points_inside(SHAPES + STACKED_SHAPES, dtype, 0.0)
    optimizer = gs.RiemannianSGD(groups_of(params), lr=1e5, retraction=retraction)
    for step in range(5):
        set_gradients(params, step, seeded(step))
        optimizer.step()
        # QR and polar start anew; the others lose up to 8 units times the longest step, 100, and keep the loss.
        bound = 1e-5 if retraction in ("qr", "polar") else 8 * 100 * torch.finfo(torch.float32).eps * (step + 1)
        assert all(distances(param, view).max() < bound for param, view in params)


def test_the_check_catches_a_step_without_a_safeguard():
    unguarded = partial(gs.LandingSGD, safe_radius=0.3)
    rule = {"safe_radius": 0.3, "safeguard": None}
    with pytest.raises(AssertionError):
        check_no_step_leaves_the_safe_region(unguarded, torch.float64, SHAPES, rule, lr=10.0)


@pytest.mark.filterwarnings("ignore:.*were shortened to stay")
@pytest.mark.parametrize("source", ["momentum", "adam", "attached AdamW"])
def test_two_hundred_steps_at_a_large_lr_stay_inside(source):
    X = torch.nn.Parameter(gs.random_stiefel(20, 5, generator=seeded()))
    optimizer = SOURCES[source]([X], lr=1.0, safe_radius=0.3)
    generator, worst = seeded(1), 0.0
    for _ in range(200):
        X.grad = random_matrix(20, 5, dtype=torch.float32, generator=generator)
        optimizer.step()
        worst = max(worst, distances(X).item())
    assert 1e-2 < worst <= 0.3 + rounding(X)


@pytest.mark.parametrize("options", [{"momentum": 0.9}, {"momentum": 0.9, "nesterov": True}], ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (6, 3), (2, 6, 3)])
def test_momentum_of_gradients_near_the_largest_number_never_overflows_the_buffer(shape, options):
    """Ten gradients in one direction add up to more than float32 holds; later ones of usual size are followed again."""
    X = torch.nn.Parameter(gs.random_stiefel(*shape[-2:], batch=shape[:-2], generator=seeded()))
    optimizer = gs.LandingSGD([X], lr=0.1, **options)
    for _ in range(12):
        X.grad = torch.full(shape, torch.finfo(X.dtype).max / 20)
        X.grad[..., ::2, :] *= -1
        optimizer.step()
        assert distances(X).max() <= 0.5
        assert torch.isfinite(optimizer.state[X]["momentum_buffer"]).all()
    before = optimizer.diagnostics()[0].skipped
    X.grad = torch.ones(shape)
    optimizer.step()
    assert optimizer.diagnostics()[0].skipped == before


@pytest.mark.parametrize(("dtype", "scale"), [(torch.float32, 2.0**100), (torch.float64, 2.0**660)])
@pytest.mark.parametrize("shape", [(6, 3), (2, 5, 5)])
def test_adam_moves_alike_for_gradients_whose_squares_overflow(shape, dtype, scale):
    start = gs.random_stiefel(*shape[-2:], batch=shape[:-2], dtype=dtype, generator=seeded())
    usual, large = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    optimizers = [gs.LandingAdam([X], lr=0.01, eps=0) for X in (usual, large)]
    for seed in range(3):
        usual.grad = random_matrix(*shape, dtype=dtype, generator=seeded(seed))
        large.grad = usual.grad * scale
        for optimizer in optimizers:
            optimizer.step()
    assert (usual - start).norm() > 0.01
    torch.testing.assert_close(large, usual)
