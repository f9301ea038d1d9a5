"""What may change under an optimizer between two steps: its state, and the type, shape and layout of parameters."""

import copy

import pytest
import torch
from contract.factories import (
    OWN,
    assert_same,
    copies_of,
    distances,
    feed,
    of,
    parameters,
    random_gradients,
    through_a_file,
)

import glideslope as gs


@pytest.mark.parametrize("foreach", [True, False])
@of({"LandingSGD momentum": OWN["LandingSGD momentum"], "LandingAdam": gs.LandingAdam})
def test_a_cleared_state_starts_anew(make, foreach):
    params = parameters([(6, 3)] * 3)
    optimizer = make(params, lr=0.05, foreach=foreach)
    before, after = random_gradients(params, 2), random_gradients(params, 2, seed=5)
    feed(optimizer, params, before)
    optimizer.state.clear()
    expected = copies_of(params)
    feed(optimizer, params, after)
    feed(make(expected, lr=0.05, foreach=foreach), expected, after)
    assert_same(params, expected)
    assert len(optimizer.state_dict()["state"]) == 3


@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("replaced", [0, 3])
def test_a_state_replaced_by_hand_in_one_of_two_groups_is_used(replaced, foreach):
    params = parameters([(6, 3)] * 4)
    groups = [{"params": params[:2]}, {"params": params[2:]}]
    optimizer = gs.LandingSGD(groups, lr=0.05, momentum=0.9, foreach=foreach)
    feed(optimizer, params, random_gradients(params, 3))
    own = copy.deepcopy(optimizer.state[params[replaced]])
    own["momentum_buffer"].zero_()
    optimizer.state[params[replaced]] = own
    expected = copies_of(params)
    twin = gs.LandingSGD(expected, lr=0.05, momentum=0.9, foreach=False)
    twin.load_state_dict({"state": optimizer.state_dict()["state"], "param_groups": twin.state_dict()["param_groups"]})
    after = random_gradients(params, 3, seed=5)
    feed(optimizer, params, after)
    feed(twin, expected, after)
    assert_same(params, expected, 1e-12)
    assert optimizer.state[params[replaced]] is own
    assert own["momentum_buffer"].any()


@pytest.mark.parametrize("foreach", [True, False])
def test_states_exchanged_in_place_of_each_other_are_used(foreach):
    """The same values in the same order, for other parameters."""
    a, b = parameters([(6, 3)] * 2)
    optimizer = gs.LandingSGD([a, b], lr=0.05, momentum=0.9, foreach=foreach)
    feed(optimizer, [a, b], random_gradients([a, b], 3))
    of_a, of_b = optimizer.state.pop(a), optimizer.state.pop(b)
    optimizer.state[b], optimizer.state[a] = of_a, of_b
    expected = copies_of([a, b])
    twin = gs.LandingSGD(expected, lr=0.05, momentum=0.9, foreach=foreach)
    twin.load_state_dict(through_a_file(optimizer.state_dict()))
    after = random_gradients([a, b], 2, seed=5)
    feed(optimizer, [a, b], after)
    feed(twin, expected, after)
    assert_same([a, b], expected)


def test_stacked_parameters_may_change_their_shape_between_steps():
    params = parameters([(9, 4)] * 2)
    optimizer = gs.LandingSGD(params, lr=0.05)
    feed(optimizer, params, random_gradients(params, 2))
    for param in params:
        param.data, param.grad = torch.eye(12, 2, dtype=param.dtype), None
    feed(optimizer, params, random_gradients(params, 2))
    assert all(distances(param).max() <= 0.5 for param in params)


def test_one_of_many_parameters_cast_to_bfloat16_between_steps_goes_on():
    params = parameters([(6, 3)] * 3, torch.float32)
    optimizer = gs.LandingSGD(params, lr=0.05)
    feed(optimizer, params, random_gradients(params, 2))
    params[1].data, params[1].grad = params[1].detach().bfloat16(), None
    feed(optimizer, params, random_gradients(params, 2))
    assert ["master" in optimizer.state[param] for param in params] == [False, True, False]


def test_a_model_cast_to_bfloat16_between_steps_goes_on():
    (X,) = parameters([(6, 3)], torch.float32)
    optimizer = gs.LandingSGD([X], lr=0.05, momentum=0.9)
    feed(optimizer, [X], random_gradients([X], 2))
    X.data = X.detach().bfloat16()
    X.grad = None
    feed(optimizer, [X], random_gradients([X], 2))
    assert X.dtype == torch.bfloat16
    assert optimizer.state[X]["master"].dtype == torch.float32


def test_a_model_moved_to_channels_last_between_steps_keeps_its_momentum():
    start = parameters([(4, 18)])[0].detach().view(4, 2, 3, 3)
    plain, moved = torch.nn.Parameter(start.clone()), torch.nn.Parameter(start.clone())
    first, second = (
        gs.LandingSGD([{"params": [param], "view": "conv"}], lr=0.05, momentum=0.9) for param in (plain, moved)
    )
    gradients = random_gradients([plain], 4)
    feed(first, [plain], gradients)
    feed(second, [moved], gradients[:2])
    moved.data = moved.detach().clone(memory_format=torch.channels_last)
    feed(second, [moved], gradients[2:])
    assert_same([moved], [plain], 1e-12)
