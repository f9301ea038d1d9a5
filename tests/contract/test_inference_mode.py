"""Steps inside torch.inference_mode: what they make can be written by later steps outside, and the other way round."""

import pytest
import torch
from contract.factories import ALL, ATTACHED, CLASSES, assert_same, copies_of, feed, landing_of, of, parameters
from contract.factories import random_gradients as gradients_of

import glideslope as gs


def tensors_of_state(optimizer):
    optimizers = {id(one): one for one in (optimizer, landing_of(optimizer))}.values()
    return [value for one in optimizers for state in one.state.values() for value in state.values()]


@pytest.mark.parametrize(("dtype", "foreach"), [(torch.float32, True), (torch.float64, False), (torch.bfloat16, None)])
@of(ALL)
def test_steps_inside_and_outside_of_inference_mode_are_the_same(make, dtype, foreach):
    params = parameters(dtype=dtype)
    expected = copies_of(params)
    gradients = gradients_of(params, 6)
    optimizer = make(params, lr=0.05, foreach=foreach)
    for k, given in enumerate(gradients):
        with torch.inference_mode(k in (0, 3, 4)):
            feed(optimizer, params, [given])
    feed(make(expected, lr=0.05, foreach=foreach), expected, gradients)
    assert_same(params, expected)
    assert tensors_of_state(optimizer)
    assert not any(value.is_inference() for value in tensors_of_state(optimizer))


@of(CLASSES)
def test_free_parameters_too(make):
    params, free = parameters([(6, 3)], dtype=torch.float32), torch.nn.Parameter(torch.ones(4))
    optimizer = make([{"params": params}, {"params": [free], "orthogonal": False}], lr=0.05)
    with torch.inference_mode():
        feed(optimizer, [*params, free], gradients_of([*params, free], 1))
    feed(optimizer, [*params, free], gradients_of([*params, free], 2))
    assert torch.isfinite(free).all()
    assert not any(value.is_inference() for value in tensors_of_state(optimizer))


@of(ALL)
def test_a_state_loaded_in_inference_mode_can_be_stepped_outside(make):
    params = parameters([(6, 3), (6, 3)])
    optimizer = make(params, lr=0.05)
    feed(optimizer, params, gradients_of(params, 2))
    landing = landing_of(optimizer)
    with torch.inference_mode():
        landing.load_state_dict(landing.state_dict())
    feed(optimizer, params, gradients_of(params, 2, seed=5))
    assert not any(value.is_inference() for value in tensors_of_state(optimizer))


@of({**CLASSES, **ATTACHED})
@pytest.mark.parametrize("orthogonal", [True, False])
def test_a_parameter_made_in_inference_mode_is_refused_with_the_way_out(make, orthogonal):
    with torch.inference_mode():
        X = torch.nn.Parameter(gs.random_stiefel(6, 3))
    with pytest.raises(ValueError, match=r"parameter 0.*torch\.inference_mode.*clone"):
        make([{"params": [X], "orthogonal": orthogonal}])
    make([torch.nn.Parameter(X.clone())])
