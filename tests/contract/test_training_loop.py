"""A training loop as torch users write it: schedulers, clipping, accumulation, scaling, closures, groups."""

from functools import partial

import pytest
import torch
from contract import checks
from contract.factories import (
    ALL,
    CLASSES,
    OWN,
    SAFE,
    assert_same,
    copies_of,
    distances,
    feed,
    landing_of,
    of,
    orthonormal,
    parameters,
    random_gradients,
    seeded,
)
from literal import random_matrix
from torch.optim import lr_scheduler

import glideslope as gs


def with_lr(make, params, gradients, rates):
    """Steps with the learning rates written into the group by hand."""
    optimizer = make(params, lr=rates[0])
    for given, rate in zip(gradients, rates, strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate
        feed(optimizer, params, [given])


@pytest.mark.parametrize(
    "schedule",
    [
        partial(lr_scheduler.StepLR, step_size=2, gamma=0.5),
        partial(lr_scheduler.CosineAnnealingLR, T_max=6),
    ],
    ids=["StepLR", "CosineAnnealingLR"],
)
@of(ALL)
def test_a_scheduler_gives_the_steps_of_its_learning_rates(make, schedule):
    params = parameters()
    by_hand = copies_of(params)
    gradients = random_gradients(params, 4)
    optimizer = make(params, lr=0.1)
    scheduler = schedule(optimizer)
    rates = []
    for given in gradients:
        rates.append(optimizer.param_groups[0]["lr"])
        feed(optimizer, params, [given])
        scheduler.step()
    assert len(set(rates)) > 1
    with_lr(make, by_hand, gradients, rates)
    assert_same(params, by_hand)


@pytest.mark.parametrize("cls", [gs.LandingSGD, gs.RiemannianSGD, gs.LandingAdam])
def test_one_cycle_drives_learning_rate_and_momentum(cls):
    params = parameters()
    options = {} if cls is gs.LandingAdam else {"momentum": 0.9}
    optimizer = cls(params, lr=0.1, **options)
    scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=6, cycle_momentum=True)
    seen = []
    for given in random_gradients(params, 5):
        group = optimizer.param_groups[0]
        seen.append((group["lr"], group["betas"][0] if "betas" in group else group["momentum"]))
        feed(optimizer, params, [given])
        scheduler.step()
    assert len({rate for rate, _ in seen}) == len({momentum for _, momentum in seen}) == 5
    assert all(torch.isfinite(param).all() and distances(param).max() <= 0.5 for param in params)


def test_a_changed_momentum_is_the_one_of_torch_sgd():
    """OneCycle writes group["momentum"] between steps: the next step uses it."""
    X, follower = torch.nn.Parameter(orthonormal((6, 3))), torch.nn.Parameter(torch.zeros(6, 3, dtype=torch.float64))
    plain = torch.nn.Parameter(X.detach().clone())
    optimizer, source = gs.LandingSGD([X], lr=0.01, momentum=0.9), torch.optim.SGD([follower], lr=1.0, momentum=0.9)
    stepper = gs.LandingSGD([plain], lr=0.01)
    for (gradient,), momentum in zip(random_gradients([X], 4), [0.9, 0.5, 0.8, 0.95], strict=True):
        optimizer.param_groups[0]["momentum"] = source.param_groups[0]["momentum"] = momentum
        before = follower.detach().clone()
        feed(source, [follower], [[gradient]])
        D = before - follower.detach()
        checks.forget_normal_part(source, follower, plain.detach(), D)
        feed(stepper, [plain], [[D]])
        feed(optimizer, [X], [[gradient]])
    assert_same([X], [plain], 1e-12)


@pytest.mark.parametrize(
    ("rate", "dtype"),
    [
        (torch.tensor(0.05), torch.float64),
        (torch.tensor(0.05, dtype=torch.float64), torch.float32),
        (torch.tensor([0.05]), torch.float32),
    ],
    ids=repr,
)
@of(OWN)
def test_a_tensor_learning_rate_is_worth_its_number(make, rate, dtype):
    params = parameters(dtype=dtype)
    expected = copies_of(params)
    gradients = random_gradients(params, 2)
    feed(make(params, lr=rate), params, gradients)
    feed(make(expected, lr=0.05), expected, gradients)
    assert all(param.dtype == dtype for param in params)
    assert_same(params, expected, 1e-6)


