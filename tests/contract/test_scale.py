"""The option `scale`: matrices that are σ times orthonormal, with σ a number, sqrt(out/in), or free."""

import copy
import math
import pickle
from functools import partial

import literal
import pytest
import torch
from contract.factories import (
    ATTACHED,
    HALF,
    LANDING,
    RIEMANNIAN,
    SAFE,
    assert_same,
    copies_of,
    feed,
    landing_of,
    master_of,
    of,
    parameters,
    random_gradients,
    rounding,
    seeded,
    through_a_file,
)
from contract.test_safe_region import SHAPES, STACKED_SHAPES, groups_of, points_inside, set_gradients
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import glideslope as gs
from glideslope.stiefel.views import as_matrices

TYPES = [torch.float32, torch.float64, torch.complex64, torch.bfloat16]
SCALES = [0.1, 3.0, "modular", "free"]
NORMAL_STEPS = [
    {"normal_step": "landing"},
    {"normal_step": "landing", "safeguard": "exact"},
    {"normal_step": "newton-schulz"},
    {"normal_step": "polar"},
]
VIEWS = [*SHAPES, *STACKED_SHAPES, ((4, 10), "split_columns:2"), ((10, 2), "split:2")]


def sigma_of(scale, shape, view):
    """σ by hand; free ones of the tests start at 1.7."""
    if scale == "modular":
        kind, _, blocks = view.partition(":")
        if kind == "matrix":
            return math.sqrt(shape[-2] / shape[-1])
        if kind == "split_columns":
            return math.sqrt(shape[1] / int(blocks) / shape[0])
        return math.sqrt(shape[0] / int(blocks or 1) / math.prod(shape[1:]))
    return 1.7 if scale == "free" else scale


def in_units(optimizer, param, view, scale):
    """The matrices of a parameter, or of its master, divided by σ."""
    point = as_matrices(master_of(optimizer, param), view)
    point = point.float() if point.dtype in HALF else point
    if scale != "free":
        return point / sigma_of(scale, param.shape, view)
    return point / landing_of(optimizer).state[param]["scale"].view(*point.shape[:-2], 1, 1)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("rule", NORMAL_STEPS, ids=str)
def test_no_step_with_lr_1e5_leaves_the_safe_region_of_its_scale(rule, dtype, scale):
    sources = [gs.LandingSGD, partial(gs.LandingSGD, momentum=0.9), gs.LandingAdam]
    for make in sources if scale == "free" else [*sources, ATTACHED["attached AdamW"]]:
        params = points_inside(VIEWS, dtype, 0.27 if scale == "free" else 0.3)  # where ‖X‖_F/√p is not 1.7
        for param, view in params:
            param.data *= sigma_of(scale, param.shape, view)
        optimizer = make(groups_of(params), lr=1e5, safe_radius=0.3, scale=scale, **rule)
        for step in range(3):
            set_gradients(params, step, seeded(step))
            optimizer.step()
            for param, view in params:
                Y = in_units(optimizer, param, view, scale)
                assert torch.isfinite(param).all()
                worst = literal.region_distance(Y, rule["normal_step"], rule.get("safeguard", "lemma")).max()
                assert worst <= 0.3 + 2 * rounding(param, view), (tuple(param.shape), step)
        assert all(sum(row.skipped) == 0 for row in landing_of(optimizer).diagnostics())


@pytest.mark.parametrize("size", [1e-30, 1e8, 1e30])
@pytest.mark.parametrize("make", [gs.LandingSGD, gs.LandingAdam])
@pytest.mark.parametrize("scale", SCALES)
def test_no_size_of_gradient_leads_out_of_a_scaled_region(scale, make, size):
    for dtype in (torch.float32, torch.complex64):
        start = literal.point_at_distance(6, 3, 0.1, dtype=dtype, generator=seeded())
        X = nn.Parameter(start * sigma_of(scale, (6, 3), "matrix"))
        optimizer = make([X], lr=1e5, safe_radius=0.1, normal_step="newton-schulz", scale=scale)
        for seed in range(5):
            X.grad = size * literal.random_matrix(6, 3, dtype=dtype, generator=seeded(seed))
            optimizer.step()
            Y = in_units(optimizer, X, "matrix", scale)
            assert literal.region_distance(Y, "newton-schulz").item() <= 0.1 + 2 * rounding(X)


