"""SAGA and SVRG in a training loop: unbiased by enumeration, exact at a solution, and nothing is lost on the way."""

import copy
from functools import partial

import pytest
import torch
from variance.sums import Sum, distances, estimates, mean_over_slots, saga_correct, svrg_correct

import glideslope as gs
from glideslope.variance import SAGA, SVRG

TYPES = [torch.float64, torch.complex128]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (5, 1, 3, 2)], ids=["equal", "unequal"])
def test_the_saga_direction_averages_over_all_slots_to_the_full_gradient(sizes, dtype, generator):
    problem = Sum(generator, sizes, dtype)
    saga = SAGA(problem.params, 4, sizes=sizes)
    saga.start_(problem.backward)
    for slot in (0, 3, 3, 1):
        problem.move(generator)
        problem.set_gradients(slot)
        saga.correct_(slot)
    problem.move(generator)
    found = estimates(problem, saga, saga_correct)
    full = problem.gradients()
    assert distances(mean_over_slots(found), full) < 1e-13
    assert distances(found[0], full) > 1e-2


def test_a_correction_is_the_literal_formula_and_remembers_the_gradient(generator):
    problem = Sum(generator, sizes := (2, 1, 3))
    saga = SAGA(problem.params, 3, sizes=sizes)
    saga.start_(problem.backward)
    memory = [problem.gradients(slot) for slot in range(3)]
    for slot in (2, 0, 2, 1, 1, 0, 2, 1):
        problem.move(generator)
        fresh = problem.gradients(slot)
        mean = [sum(s * m[k] for s, m in zip(sizes, memory, strict=True)) / 6 for k in range(2)]
        expected = [3 * sizes[slot] / 6 * (fresh[k] - memory[slot][k]) + mean[k] for k in range(2)]
        problem.set_gradients(slot)
        saga.correct_(slot)
        assert distances([param.grad for param in problem.params], expected) < 1e-13
        memory[slot] = fresh
    assert all(torch.equal(saga.state_dict()["memory"][k][i], memory[i][k]) for i in range(3) for k in range(2))


@pytest.mark.parametrize("sizes", [None, (4, 1, 2, 1, 1), (3,)], ids=["equal", "unequal", "one slot"])
def test_with_the_memory_at_the_same_point_every_slot_gives_the_full_gradient(sizes, generator):
    problem = Sum(generator, sizes or (1,) * 5)
    saga = SAGA(problem.params, len(sizes or range(5)), sizes=sizes)
    saga.start_(problem.backward)
    for found in estimates(problem, saga, saga_correct):
        assert distances(found, problem.gradients()) < 1e-13


def test_without_a_start_gradients_are_plain_until_every_slot_was_seen(generator):
    problem = Sum(generator)
    saga = SAGA(problem.params, problem.slots)
    for slot in (0, 1, 1, 2, 3, 0, 4):
        problem.set_gradients(slot)
        saga.correct_(slot)
        assert distances([param.grad for param in problem.params], problem.gradients(slot)) == 0
    problem.set_gradients(2)
    saga.correct_(2)
    assert distances([param.grad for param in problem.params], problem.gradients()) < 1e-13


def test_start_and_anchor_leave_gradients_and_parameters_as_they_were(generator):
    problem = Sum(generator)
    problem.set_gradients(3)
    problem.params[1].grad = None
    given, kept = problem.params[0].grad, problem.params[0].grad.clone()
    before = [param.detach().clone() for param in problem.params]
    SAGA(problem.params, problem.slots).start_(problem.backward)
    SVRG(problem.params, dtype=torch.bfloat16).anchor_(lambda: problem.full_loss().backward())
    assert problem.params[0].grad is given
    assert torch.equal(given, kept)
    assert problem.params[1].grad is None
    assert all(torch.equal(param, was) for param, was in zip(problem.params, before, strict=True))


def test_rounding_of_the_running_mean_does_not_accumulate(generator):
    param = torch.nn.Parameter(torch.zeros(20))
    saga = SAGA([param], 3)
    for step in range(3 * 400):
        param.grad = torch.randn(20, generator=generator) * 10.0 ** (step % 7)
        saga.correct_(step % 3)
    state = saga.state_dict()
    exact = state["memory"][0].double().mean(0)
    assert ((state["means"][0] - exact).abs() / state["memory"][0].abs().amax(0)).max() < 2e-7


def run_training(generator, momentum, correction, slots=4):
    """Landing on f_i(X) = tr(XᵀA_iX)/2 - tr(B_iᵀX): norm of the full Riemannian gradient and distance at the end."""
    draw = partial(torch.randn, generator=generator, dtype=torch.float64)
    A, B = draw(slots, 6, 6), draw(slots, 6, 2) + 4 * torch.eye(6, 2)
    X = torch.nn.Parameter(gs.random_stiefel(6, 2, generator=generator, dtype=torch.float64))
    optimizer = gs.LandingSGD([X], lr=0.1 * (1 - momentum), momentum=momentum)
    saga, svrg = SAGA([X], slots), SVRG([X])

    def backward(slot):
        ((X * (A[slot] @ X)).sum() / 2 - (B[slot] * X).sum()).backward()

    def backward_of_all():
        ((X * (A.mean(0) @ X)).sum() / 2 - (B.mean(0) * X).sum()).backward()

    if correction == "saga":
        saga.start_(backward)
    for step in range(300):
        slot = int(torch.randint(slots, (), generator=generator))
        if correction == "svrg" and step % slots == 0:
            svrg.anchor_(backward_of_all)
        optimizer.zero_grad()
        backward(slot)
        if correction == "saga":
            saga.correct_(slot)
        elif correction == "svrg":
            svrg.correct_(partial(backward, slot))
        optimizer.step()
    optimizer.zero_grad()
    backward_of_all()
    return gs.formulas.riemannian_gradient(X.detach(), X.grad).norm().item(), gs.formulas.distance(X.detach()).item()


