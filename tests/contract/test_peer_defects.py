"""The defects seen in peers: no optimizer of ours has one. That the checks can fail: test_checks_catch_defects.py."""

import inspect
from functools import partial

import literal
import pytest
import torch
from contract import checks
from contract.factories import (
    ALL,
    ATTACHED,
    CLASSES,
    LANDING,
    OWN,
    RIEMANNIAN,
    SAFE,
    assert_same,
    feed,
    of,
    parameters,
    random_gradients,
)

import glideslope as gs
from glideslope.engine.rule import StepRule

LANDING_NORMAL = {name: SAFE[name] for name in SAFE if "newton" not in name and "polar" not in name}
FACTORED = {name: RIEMANNIAN[name] for name in ("RiemannianSGD qr", "RiemannianSGD polar")}
MOMENTUM_OPTIONS = [
    {"momentum": 0.9},
    {"momentum": 0.9, "dampening": 0.5},
    {"momentum": 0.9, "nesterov": True},
    {"dampening": 0.5},
]
BAD = [torch.nan, torch.inf, 1e6]


@of(ALL)
@pytest.mark.parametrize("foreach", [True, False])
def test_permuting_parameters_does_not_change_the_result(make, foreach):
    checks.check_permuting_parameters_does_not_change_the_result(make, foreach=foreach)


@of(LANDING_NORMAL)
def test_lr_1_with_attraction_10_does_not_collapse_the_matrix(make):
    # The exact safeguard allows steps beyond 1/(2λ): they stay inside but need not converge.
    exact = make is LANDING["LandingSGD exact euclidean"]
    checks.check_a_strong_attraction_does_not_collapse_the_matrix(make, converges=not exact)


@of(ALL)
def test_an_exact_stationary_point_stays_put(make):
    # A gradient normal to the manifold moves the penalty baseline, by design.
    checks.check_an_exact_stationary_point_stays_put(make, normal=0.0 if make is gs.PenaltySGD else 2.0)


@of({**SAFE, **FACTORED})
def test_a_start_from_outside_comes_back(make):
    checks.check_a_start_from_outside_comes_back(make)


@of({**SAFE, **RIEMANNIAN})
def test_wide_matrices_have_orthonormal_rows(make):
    checks.check_wide_matrices_have_orthonormal_rows(make)


def penalised(X, G, lr):
    return X - lr * G


def retracted(X, G, lr):
    left, _, right = torch.linalg.svd(X - lr * literal.skew(G @ X.mH) @ X, full_matrices=False)
    return left @ right


@pytest.mark.parametrize("options", MOMENTUM_OPTIONS, ids=str)
@pytest.mark.parametrize(
    ("make", "step"),
    [
        (partial(gs.LandingSGD, **gs.PAPER_OPTIONS), checks.literal_landing),
        (partial(gs.LandingSGD, foreach=True, **gs.PAPER_OPTIONS), checks.literal_landing),
        (partial(gs.RiemannianSGD, retraction="polar", metric="canonical"), retracted),
        (partial(gs.PenaltySGD, penalty_weight=1e-30), penalised),  # unconstrained: its momentum is torch's
    ],
    ids=["LandingSGD", "LandingSGD stacked", "RiemannianSGD", "PenaltySGD"],
)
def test_momentum_nesterov_and_dampening_have_the_effect_torch_gives_them(make, step, options):
    checks.check_momentum_is_that_of_torch(make, step, tangent=step is not penalised, **options)


SGD_DEFAULTS = {"lr": 1e-3, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False}
LANDING_DEFAULTS = {
    "attraction": "auto",
    "safe_radius": 0.5,
    "safeguard": "lemma",
    "metric": "euclidean",
    "normal_step": "landing",
}
DEFAULTS = {
    "LandingSGD": {**SGD_DEFAULTS, **LANDING_DEFAULTS, "scale": 1.0, "maximize": False, "foreach": None},
    "LandingAdam": {
        "lr": 1e-3,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 0,
        **LANDING_DEFAULTS,
        "normal_step": "newton-schulz",
        "scale": 1.0,
        "maximize": False,
        "foreach": None,
    },
    "RiemannianSGD": {
        **SGD_DEFAULTS,
        "retraction": "qr",
        "metric": "euclidean",
        "safe_radius": 0.5,
        "maximize": False,
        "foreach": None,
    },
    "PenaltySGD": {**SGD_DEFAULTS, "penalty_weight": 1.0, "maximize": False, "foreach": None},
    "attach_landing": {**LANDING_DEFAULTS, "normal_step": "newton-schulz", "scale": 1.0, "foreach": None},
}