@pytest.mark.filterwarnings("ignore:.*were shortened to stay")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_free_scale_changes_by_a_factor_of_two_a_step_and_never_overflows(dtype, sign):
    X = nn.Parameter(parameters([(6, 3)], torch.float64)[0].to(dtype))
    optimizer = gs.LandingSGD([X], lr=1e6, scale="free")
    before = 1.0
    for _ in range(600):
        X.grad = sign * X.detach()
        optimizer.step()
        sigma = optimizer.state[X]["scale"].item()
        assert 0.49 < sigma / before < 2.01
        assert torch.isfinite(X).all()
        assert optimizer.diagnostics()[0].distance[0] < 0.5
        before = sigma
    limit = torch.finfo(dtype).tiny if sign > 0 else torch.finfo(dtype).max
    assert sigma == pytest.approx(limit**0.5, rel=1e-3)


@pytest.mark.parametrize("foreach", [True, False])
@of(SAFE)
def test_a_step_is_that_of_x_over_sigma_along_the_same_gradient_with_lr_over_sigma(make, foreach):
    for sigma in (0.3, 2.5):
        plain = parameters()
        scaled = copies_of(plain)
        for X in scaled:
            X.data *= sigma
        gradients = random_gradients(plain, 6)
        feed(make(plain, lr=0.02 / sigma, foreach=foreach), plain, gradients)
        feed(make(scaled, lr=0.02, foreach=foreach, scale=sigma), scaled, gradients)
        assert_same([X / sigma for X in scaled], plain, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex128], ids=str)
@of(LANDING)
def test_a_power_of_two_changes_no_bit(make, dtype):
    plain = parameters(dtype=dtype)
    scaled = copies_of(plain)
    for X in scaled:
        X.data *= 4
    gradients = random_gradients(plain, 4)
    feed(make(plain, lr=0.25), plain, gradients)
    feed(make(scaled, lr=1.0, scale=4.0), scaled, gradients)
    assert_same([X / 4 for X in scaled], plain)


@pytest.mark.parametrize("sigma", [0.3, 2.5])
def test_a_step_is_the_literal_one_and_a_number_keeps_its_pull(sigma):
    """X - lr (T + λ X (X^H X/σ² - I)) with T the tangent part of G at X/σ: lr λ is what it is for σ = 1."""
    lr, attraction = 0.01, 2.0
    Y = literal.point_at_distance(7, 3, 0.1, generator=seeded())
    X, G = nn.Parameter(sigma * Y), literal.random_matrix(7, 3, generator=seeded(1))
    field = literal.skew_matrix(Y, G, "euclidean") @ Y + attraction * sigma * Y @ literal.residual(Y)
    expected = X.detach() - lr * field
    optimizer = gs.LandingSGD([X], lr=lr, attraction=attraction, scale=sigma)
    X.grad = G
    optimizer.step()
    assert_same([X], [expected], 1e-12)


