"""What is refused, in words that say which parameter and what to do, and that a refusal changes nothing."""

import numpy as np
import pytest
import torch
from contract.factories import (
    ATTACHED,
    CLASSES,
    SAFE,
    assert_same,
    copies_of,
    feed,
    of,
    orthonormal,
    parameters,
    random_gradients,
)

import glideslope as gs

LANDING_CLASSES = {"LandingSGD": gs.LandingSGD, "LandingAdam": gs.LandingAdam}
KEEPING = {**LANDING_CLASSES, "RiemannianSGD": gs.RiemannianSGD}
SGD_CLASSES = {name: cls for name, cls in CLASSES.items() if name != "LandingAdam"}


@of({**SAFE, "RiemannianSGD": gs.RiemannianSGD})
def test_a_start_outside_names_the_parameter_its_distance_and_the_call_that_mends_it(make):
    good, bad = parameters([(6, 3), (6, 3)])
    bad.data.mul_(2.0)
    with pytest.raises(ValueError, match=r"parameter 1.*\(6, 3\).*5\.2.*0\.5.*gs\.orthogonalize_.*gs\.project\("):
        make([good, bad], lr=0.1)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (2, 3, 6)])
def test_the_call_in_the_message_mends_it(shape):
    (X,) = parameters([shape])
    X.data.mul_(2.0)
    with pytest.raises(ValueError, match=r"X\.data = gs\.") as refusal:
        gs.LandingSGD([X])
    advice = str(refusal.value).partition("X.data = ")[2].partition(" for a matrix X")[0]
    X.data = eval(advice, {"gs": gs, "X": X.detach()})
    assert gs.LandingSGD([X]).diagnostics()[0].distance[0] < 1e-12


def test_a_named_parameter_is_called_by_its_name():
    model = torch.nn.Linear(6, 3)
    with pytest.raises(ValueError, match=r"LandingSGD: parameter 'weight' of shape \(3, 6\)"):
        gs.LandingSGD([("weight", model.weight)])


@of(SAFE)
def test_a_start_that_is_not_finite_is_refused(make):
    (X,) = parameters([(6, 3)])
    X.data[0, 0] = torch.nan
    with pytest.raises(ValueError, match="nan"):
        make([X], lr=0.1)


@of(SAFE)
def test_one_matrix_of_a_batch_outside_is_enough_to_refuse(make):
    (X,) = parameters([(4, 5, 3)])
    X.data[2] *= 3
    with pytest.raises(ValueError, match=r"starts at distance 13\.9"):
        make([X], lr=0.1)


def test_the_penalty_baseline_starts_anywhere():
    (X,) = parameters([(6, 3)])
    X.data.mul_(2.0)
    assert gs.PenaltySGD([X]).diagnostics()[0].distance[0] > 5


@of(CLASSES)
def test_a_kernel_without_a_view_says_what_to_write(make):
    kernel = torch.nn.Parameter(orthonormal((4, 18)).view(4, 2, 3, 3))
    with pytest.raises(ValueError, match=r'parameter 0.*\(4, 2, 3, 3\).*view="conv".*orthogonal=False'):
        make([kernel])
    make([{"params": [kernel], "view": "conv"}])
    make([{"params": [kernel], "orthogonal": False}])


@of(CLASSES)
def test_a_bias_is_refused_as_a_matrix(make):
    with pytest.raises(ValueError, match=r"parameter 0.*\(5,\)"):
        make([torch.nn.Parameter(torch.zeros(5))])


@of(CLASSES)
def test_an_integer_parameter_is_refused_by_type(make):
    whole = torch.nn.Parameter(torch.eye(3, dtype=torch.int64), requires_grad=False)
    with pytest.raises(ValueError, match=r"parameter 0.*int64.*floating point or complex"):
        make([whole])


@of(CLASSES)
@pytest.mark.parametrize("view", ["kernel", "split:0", "split:4", "conv"])
def test_a_view_that_does_not_fit_is_refused_by_name(make, view):
    with pytest.raises(ValueError, match=rf"(parameter 0|view).*{view}"):
        make([{"params": parameters([(6, 3)]), "view": view}])


@of(CLASSES)
@pytest.mark.parametrize("option", ["attract", "safe_radios", "lambda_"])
def test_an_unknown_option_is_refused(make, option):
    with pytest.raises(TypeError, match=option):
        make(parameters([(6, 3)]), **{option: 0.1})