def test_a_scheduler_drives_a_tensor_learning_rate():
    X = torch.nn.Parameter(orthonormal((6, 3)))
    by_hand = torch.nn.Parameter(X.detach().clone())
    gradients = random_gradients([X], 4)
    rate = torch.tensor(0.1, dtype=torch.float64)
    optimizer = gs.LandingSGD([X], lr=rate)
    scheduler = lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
    for given in gradients:
        feed(optimizer, [X], [given])
        scheduler.step()
    assert isinstance(optimizer.param_groups[0]["lr"], torch.Tensor)
    with_lr(gs.LandingSGD, [by_hand], gradients, [0.1 * 0.5**i for i in range(4)])
    assert_same([X], [by_hand], 1e-12)


@of(ALL)
def test_clipped_gradients_are_the_ones_used(make):
    params = parameters()
    expected = copies_of(params)
    (gradients,) = random_gradients(params, 1)
    optimizer = make(params, lr=0.05)
    for param, gradient in zip(params, gradients, strict=True):
        param.grad = gradient.clone()
    total = torch.nn.utils.clip_grad_norm_(params, 0.5)
    optimizer.step()
    feed(make(expected, lr=0.05), expected, [[gradient * 0.5 / (total + 1e-6) for gradient in gradients]])
    assert total > 0.5
    assert_same(params, expected, 1e-12)


@of(ALL)
def test_accumulated_gradients_give_one_step_along_their_sum(make):
    X = torch.nn.Parameter(orthonormal((6, 3)))
    expected = torch.nn.Parameter(X.detach().clone())
    data = random_matrix(8, 6, generator=seeded(2))
    optimizer = make([X], lr=0.05)
    for half in data.split(4):
        (half @ X).square().sum().backward()
    optimizer.step()
    together = make([expected], lr=0.05)
    (data @ expected).square().sum().backward()
    together.step()
    assert_same([X], [expected], 1e-12)