@pytest.mark.parametrize("make", [gs.LandingSGD, partial(gs.LandingSGD, momentum=0.9), gs.LandingAdam])
def test_a_free_step_is_that_of_x_over_sigma_and_one_of_sigma_along_the_radial_part(make):
    scaled = [nn.Parameter(1.5 * X.data) for X in parameters()]
    optimizer = make(scaled, lr=0.02, scale="free")
    adam = isinstance(optimizer, gs.LandingAdam)
    for step, gradients in enumerate(random_gradients(scaled, 4)):
        before = [X.detach().clone() for X in scaled]
        sigmas = [optimizer.state[X]["scale"].clone() if step else None for X in scaled]
        feed(optimizer, scaled, [gradients])
        for X, old, sigma, G in zip(scaled, before, sigmas, gradients, strict=True):
            old, G = (as_matrices(M, "matrix").reshape(-1, *as_matrices(M, "matrix").shape[-2:]) for M in (old, G))
            p = old.shape[-1]
            sigma = literal.norm(old) / p**0.5 if sigma is None else sigma
            radial = (old * G).sum(dim=(-2, -1)) / sigma / p
            change = sigma - optimizer.state[X]["scale"]
            if not adam:
                torch.testing.assert_close(change, 0.02 * radial)
            elif step == 0:  # Adam's first step has size lr
                torch.testing.assert_close(change, 0.02 * radial.sign(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("name", LANDING)
def test_a_free_scale_that_feels_no_radial_gradient_steps_as_a_fixed_one(name):
    """So a scale-free loss does not make weights grow, as it does without a constraint."""
    free, fixed = ([nn.Parameter(1.5 * X.data) for X in parameters()] for _ in range(2))
    optimizers = [LANDING[name](free, lr=0.05, scale="free"), LANDING[name](fixed, lr=0.05, scale=1.5)]
    for gradients in random_gradients(free, 5):
        for params, optimizer in zip((free, fixed), optimizers, strict=True):
            tangent = []
            for X, G in zip(params, gradients, strict=True):
                X, G = (as_matrices(M.detach(), "matrix") for M in (X, G))
                shift = (X * G).sum((-2, -1), keepdim=True) / (X * X).sum((-2, -1), keepdim=True)
                G = G - shift * X
                tangent.append(G)
            feed(optimizer, params, [[t if t.shape == X.shape else t.mT for t, X in zip(tangent, params, strict=True)]])
    assert_same(free, fixed, 1e-6 if name == "LandingAdam" else 1e-10)


class Operations(TorchDispatchMode):
    """Names of the operations of a block."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("shape", [(300, 120), (6, 3)])
def test_a_scale_of_one_has_no_operation_of_its_own(shape):
    counted = []
    for scale in (1.0, 2.0, "free"):
        X = nn.Parameter(parameters([shape], torch.float32)[0].data * (scale if scale == 2.0 else 1.0))
        optimizer = gs.LandingSGD([X], lr=0.1, scale=scale)
        for _ in range(2):
            X.grad = torch.ones_like(X)
            with Operations() as operations:
                optimizer.step()
        counted.append(len(operations.names))
    none, number, free = counted
    assert number - none == 2  # X.div_(σ) and X.mul_(σ)
    assert free > number


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("bad", [torch.nan, 0.0])
def test_no_gradient_to_follow_leaves_a_matrix_as_it_was_up_to_one_rounding(dtype, scale, bad):
    params = [nn.Parameter(X.data * sigma_of(scale, X.shape, "matrix")) for X in parameters(dtype=dtype)]
    before = [X.detach().clone() for X in params]
    optimizer = gs.LandingAdam(params, lr=0.0 if bad == 0 else 0.1, scale=scale, weight_decay=0.1)
    feed(optimizer, params, [[torch.full_like(X, bad or 1.0) for X in params]])
    assert_same(params, before, 4 * torch.finfo(dtype).eps)
    assert all(min(row.skipped) == (0 if bad == 0 else 1) for row in optimizer.diagnostics())


@pytest.mark.parametrize("scale", [3.0, "free"])
@pytest.mark.parametrize("shape", [(300, 120), (6, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_an_error_inside_a_step_does_not_leave_a_matrix_divided(monkeypatch, shape, dtype, scale):
    X = nn.Parameter((3 * parameters([shape], torch.float32)[0].data).to(dtype))
    optimizer = gs.LandingSGD([X], lr=0.1, scale=scale)
    X.grad = torch.ones_like(X)
    optimizer.step()
    before, master = X.detach().clone(), master_of(optimizer, X).clone()

    def failing(*_, **__):
        raise MemoryError

    monkeypatch.setattr("glideslope.optim.bucket.take_step", failing)
    with pytest.raises(MemoryError):
        optimizer.step()
    assert_same([X, master_of(optimizer, X)], [before, master], 2 * torch.finfo(torch.float32).eps)


@pytest.mark.parametrize("make", [partial(gs.LandingSGD, momentum=0.5), gs.LandingAdam])
@pytest.mark.parametrize("scale", SCALES)
def test_the_nearest_scaled_matrix_is_found(make, scale):
    """Of ½ ‖X - B‖²: σ times the polar factor U of B, and a free σ is the mean singular value <U, B>/p."""
    B = literal.random_matrix(8, 3, generator=seeded(3))
    left, values, right = torch.linalg.svd(B, full_matrices=False)
    sigma = values.mean().item() if scale == "free" else sigma_of(scale, (8, 3), "matrix")
    X = nn.Parameter(parameters([(8, 3)])[0].data * sigma_of(scale, (8, 3), "matrix"))
    optimizer = make([X], lr=0.05, scale=scale)
    decays = make is gs.LandingAdam
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: (1 - min(k, 1499) / 1500) ** 2 if decays else 1)
    for _ in range(1500):
        X.grad = X.detach() - B
        optimizer.step()
        schedule.step()
    assert_same([X], [sigma * left @ right], 1e-4)


@pytest.mark.parametrize("scale", [2.0, "free"])
def test_weight_decay_acts_on_a_free_scale_only(scale):
    B = literal.random_matrix(8, 3, generator=seeded(3))
    left, values, right = torch.linalg.svd(B, full_matrices=False)
    X = nn.Parameter(2.0 * parameters([(8, 3)])[0].data)
    optimizer = gs.LandingSGD([X], lr=0.1, scale=scale, weight_decay=0.5)
    for _ in range(1000):
        X.grad = X.detach() - B
        optimizer.step()
    sigma = values.mean().item() / 1.5 if scale == "free" else 2.0
    assert_same([X], [sigma * left @ right], 1e-6)
    X = nn.Parameter(2.0 * parameters([(8, 3)])[0].data)
    optimizer = gs.LandingAdam([X], lr=0.1, scale=scale, weight_decay=0.5)
    feed(optimizer, [X], [[torch.zeros_like(X)]])
    assert X.norm().item() / 3**0.5 == pytest.approx(2.0 * (0.95 if scale == "free" else 1.0))


def test_a_free_scale_follows_a_matrix_that_was_replaced():
    X = nn.Parameter(parameters([(6, 3)])[0].data)
    optimizer = gs.LandingSGD([X], lr=0.0, scale="free")
    feed(optimizer, [X], random_gradients([X], 2))
    X.data *= 5
    feed(optimizer, [X], random_gradients([X], 1))
    assert optimizer.state[X]["scale"].item() == pytest.approx(5.0)
    assert optimizer.diagnostics()[0].recovered == [0]


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("make", [partial(gs.LandingSGD, momentum=0.9), gs.LandingAdam])
@pytest.mark.parametrize("scale", [3.0, "free"])
def test_a_loaded_state_continues_bit_identically(make, scale, dtype, foreach):
    params = [nn.Parameter(3 * X.data) for X in parameters(dtype=dtype)]
    gradients = random_gradients(params, 6)
    optimizer = make(params, lr=0.05, scale=scale, foreach=foreach)
    feed(optimizer, params, gradients[:3])
    saved, fresh = through_a_file(optimizer.state_dict()), copies_of(params)
    resumed = make(fresh, lr=0.05, scale=scale, foreach=foreach)
    resumed.load_state_dict(saved)
    feed(optimizer, params, gradients[3:])
    feed(resumed, fresh, gradients[3:])
    assert_same(fresh, params)


def test_a_checkpoint_of_a_job_continues_bit_identically(tmp_path):
    made = []
    for _ in range(2):
        model = network()
        gs.orthogonalize_(model, scale="free")
        made.append((model, gs.LandingAdam(model, lr=0.05)))
    (model, optimizer), (fresh, resumed) = made
    params, others = list(model.parameters()), list(fresh.parameters())
    gradients = random_gradients(params, 6)
    feed(optimizer, params, gradients[:3])
    gs.save_checkpoint(tmp_path, 3, model, optimizer)
    feed(optimizer, params, gradients[3:])
    assert gs.load_checkpoint(tmp_path, fresh, resumed) == 3
    feed(resumed, others, gradients[3:])
    assert_same(others, params)


def test_a_state_without_scales_can_be_loaded():
    (X,) = parameters([(6, 3)])
    optimizer = gs.LandingSGD([X], lr=0.1)
    saved = optimizer.state_dict()
    del saved["param_groups"][0]["scale"]
    optimizer.load_state_dict(saved)
    feed(optimizer, [X], random_gradients([X], 1))
    assert optimizer.param_groups[0]["scale"] == 1.0


def network():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3, bias=False), nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 4, 2)
    )


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("copied", [lambda m: m, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_models_keep_their_scale_through_copies_optimizers_reports_and_projections(scale, copied):
    model = network()
    norms = {name: weight.norm().item() for name, weight in model.named_parameters()}
    names = gs.orthogonalize_(model, scale=scale)
    model = copied(model)
    for bare in (False, True):
        optimizer = gs.LandingSGD(model.parameters() if bare else gs.param_groups(model), lr=0.1)
        assert {g.get("scale") for g in optimizer.param_groups if g["orthogonal"]} == {scale}
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 6, generator=seeded())).square().sum().backward()
        optimizer.step()
    for name, row in zip(names, gs.orthogonality(model), strict=True):
        weight = model.get_parameter(name)
        if scale != "free":
            assert row.scale == pytest.approx(sigma_of(scale, weight.shape, row.view))
        assert 0 < row.distance < 0.5
        assert row.smallest == pytest.approx(row.scale, rel=0.5)
    assert "scale" in str(gs.orthogonality(model)).splitlines()[0]
    gs.project_(model)
    assert gs.orthogonality(model).largest_distance < 1e-6
    gs.release_(model)
    assert not any("_glideslope" in key for module in model.modules() for key in vars(module))
    fresh = network()
    gs.orthogonalize_(fresh, scale="free")
    for name in names:
        assert fresh.get_parameter(name).norm().item() == pytest.approx(norms[name])
    gs.orthogonalize_(fresh)
    assert {row.scale for row in gs.orthogonality(fresh)} == {1.0}


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_a_scripted_model_keeps_its_scale():
    model = network()
    gs.orthogonalize_(model, scale=0.5)
    scripted = torch.jit.script(model)
    assert {group.get("scale") for group in gs.param_groups(scripted) if group["orthogonal"]} == {0.5}


@pytest.mark.parametrize("bad", [0, -1.0, math.inf, math.nan, True, "modula", None])
def test_bad_scales_are_refused(bad):
    for make in (lambda: gs.LandingSGD(parameters(), scale=bad), lambda: gs.orthogonalize_(network(), scale=bad)):
        with pytest.raises(ValueError, match='scale must be a finite number > 0, "modular" or "free"'):
            make()


def test_what_cannot_have_a_scale_says_so():
    for make in (*RIEMANNIAN.values(), gs.PenaltySGD):
        with pytest.raises(ValueError, match=r"has no scales, and this group has scale=2.0; use LandingSGD"):
            make([{"params": parameters(), "scale": 2.0}])
    with pytest.raises(ValueError, match=r"attach_landing: scale=\"free\" needs the radial part"):
        ATTACHED["attached SGD"](parameters(), scale="free")
    with pytest.raises(ValueError, match=r'scale="free" needs attraction="auto"'):
        gs.LandingSGD(parameters(), scale="free", attraction=1.0)


def test_a_start_that_is_not_scaled_is_refused_with_the_line_that_mends_it():
    (X,) = parameters([(8, 2)])
    with pytest.raises(
        ValueError, match=r"from 2 times orthonormal .*orthogonalize_\(model, scale='modular'\).*X\) \* 2 "
    ):
        gs.LandingSGD([X], scale="modular")
    X.data = gs.project(X.data) * 2
    gs.LandingSGD([X], scale="modular")
    gs.LandingSGD([nn.Parameter(7 * X.data)], scale="free")
    with pytest.raises(ValueError, match="from σ times orthonormal"):
        gs.LandingSGD([nn.Parameter(literal.random_matrix(8, 2, generator=seeded()))], scale="free")


@pytest.mark.parametrize("make", [gs.LandingSGD, gs.LandingAdam])
def test_a_matrix_that_is_skipped_or_recovers_keeps_its_free_scale(make):
    X, Y = (nn.Parameter(2 * one.data) for one in parameters([(6, 3), (6, 3)]))
    optimizer = make([X, Y], lr=0.1, scale="free", foreach=True)
    feed(optimizer, [X, Y], random_gradients([X, Y], 1))
    before = [optimizer.state[one]["scale"].item() for one in (X, Y)]
    infinite = torch.ones_like(X)
    infinite[0, 0] = torch.inf * X[0, 0].sign()
    Y.data *= torch.tensor([1.6, 1.0, 0.5])  # of about the same norm, and outside
    feed(optimizer, [X, Y], [[infinite, 10 * Y.detach()]])
    assert [optimizer.state[one]["scale"].item() for one in (X, Y)] == before
    (skipped,), (recovered,) = optimizer.diagnostics()[0].skipped, optimizer.diagnostics()[1].recovered
    assert (skipped, recovered) == (1, 1)


@pytest.mark.parametrize("scale", [1.0, "free"])
def test_a_start_is_judged_by_its_worst_matrix_and_one_that_is_not_finite_is_the_worst(scale):
    (X,) = parameters([(3, 6, 2)])
    X.data[1, 0, 0] = torch.nan
    with pytest.raises(ValueError, match="starts at distance nan"):
        gs.LandingSGD([X], scale=scale)