BAD_OPTIONS = [
    (CLASSES, "lr", [-0.1, float("nan"), float("inf"), "0.1", None, True, torch.tensor([0.1, 0.2])]),
    (CLASSES, "weight_decay", [-0.1, float("nan")]),
    (SGD_CLASSES, "momentum", [-0.1, float("nan"), float("inf"), "0.9"]),
    (SGD_CLASSES, "dampening", [float("nan"), "0.5", None]),
    (LANDING_CLASSES, "attraction", [0, -1.0, float("nan"), float("inf")]),
    (LANDING_CLASSES, "safe_radius", [0, 1.0, -0.5, float("nan")]),
    (LANDING_CLASSES, "safeguard", ["lemmma", True, "none"]),
    (LANDING_CLASSES, "metric", ["canonic", None]),
    (LANDING_CLASSES, "normal_step", ["newton", None]),
    ({"LandingAdam": gs.LandingAdam}, "betas", [(0.9, 1.0), (-0.1, 0.9), (0.9,), 0.9, None, (float("nan"), 0.9)]),
    ({"LandingAdam": gs.LandingAdam}, "eps", [-1e-8, float("nan")]),
    ({"RiemannianSGD": gs.RiemannianSGD}, "retraction", ["svd", None]),
    ({"RiemannianSGD": gs.RiemannianSGD}, "metric", ["canonic"]),
    ({"PenaltySGD": gs.PenaltySGD}, "penalty_weight", [0, -1.0, float("nan")]),
]
CASES = [
    pytest.param(cls, option, value, id=f"{name} {option}={value!r}")
    for classes, option, values in BAD_OPTIONS
    for name, cls in classes.items()
    for value in values
]


@pytest.mark.parametrize(("cls", "option", "value"), CASES)
def test_a_bad_option_is_refused_by_name_and_a_refused_group_is_not_added(cls, option, value):
    params, more = parameters([(6, 3)]), parameters([(6, 3)], seed=9)
    with pytest.raises((ValueError, TypeError), match=option):
        cls(params, **{option: value})
    optimizer = cls(params, lr=0.1)
    with pytest.raises((ValueError, TypeError), match=option):
        optimizer.add_param_group({"params": more, option: value})
    assert len(optimizer.param_groups) == 1
    assert_same(more, parameters([(6, 3)], seed=9))
    feed(optimizer, params, random_gradients(params, 1))
    optimizer.add_param_group({"params": more})
    assert len(optimizer.param_groups) == 2


@of(SGD_CLASSES)
@pytest.mark.parametrize("options", [{}, {"momentum": 0.9, "dampening": 0.1}])
def test_nesterov_needs_momentum_and_no_dampening_as_in_torch(make, options):
    with pytest.raises(ValueError, match=r"[Nn]esterov"):
        torch.optim.SGD(parameters([(6, 3)]), lr=0.1, nesterov=True, **options)
    with pytest.raises(ValueError, match="nesterov"):
        make(parameters([(6, 3)]), nesterov=True, **options)


@of(KEEPING)
def test_a_refused_group_leaves_optimizer_and_parameters_as_they_were(make):
    params = parameters()
    expected = copies_of(params)
    optimizer, plain = make(params, lr=0.1), make(expected, lr=0.1)
    gradients = random_gradients(params, 2)
    feed(optimizer, params, gradients[:1])
    keys = [set(group) for group in optimizer.param_groups]
    outside = torch.nn.Parameter(3 * orthonormal((6, 3)))
    for group in (
        {"params": [outside]},
        {"params": [torch.nn.Parameter(torch.zeros(3))]},
        {"params": [params[0]]},
        {"params": [torch.nn.Parameter(orthonormal((6, 3)))], "view": "conv"},
    ):
        with pytest.raises(ValueError):  # noqa: PT011  four different reasons
            optimizer.add_param_group(group)
    assert [set(group) for group in optimizer.param_groups] == keys
    assert torch.equal(outside, 3 * orthonormal((6, 3)))
    feed(optimizer, params, gradients[1:])
    feed(plain, expected, gradients)
    assert_same(params, expected)


def test_a_refused_attachment_leaves_the_torch_optimizer_as_it_was():
    params, foreign = parameters([(6, 3)]), parameters([(6, 3)], seed=9)
    bad = torch.nn.Parameter(3 * orthonormal((6, 3)))
    optimizer = torch.optim.SGD([*params, bad], lr=0.1)
    with pytest.raises(ValueError, match=r"\(6, 3\) is not a parameter of the optimizer"):
        gs.attach_landing(optimizer, foreign)
    with pytest.raises(ValueError, match="starts at distance"):
        gs.attach_landing(optimizer, [bad])
    with pytest.raises(ValueError, match="attraction"):
        gs.attach_landing(optimizer, params, attraction=-1.0)
    assert not hasattr(optimizer, "landing")
    assert not optimizer._optimizer_step_pre_hooks
    assert not optimizer._optimizer_step_post_hooks
    gs.attach_landing(optimizer, params)
    with pytest.raises(ValueError, match=r"landing\.detach\(\)"):
        gs.attach_landing(optimizer, params)