@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("correction", ["saga", "svrg"])
def test_landing_with_a_constant_step_converges_where_plain_sgd_stalls(correction, momentum, generator):
    state = generator.get_state()
    gradient_norm, distance = run_training(generator, momentum, correction)
    assert gradient_norm < 1e-10
    assert distance < 1e-12
    assert run_training(generator.set_state(state), momentum, None)[0] > 1e-1


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_gradient_that_is_not_finite_stays_so_and_leaves_memory_and_mean_unchanged(bad, generator):
    problem = Sum(generator)
    saga = SAGA(problem.params, problem.slots)
    saga.start_(problem.backward)
    before = copy.deepcopy(saga.state_dict())
    problem.move(generator)
    problem.set_gradients(1)
    problem.params[0].grad[2, 1] = bad
    saga.correct_(1)
    after = saga.state_dict()
    assert not problem.params[0].grad.isfinite().all()
    assert torch.equal(after["memory"][0], before["memory"][0])
    assert torch.equal(after["means"][0], before["means"][0])
    assert not torch.equal(after["memory"][1], before["memory"][1])
    assert problem.params[1].grad.isfinite().all()


def test_a_gradient_that_is_not_finite_is_skipped_and_counted_by_the_optimizer(generator):
    X = torch.nn.Parameter(gs.random_stiefel(6, 3, generator=generator))
    optimizer, saga = gs.LandingSGD([X], lr=0.1), SAGA([X], 2)
    saga.start_(lambda slot: X.sum().backward())
    before = X.detach().clone()
    X.grad = torch.full_like(X, float("nan"))
    saga.correct_(0)
    optimizer.step()
    assert torch.equal(X, before)
    assert optimizer.diagnostics()[0].skipped == [1]


@pytest.mark.parametrize("start", [torch.float32, torch.bfloat16], ids=str)
def test_a_rounded_memory_is_unbiased_all_the_same(start, generator):
    problem = Sum(generator, (2, 1, 3), torch.float64)
    for method in (SAGA(problem.params, 3, sizes=problem.sizes, dtype=start), SVRG(problem.params, dtype=start)):
        if isinstance(method, SAGA):
            method.start_(problem.backward)
            problem.move(generator)
            problem.set_gradients(1)
            method.correct_(1)
            correct = saga_correct
        else:
            method.anchor_(lambda: problem.full_loss().backward())
            correct = svrg_correct(problem)
        problem.move(generator)
        assert method.state_dict()["memory"][0].dtype == start
        assert method.state_dict()["means"][0].dtype == torch.float64
        found = estimates(problem, method, correct)
        weights = [1, 1, 1] if isinstance(method, SAGA) else [2 / 2, 1 / 2, 3 / 2]
        average = mean_over_slots([[w * g for g in grads] for w, grads in zip(weights, found, strict=True)])
        assert distances(average, problem.gradients()) < 1e-12


def test_parameters_without_a_gradient_are_skipped(generator):
    problem = Sum(generator)
    saga = SAGA(problem.params, problem.slots)
    saga.start_(problem.backward)
    before = saga.state_dict()["memory"][1].clone()
    problem.set_gradients(0)
    problem.params[1].grad = None
    saga.correct_(0)
    assert problem.params[1].grad is None
    assert torch.equal(saga.state_dict()["memory"][1], before)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_the_svrg_direction_averages_over_all_slots_to_the_full_gradient(dtype, generator):
    problem = Sum(generator, dtype=dtype)
    svrg = SVRG(problem.params)
    svrg.anchor_(lambda: problem.full_loss().backward())
    for found in estimates(problem, svrg, svrg_correct(problem)):
        assert distances(found, problem.gradients()) < 1e-13
    at_anchor, anchor_gradients = problem.gradients(), [problem.gradients(slot) for slot in range(problem.slots)]
    problem.move(generator)
    found, full = estimates(problem, svrg, svrg_correct(problem)), problem.gradients()
    assert distances(mean_over_slots(found), full) < 1e-13
    assert distances(found[0], full) > 1e-2
    literal = [g - a + f for g, a, f in zip(problem.gradients(2), anchor_gradients[2], at_anchor, strict=True)]
    assert distances(found[2], literal) < 1e-13


@pytest.mark.parametrize("raising", [False, True], ids=["returns", "raises"])
def test_svrg_restores_parameters_bitwise_and_gradients_even_if_the_closure_raises(raising, generator):
    problem = Sum(generator, dtype=torch.float32)
    svrg = SVRG(problem.params)
    svrg.anchor_(lambda: problem.full_loss().backward())
    problem.move(generator)
    problem.set_gradients(1)
    given = [param.grad for param in problem.params]
    kept = [grad.clone() for grad in given]
    before = [param.detach().clone() for param in problem.params]
    state = copy.deepcopy(svrg.state_dict())

    def closure():
        assert all(param.grad is None for param in problem.params)
        assert not torch.equal(problem.params[0], before[0])
        problem.backward(1)
        if raising:
            raise KeyboardInterrupt

    if raising:
        for call in (svrg.correct_, svrg.anchor_):
            with pytest.raises((KeyboardInterrupt, AssertionError)):
                call(closure)
        assert all(torch.equal(param.grad, grad) for param, grad in zip(problem.params, kept, strict=True))
    else:
        svrg.correct_(closure)
        assert not torch.equal(problem.params[0].grad, kept[0])
    assert all(param.grad is grad for param, grad in zip(problem.params, given, strict=True))
    assert all(torch.equal(param, was) for param, was in zip(problem.params, before, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(svrg.state_dict()["memory"], state["memory"], strict=True))
