"""attach_landing changes what a step does and nothing else of the optimizer: its class, hooks, schedulers, copies."""

import copy
import inspect
import pickle

import pytest
import torch
from contract.factories import assert_same, copies_of, distances, feed, parameters, random_gradients
from torch.optim.optimizer import register_optimizer_step_post_hook

import glideslope as gs


class CallsSuper(torch.optim.SGD):
    """A subclass as users write them: torch runs the hooks for its step and for the step it calls."""

    def step(self, closure=None):
        return super().step(closure)


def attached(params, host=torch.optim.SGD, **options):
    torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])  # from here on torch runs hooks in SGD.step too
    return gs.attach_landing(host(params, **{"lr": 0.1, **options}), params)


def as_plain_landing(params, gradients, **options):
    """The points that attach_landing to plain SGD leads to."""
    expected = copies_of(params)
    feed(attached(expected, **options), expected, gradients)
    return expected


class TwoLosses(torch.optim.SGD):
    def step(self, closure=None):
        closure()
        return super().step(closure)


class LineSearch(torch.optim.LBFGS):
    pass


@pytest.mark.parametrize("host", [torch.optim.LBFGS, LineSearch])
def test_lbfgs_is_refused_with_the_reason(host):
    params = parameters([(6, 3)])
    optimizer = host(params)
    with pytest.raises(ValueError, match=rf"attach_landing: {host.__name__} .*several times.*LandingSGD"):
        gs.attach_landing(optimizer, params)
    assert "landing" not in vars(optimizer)
    assert "step" not in vars(optimizer)


def test_an_optimizer_that_evaluates_the_loss_twice_in_a_step_is_refused_at_the_second_time():
    (X,) = params = parameters([(6, 3)])
    start = X.detach().clone()
    optimizer = attached(params, TwoLosses)
    calls = []

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = X.sum()
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match="attach_landing: TwoLosses called its closure a second time"):
        optimizer.step(closure)
    assert len(calls) == 1
    assert_same([X, X.grad], [start, torch.ones_like(X)])


def test_a_subclass_that_calls_the_step_of_its_superclass_lands_once():
    params = parameters()
    gradients = random_gradients(params, 5)
    expected = as_plain_landing(params, gradients, momentum=0.9)
    optimizer = attached(params, CallsSuper, momentum=0.9)
    for given in gradients:
        for param, gradient in zip(params, given, strict=True):
            param.grad = gradient
        optimizer.step()
        assert all(param.grad is gradient for param, gradient in zip(params, given, strict=True))
    assert_same(params, expected)
    assert all(distances(param).max() <= 0.5 for param in params)


def test_a_subclass_that_calls_the_step_of_its_superclass_skips_a_gradient_that_is_not_finite():
    good, bad = params = parameters([(6, 3), (5, 2)])
    start = bad.detach().clone()
    optimizer = attached(params, CallsSuper, momentum=0.9)
    feed(optimizer, params, [[torch.ones_like(good), torch.full_like(bad, torch.nan)]])
    assert_same([bad], [start], tolerance=1e-14)
    assert optimizer.landing.diagnostics()[1].skipped == [1]
    feed(optimizer, params, random_gradients(params, 2))
    assert torch.isfinite(bad).all()


def test_a_subclass_that_catches_an_error_of_its_superclass_still_lands():
    class Retries(torch.optim.SGD):
        failures = 0

        def step(self, closure=None):
            try:
                return super().step(self.fail)
            except RuntimeError:
                return super().step(closure)

        def fail(self):
            self.failures += 1
            raise RuntimeError("try again")

    params = parameters([(6, 3)])
    gradients = random_gradients(params, 3)
    expected = as_plain_landing(params, gradients)
    optimizer = attached(params, Retries)
    feed(optimizer, params, gradients)
    assert optimizer.failures == 3
    assert_same(params, expected)