def test_every_landing_step_has_one_set_of_defaults():
    """The optimizers' are checked below; the normal step of Adam and attached optimizers is another, by measurement."""
    assert {name: getattr(StepRule(), name) for name in LANDING_DEFAULTS} == LANDING_DEFAULTS
    for function in (gs.landing_step, gs.formulas.landing_step, gs.minimize):
        parameters_of = inspect.signature(function).parameters
        assert {name: parameters_of[name].default for name in LANDING_DEFAULTS} == LANDING_DEFAULTS


def test_the_options_of_the_paper_are_one_word_away():
    assert gs.PAPER_OPTIONS.keys() == LANDING_DEFAULTS.keys()
    X = parameters([(5, 3)])[0]
    (group,) = gs.LandingSGD([X], **gs.PAPER_OPTIONS).param_groups
    assert (group["attraction"], group["metric"], group["normal_step"]) == (1.0, "canonical", "landing")


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_defaults_are_those_of_the_design_and_of_the_docstring(name):
    checks.check_documented_defaults(getattr(gs, name), DEFAULTS[name])


@pytest.mark.parametrize("name", CLASSES)
def test_the_groups_hold_the_defaults_that_the_signature_states(name):
    (group,) = CLASSES[name](parameters([(5, 3)])).param_groups
    assert {key: group[key] for key in DEFAULTS[name]} == DEFAULTS[name]


@of(ALL)
def test_nothing_of_the_callers_is_written(make):
    checks.check_nothing_of_the_callers_is_written(make)


@of(OWN)
def test_weight_decay_and_maximize_are_not_written_into_the_gradient(make):
    checks.check_nothing_of_the_callers_is_written(make, weight_decay=0.1, maximize=True)


@of(ALL)
def test_a_closure_is_called_once_and_its_loss_returned(make):
    checks.check_a_closure_is_called_once_and_its_loss_returned(make)


@of(ALL)
def test_a_generator_of_parameters_is_accepted(make):
    checks.check_a_generator_of_parameters_is_accepted(make)


def test_attach_landing_accepts_a_generator_of_parameters():
    params = parameters()
    optimizer = gs.attach_landing(torch.optim.SGD(params, lr=0.1), (param for param in params))
    feed(optimizer, params, random_gradients(params, 2))
    assert len(optimizer.landing.diagnostics()) == len(params)


@of(ALL)
def test_a_state_can_be_saved(make):
    checks.check_a_state_can_be_saved(make)


@of(ALL)
def test_a_gradient_may_appear_later(make):
    checks.check_a_gradient_may_appear_later(make)


@pytest.mark.parametrize("bad", BAD)
@of(OWN)
def test_a_bad_matrix_does_not_change_the_others(make, bad):
    checks.check_a_bad_matrix_does_not_change_the_others(make, bad)


@pytest.mark.parametrize("bad", BAD)
@of(ATTACHED)
def test_a_bad_matrix_does_not_change_the_others_of_an_attached_optimizer(make, bad):
    checks.check_a_bad_matrix_does_not_change_the_others(make, bad)


@of(LANDING)
def test_lr_10_without_a_safeguard_stays_finite(make):
    checks.check_a_long_step_stays_finite(partial(make), inside=False, safeguard=None)


@of({**SAFE, **RIEMANNIAN})
def test_lr_10_stays_inside(make):
    checks.check_a_long_step_stays_finite(make, inside=True)


def test_lr_10_leaves_penalty_sgd_finite():
    checks.check_a_long_step_stays_finite(gs.PenaltySGD, inside=False)


@pytest.mark.parametrize("retraction", ["qr", "polar"])
def test_riemannian_sgd_follows_the_literal_formula(retraction):
    checks.check_twenty_steps_follow_the_literal_formula(gs.RiemannianSGD, retraction)


def test_riemannian_sgd_follows_geoopt():
    import geoopt

    (start,) = parameters([(7, 3)])
    ours = torch.nn.Parameter(start.detach().clone())
    theirs = geoopt.ManifoldParameter(start.detach().clone(), manifold=geoopt.EuclideanStiefel())
    gradients = random_gradients([start], 20)
    feed(gs.RiemannianSGD([ours], lr=0.1, metric="euclidean"), [ours], gradients)
    feed(geoopt.optim.RiemannianSGD([theirs], lr=0.1), [theirs], gradients)
    assert_same([ours], [theirs], tolerance=1e-12)