@of(ALL)
def test_a_grad_scaler_unscales_skips_infinite_steps_and_goes_on(make):
    params, expected = parameters(dtype=torch.float32), parameters(dtype=torch.float32)
    optimizer, plain = make(params, lr=0.05), make(expected, lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    weights = random_gradients(params, 3)
    for step, given in enumerate(weights):
        optimizer.zero_grad()
        loss = sum((param * weight).sum() for param, weight in zip(params, given, strict=True))
        loss = loss * torch.inf if step == 1 else loss
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 512.0
    feed(plain, expected, [weights[0], weights[2]])
    assert_same(params, expected, 1e-6)


@of(ALL)
def test_a_closure_reused_for_many_steps_lowers_the_loss(make):
    A, B = random_matrix(6, 6, generator=seeded(1)), random_matrix(6, 3, generator=seeded(2))
    X = torch.nn.Parameter(orthonormal((6, 3)))
    optimizer = make([X], lr=0.02)

    def closure():
        optimizer.zero_grad()
        loss = (A @ X - B).square().sum()
        loss.backward()
        return loss

    losses = [optimizer.step(closure).item() for _ in range(30)]
    assert min(losses[-3:]) < 0.9 * losses[0]


@pytest.mark.parametrize("set_to_none", [True, False])
@of(ALL)
def test_steps_with_a_closure_equal_steps_without(make, set_to_none):
    """The closure replaces .grad while the step is under way; what it wrote is used, and still there afterwards."""
    A = random_matrix(6, 6, generator=seeded(1))
    with_closure, without = parameters([(6, 3)])[0], parameters([(6, 3)])[0]
    first, second = make([with_closure], lr=0.02), make([without], lr=0.02)

    def closure():
        first.zero_grad(set_to_none)
        loss = ((A @ with_closure) ** 4).sum()
        loss.backward()
        return loss

    for _ in range(3):
        first.step(closure)
        second.zero_grad()
        ((A @ without) ** 4).sum().backward()
        second.step()
        assert_same([with_closure], [without], 1e-12)
        assert_same([with_closure.grad], [without.grad], 1e-12)


@of(ALL)
def test_zero_grad_clears_and_a_step_without_gradients_moves_nothing(make):
    params = parameters()
    optimizer = make(params, lr=0.1)
    feed(optimizer, params, random_gradients(params, 1))
    optimizer.zero_grad()
    assert all(param.grad is None for param in params)
    kept = [param.detach().clone() for param in params]
    assert optimizer.step() is None
    assert_same(params, kept)


@of(ALL)
def test_a_parameter_without_a_gradient_is_left_alone(make):
    params = parameters()
    optimizer = make(params, lr=0.1)
    kept = [param.detach().clone() for param in params]
    first, second = random_gradients(params, 2)
    without = {0, 3, 5}
    for given in (first, second):
        feed(optimizer, params, [[None if i in without else gradient for i, gradient in enumerate(given)]])
    for i, (param, start) in enumerate(zip(params, kept, strict=True)):
        if i in without or param.numel() > 1:
            assert torch.equal(param, start) == (i in without)


@of(OWN)
def test_a_group_added_later_is_stepped_with_its_own_options(make):
    params = parameters()
    expected = copies_of(params)
    optimizer = make(params[:3], lr=0.1)
    optimizer.add_param_group({"params": params[3:], "lr": 0.01})
    gradients = random_gradients(params, 3)
    feed(optimizer, params, gradients)
    feed(make(expected[:3], lr=0.1), expected[:3], [given[:3] for given in gradients])
    feed(make(expected[3:], lr=0.01), expected[3:], [given[3:] for given in gradients])
    assert_same(params, expected, 1e-13)


@pytest.mark.parametrize("cls", CLASSES.values(), ids=CLASSES.keys())
def test_a_group_added_between_steps_does_not_reset_the_others(cls):
    params, late = parameters(), parameters([(6, 3)], seed=9)
    expected = copies_of(params)
    gradients, more = random_gradients(params, 4), random_gradients(late, 2)
    options = {} if cls is gs.LandingAdam else {"momentum": 0.9}
    optimizer = cls(params, lr=0.05, **options)
    feed(optimizer, params, gradients[:2])
    optimizer.add_param_group({"params": late})
    feed(optimizer, params + late, [a + b for a, b in zip(gradients[2:], more, strict=True)])
    feed(cls(expected, lr=0.05, **options), expected, gradients)
    assert_same(params, expected, 1e-13)
    assert not torch.equal(late[0], parameters([(6, 3)], seed=9)[0])


def test_detached_landing_leaves_the_torch_optimizer_as_it_was():
    params = parameters()
    expected = copies_of(params)
    gradients = random_gradients(params, 3)
    optimizer = gs.attach_landing(torch.optim.SGD(params, lr=0.1), params)
    optimizer.landing.detach()
    feed(optimizer, params, gradients)
    feed(torch.optim.SGD(expected, lr=0.1), expected, gradients)
    assert_same(params, expected)


@of(SAFE)
def test_a_parameter_changed_between_steps_is_stepped_from_where_it_is(make):
    """gs.project_, a swap of weights (EMA) or a broadcast writes the parameter: the optimizer follows."""
    for dtype in (torch.float64, torch.bfloat16):
        params = parameters([(6, 3), (6, 3)], dtype=dtype)
        optimizer = make(params, lr=0.05)
        feed(optimizer, params, random_gradients(params, 1))
        other = parameters([(6, 3), (6, 3)], dtype=dtype, seed=9)
        for param, value in zip(params, other, strict=True):
            param.data.copy_(value)
        feed(optimizer, params, [[torch.zeros_like(param) for param in params]])
        moved = max((a.float() - b.float()).abs().max().item() for a, b in zip(params, other, strict=True))
        assert moved < 0.6
        assert all(distances(param, optimizer=optimizer).max() < 0.5 for param in params)
        assert landing_of(optimizer).diagnostics()