def test_a_detached_optimizer_can_be_attached_again():
    params = parameters([(6, 3)])
    optimizer = gs.attach_landing(torch.optim.SGD(params, lr=0.1), params)
    optimizer.landing.detach()
    gs.attach_landing(optimizer, params, safe_radius=0.2)
    feed(optimizer, params, random_gradients(params, 3))
    assert optimizer.landing.param_groups[0]["safe_radius"] == 0.2


def test_an_attached_optimizer_whose_step_raises_leaves_gradient_and_parameter_as_they_were():
    class Failing(torch.optim.SGD):
        def step(self, closure=None):
            raise RuntimeError("out of memory")

    (X,) = parameters([(6, 3)])
    start, (gradient,) = X.detach().clone(), random_gradients([X], 1)[0]
    optimizer = gs.attach_landing(Failing([X], lr=0.1), [X])
    X.grad = gradient
    given = gradient.clone()
    with pytest.raises(RuntimeError, match="out of memory"):
        optimizer.step()
    assert_same([X, X.grad], [start, given])


MISSPELT = {
    "atraction": "attraction",
    "saferadius": "safe_radius",
    "Metric": "metric",
    "views": "view",
    "orthogonl": "orthogonal",
    "for_each": "foreach",
}


@of({**LANDING_CLASSES, **ATTACHED})
@pytest.mark.parametrize(("key", "meant"), MISSPELT.items())
def test_a_misspelt_option_of_a_group_is_refused_with_the_nearest_name(make, key, meant):
    good, bad = parameters([(6, 3), (6, 3)])
    with pytest.raises(ValueError, match=rf"has no option {key!r}; did you mean {meant!r}"):
        make([{"params": [good, bad], key: 1.0}])
    if make in LANDING_CLASSES.values():
        optimizer = make([good])
        with pytest.raises(ValueError, match=rf"{make.__name__} has no option {key!r}; did you mean {meant!r}"):
            optimizer.add_param_group({"params": [bad], key: 1.0})
        assert len(optimizer.param_groups) == 1


def test_a_misspelt_option_in_a_pattern_or_for_all_groups_is_refused():
    model = torch.nn.Linear(6, 3)
    gs.orthogonalize_(model)
    for groups in (gs.param_groups(model, atraction=2.0), gs.param_groups(model, {"weight": {"atraction": 2.0}})):
        with pytest.raises(ValueError, match="no option 'atraction'; did you mean 'attraction'"):
            gs.LandingSGD(groups)
    with pytest.raises(ValueError, match="no option 'weigth_decay'; did you mean 'weight_decay'"):
        gs.LandingSGD(gs.param_groups(model, {"bias": {"weigth_decay": 0.0}}))


@of(CLASSES)
def test_keys_of_schedulers_and_frameworks_pass_as_in_torch(make):
    foreign = ("name", "lr_scale", "layer_name", "initial_lr", "max_lr", "min_lr", "swa_lr", "max_momentum", "betas")
    foreign += ("base_momentum", "no_weight_decay", "fused", "amsgrad", "capturable", "differentiable", "retraction")
    group = {"params": parameters([(6, 3)]), **dict.fromkeys(foreign, 0.5)}
    known = {name: group.pop(name) for name in foreign if name in make(parameters([(6, 3)])).defaults}
    optimizer = make([group])
    assert all(optimizer.param_groups[0][name] == 0.5 for name in foreign if name not in known)


@of(CLASSES)
def test_groups_that_schedulers_wrote_to_can_be_given_to_another_optimizer(make):
    params = parameters([(6, 3)])
    options = {} if make is gs.LandingAdam else {"momentum": 0.9}
    first = make(params, lr=0.1, **options)
    torch.optim.lr_scheduler.OneCycleLR(first, max_lr=0.1, total_steps=10)
    torch.optim.swa_utils.SWALR(first, swa_lr=0.05)
    for other in CLASSES.values():
        other([dict(group) for group in first.param_groups])


@pytest.mark.parametrize("options", [{"attraction": np.float64(1)}, {"safe_radius": np.float64(0.5)}])
def test_numbers_of_numpy_are_numbers(options):
    X = torch.nn.Parameter(gs.random_stiefel(6, 3, generator=torch.Generator().manual_seed(0)))
    optimizer = gs.LandingSGD([X], lr=10.0, **options)
    X.grad = torch.ones(6, 3)
    optimizer.step()
    assert optimizer.diagnostics()[0].shortened == [1]