@pytest.mark.parametrize("host", [torch.optim.SGD, CallsSuper])
def test_hooks_of_the_user_run_as_often_as_without_landing(host):
    counts = []
    for attach in (False, True):
        (X,) = params = parameters([(6, 3)])
        optimizer = host(params, lr=0.1)
        calls = []
        optimizer.register_step_pre_hook(lambda *_, calls=calls: calls.append("before"))
        if attach:
            gs.attach_landing(optimizer, params)
        optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append("after"))
        handle = register_optimizer_step_post_hook(lambda *_, calls=calls: calls.append("anywhere"))
        feed(optimizer, [X], random_gradients([X], 2))
        handle.remove()
        counts.append(calls)
    assert counts[0] == counts[1]
    assert counts[0].count("before") == 2 * (1 if host is torch.optim.SGD else 2)


def test_hooks_see_the_callers_gradients_and_landed_points_whenever_they_were_registered():
    (X,) = params = parameters([(6, 3)])
    (gradients,) = random_gradients(params, 1)
    optimizer = torch.optim.SGD(params, lr=5.0)
    seen, landed = [], []

    def register():
        optimizer.register_step_pre_hook(lambda *_: seen.append(X.grad))
        optimizer.register_step_post_hook(lambda *_: landed.append((X.grad, distances(X).max())))

    register()
    gs.attach_landing(optimizer, params)
    register()
    X.grad = gradients[0]
    optimizer.step()
    assert all(gradient is gradients[0] for gradient in seen)
    assert all(gradient is gradients[0] and distance <= 0.5 for gradient, distance in landed)
    assert (len(seen), len(landed)) == (2, 2)


def test_an_error_in_a_hook_of_the_user_takes_nothing_of_the_step():
    (X,) = params = parameters([(6, 3)])
    optimizer = attached(params)
    feed(optimizer, params, random_gradients(params, 1))
    X.data.copy_(parameters([(6, 3)], seed=9)[0])
    start, (given,) = X.detach().clone(), random_gradients(params, 1)[0]
    X.grad = given

    def fail(*_):
        raise KeyError("hook")

    for register in (optimizer.register_step_pre_hook, optimizer.register_step_post_hook):
        handle = register(fail)
        with pytest.raises(KeyError, match="hook"):
            optimizer.step()
        handle.remove()
        assert X.grad is given
        assert_same([X], [start])
    optimizer.step()
    assert not torch.equal(X, start)


def test_the_class_and_the_signature_of_the_step_stay_what_they_were():
    params = parameters([(6, 3)])
    optimizer = torch.optim.SGD(params, lr=0.1)
    signature, printed = inspect.signature(optimizer.step), repr(optimizer)
    gs.attach_landing(optimizer, params)
    assert type(optimizer) is torch.optim.SGD
    assert inspect.signature(optimizer.step) == signature
    assert optimizer.step.__self__ is optimizer
    assert repr(optimizer) == printed


def test_a_detached_optimizer_is_as_before_and_detaching_again_changes_nothing():
    params = parameters([(6, 3)])
    optimizer = torch.optim.SGD(params, lr=0.1)
    before = set(vars(optimizer))
    landing = gs.attach_landing(optimizer, params).landing
    landing.detach()
    landing.detach()
    assert type(optimizer) is torch.optim.SGD
    assert set(vars(optimizer)) == before
    assert not optimizer._optimizer_step_pre_hooks
    gradients = random_gradients(params, 2)
    expected = copies_of(params)
    feed(optimizer, params, gradients[:1])
    feed(torch.optim.SGD(expected, lr=0.1), expected, gradients[:1])
    assert_same(params, expected)
    params[0].data.copy_(gs.project(params[0]))
    gs.attach_landing(optimizer, params)
    landing.detach()  # of the first attachment: none of its business
    feed(optimizer, params, gradients[1:])
    assert distances(params[0]).max() <= 0.5
    assert optimizer.landing.diagnostics()


def test_a_step_around_the_attached_one_is_refused_and_moves_nothing():
    (X,) = params = parameters([(6, 3)])
    optimizer = torch.optim.SGD(params, lr=0.1)
    kept = optimizer.step
    gs.attach_landing(optimizer, params)
    start, (X.grad,) = X.detach().clone(), random_gradients(params, 1)[0]
    for around in (kept, lambda: torch.optim.SGD.step(optimizer)):
        with pytest.raises(RuntimeError, match=r"attach_landing.*call optimizer\.step\(\)"):
            around()
        assert_same([X], [start])
    optimizer.step()
    assert not torch.equal(X, start)


def test_a_step_that_runs_no_hooks_is_an_error_rather_than_a_step_without_landing():
    params = parameters([(6, 3)])
    optimizer = torch.optim.SGD(params, lr=0.1)
    optimizer.step = lambda: None
    gs.attach_landing(optimizer, params)
    with pytest.raises(RuntimeError, match="attach_landing: the step of this SGD ran none of torch's step hooks"):
        optimizer.step()


def halving(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)


@pytest.mark.parametrize("when", ["before", "after", "both"])
@pytest.mark.parametrize("host", [torch.optim.SGD, CallsSuper])
def test_schedulers_made_before_and_after_attaching_act_on_the_landed_step(host, when):
    params = parameters()
    expected = copies_of(params)
    gradients = random_gradients(params, 6)
    optimizer = host(params, lr=0.2)
    schedulers = [halving(optimizer)] if when != "after" else []
    gs.attach_landing(optimizer, params)
    schedulers += [halving(optimizer)] if when != "before" else []
    plain = attached(expected, lr=0.2)
    for given in gradients:
        feed(optimizer, params, [given])
        feed(plain, expected, [given])
        for scheduler in schedulers:
            scheduler.step()
            plain.param_groups[0]["lr"] *= 0.5
    assert_same(params, expected)
    optimizer.landing.detach()
    start = copies_of(params)
    feed(optimizer, params, gradients[:1])
    schedulers[0].step()
    feed(torch.optim.SGD(start, lr=plain.param_groups[0]["lr"]), start, gradients[:1])
    assert_same(params, start)


def test_landing_can_be_attached_again_under_a_scheduler():
    params = parameters([(6, 3)])
    gradients = random_gradients(params, 4)
    expected = as_plain_landing(params, gradients)
    optimizer = attached(params)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
    optimizer.landing.detach()
    gs.attach_landing(optimizer, params)
    for given in gradients:
        feed(optimizer, params, [given])
        scheduler.step()
    assert_same(params, expected)


def test_a_gradient_scaler_steps_an_attached_optimizer():
    params = parameters([(6, 3)], dtype=torch.float32)
    expected = copies_of(params)
    optimizer, scaler = attached(params), torch.amp.GradScaler("cpu", init_scale=4.0)
    plain = attached(expected)
    for X, step in ((params[0], lambda: scaler.step(optimizer)), (expected[0], plain.step)):
        loss = (X.square().cumsum(0).sum() + X.sum()) / 3
        (scaler.scale(loss) if X is params[0] else loss).backward()
        step()
    scaler.update()
    assert_same(params, expected, tolerance=1e-6)


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy.copy", "copy.deepcopy", "pickle.dumps"]
)
def test_a_copy_is_refused_with_the_way_out_and_possible_after_detaching(copied):
    params = parameters([(6, 3)])
    optimizer = attached(params)
    with pytest.raises(TypeError, match=r"landing attached.*state_dict\(\).*landing\.detach\(\)"):
        copied(optimizer)
    optimizer.landing.detach()
    copied(optimizer)


@pytest.mark.xdist_group("compiler")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_compiled_step_of_an_attached_optimizer_equals_eager():
    torch._dynamo.reset()
    params = parameters([(6, 3)], dtype=torch.float32)
    gradients = random_gradients(params, 3)
    expected = as_plain_landing(params, gradients, momentum=0.9)
    optimizer = attached(params, momentum=0.9)
    step = torch.compile(optimizer.step, backend="eager")
    for (given,) in gradients:
        params[0].grad = given
        step()
        assert params[0].grad is given
    assert_same(params, expected, tolerance=1e-6)
