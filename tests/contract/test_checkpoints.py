"""Saving and going on: state_dict through torch.save, into fresh models and other types, deepcopy and pickle."""

import copy
import pickle

import pytest
import torch
from contract.factories import (
    ALL,
    ATTACHED,
    CLASSES,
    OWN,
    assert_same,
    copies_of,
    distances,
    feed,
    landing_of,
    of,
    parameters,
    random_gradients,
    through_a_file,
)

import glideslope as gs


def states(optimizer):
    """All states of an optimizer; an attached one has two."""
    landing = landing_of(optimizer)
    return [optimizer.state_dict()] if landing is optimizer else [optimizer.state_dict(), landing.state_dict()]


def load(optimizer, saved):
    optimizer.load_state_dict(saved[0])
    if len(saved) == 2:
        optimizer.landing.load_state_dict(saved[1])


@pytest.mark.parametrize(
    ("dtype", "foreach"), [(torch.float32, False), (torch.complex64, True), (torch.bfloat16, None)], ids=str
)
@of(ALL)
def test_a_loaded_state_continues_bit_identically_with_fresh_parameters(make, dtype, foreach):
    params = parameters(dtype=dtype)
    optimizer = make(params, lr=0.05, foreach=foreach)
    before, after = random_gradients(params, 2), random_gradients(params, 2, seed=5)
    feed(optimizer, params, before)
    saved, weights = through_a_file(states(optimizer)), through_a_file([p.detach() for p in params])
    feed(optimizer, params, after)
    fresh = [torch.nn.Parameter(weight) for weight in weights]
    resumed = make(fresh, lr=0.7, foreach=foreach)
    load(resumed, saved)
    assert resumed.param_groups[0]["lr"] == 0.05
    feed(resumed, fresh, after)
    assert_same(fresh, params)


def small_model(dtype):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.Tanh(), torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    model.to(dtype)
    gs.orthogonalize_(model)
    return model


def train(model, optimizer, steps, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        data = torch.randn(8, 6, generator=generator).to(next(model.parameters()).dtype)
        optimizer.zero_grad()
        model(data).float().square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", CLASSES)
def test_a_model_with_free_parameters_continues_bit_identically_in_a_fresh_model(name, dtype):
    options = {} if name == "LandingAdam" else {"momentum": 0.9}
    model, fresh = small_model(dtype), small_model(dtype)
    optimizer = CLASSES[name](gs.param_groups(model), lr=0.05, **options)
    train(model, optimizer, 3)
    saved = through_a_file({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    train(model, optimizer, 3, seed=1)
    fresh.load_state_dict(saved["model"])
    resumed = CLASSES[name](gs.param_groups(fresh), lr=0.05, **options)
    resumed.load_state_dict(saved["optimizer"])
    train(fresh, resumed, 3, seed=1)
    assert_same(list(fresh.parameters()), list(model.parameters()))


@of(OWN)
def test_a_float32_state_continues_close_in_float64(make):
    single = parameters(dtype=torch.float32)
    optimizer = make(single, lr=0.02)
    feed(optimizer, single, random_gradients(single, 3))
    double = [torch.nn.Parameter(param.detach().double()) for param in single]
    resumed = make(double, lr=0.02)
    resumed.load_state_dict(through_a_file(optimizer.state_dict()))
    after = random_gradients(single, 3, seed=5)
    feed(optimizer, single, after)
    feed(resumed, double, [[g.double() for g in given] for given in after])
    assert_same(double, [param.detach().double() for param in single], 1e-5)
    floating = [v for state in resumed.state.values() for v in state.values() if v.is_floating_point()]
    assert all(value.dtype == torch.float64 for value in floating)


@of(OWN)
def test_a_half_precision_state_continues_in_float32_without_masters(make):
    half = [torch.nn.Parameter(p.detach().bfloat16()) for p in parameters(dtype=torch.float32)]
    optimizer = make(half, lr=0.02)
    feed(optimizer, half, random_gradients(half, 2))
    single = [torch.nn.Parameter(param.detach().float()) for param in half]
    resumed = make(single, lr=0.02)
    resumed.load_state_dict(through_a_file(optimizer.state_dict()))
    feed(resumed, single, random_gradients(single, 1, seed=5))
    assert all("master" not in state for state in resumed.state.values())
    assert all(v.dtype == torch.float32 for s in resumed.state.values() for v in s.values() if v.is_floating_point())


@of(OWN)
def test_masters_survive_saving_in_float32(make):
    params = [torch.nn.Parameter(p.detach().bfloat16()) for p in parameters(dtype=torch.float32)]
    optimizer = make(params, lr=0.02)
    feed(optimizer, params, random_gradients(params, 3))
    fresh = copies_of(params)
    resumed = make(fresh, lr=0.02)
    resumed.load_state_dict(through_a_file(optimizer.state_dict()))
    for param, again in zip(params, fresh, strict=True):
        master = resumed.state[again]["master"]
        assert master.dtype == torch.float32
        assert torch.equal(master, optimizer.state[param]["master"])
        assert torch.equal(master.bfloat16(), again)
    masters = [optimizer.state[param]["master"] for param in params]
    assert any((master.bfloat16().float() != master).any() for master in masters)


def pickled(pair):
    return pickle.loads(pickle.dumps(pair))


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled], ids=["deepcopy", "pickle"])
@of(OWN)
def test_a_copy_of_model_and_optimizer_goes_on_apart_and_alike(make, copied):
    model = torch.nn.ParameterList(parameters())
    optimizer = make(list(model), lr=0.05)
    before, after = random_gradients(list(model), 2), random_gradients(list(model), 2, seed=5)
    feed(optimizer, list(model), before)
    twin, twin_optimizer = copied((model, optimizer))
    kept = [param.detach().clone() for param in twin]
    feed(optimizer, list(model), after)
    assert_same(list(twin), kept)
    feed(twin_optimizer, list(twin), after)
    assert_same(list(twin), list(model))


@of(ATTACHED)
def test_a_copy_of_an_attached_optimizer_still_lands_or_is_refused(make):
    """torch's own deepcopy drops hooks: what must not happen is that the constraint is lost without a word."""
    (X,) = parameters([(6, 3)])
    optimizer = make([X], lr=0.1)
    feed(optimizer, [X], random_gradients([X], 1))
    try:
        twin, twin_optimizer = copy.deepcopy((X, optimizer))
    except (TypeError, ValueError, RuntimeError):
        return
    feed(twin_optimizer, [twin], random_gradients([twin], 20))
    assert distances(twin).max() <= 0.5 + 1e-12


def test_a_checkpoint_taken_before_the_first_step_can_be_loaded():
    params = parameters()
    optimizer = gs.LandingAdam(params, lr=0.05)
    fresh = copies_of(params)
    resumed = gs.LandingAdam(fresh, lr=0.9)
    resumed.load_state_dict(through_a_file(optimizer.state_dict()))
    gradients = random_gradients(params, 2)
    feed(optimizer, params, gradients)
    feed(resumed, fresh, gradients)
    assert_same(fresh, params)


@pytest.mark.parametrize("foreach", [True, False])
def test_a_contiguous_state_continues_in_a_model_of_channels_last_kernels(foreach):
    """The momentum of a kernel whose memory order changed is still updated."""
    plain = [torch.nn.Parameter(parameters([(4, 18)])[0].detach().view(4, 2, 3, 3))]
    optimizer = gs.LandingSGD([{"params": plain, "view": "conv"}], lr=0.05, momentum=0.9, foreach=foreach)
    feed(optimizer, plain, random_gradients(plain, 2))
    last = [torch.nn.Parameter(plain[0].detach().clone(memory_format=torch.channels_last))]
    resumed = gs.LandingSGD([{"params": last, "view": "conv"}], lr=0.05, momentum=0.9, foreach=foreach)
    resumed.load_state_dict(through_a_file(optimizer.state_dict()))
    after = random_gradients(plain, 3, seed=5)
    feed(optimizer, plain, after)
    feed(resumed, last, after)
    assert_same(last, plain, 1e-12)


def test_a_free_complex_scalar_survives_saving():
    for cls in (gs.LandingAdam, gs.LandingSGD):
        scalar = torch.nn.Parameter(torch.tensor(1 + 2j))
        optimizer = cls([{"params": [scalar], "orthogonal": False}], lr=0.05)
        feed(optimizer, [scalar], [[torch.tensor(1j)]])
        fresh = torch.nn.Parameter(scalar.detach().clone())
        resumed = cls([{"params": [fresh], "orthogonal": False}], lr=0.05)
        resumed.load_state_dict(through_a_file(optimizer.state_dict()))
        feed(optimizer, [scalar], [[torch.tensor(1j)]])
        feed(resumed, [fresh], [[torch.tensor(1j)]])
        assert_same([fresh], [scalar])


def with_entry(saved, position, name, value):
    """A state in which one entry of one parameter is another tensor."""
    return {**saved, "state": {**saved["state"], position: {**saved["state"][position], name: value}}}


def entries(state):
    """Everything in a state, tensors as lists."""
    return {key: {name: value.tolist() for name, value in entry.items()} for key, entry in state["state"].items()}


OTHER_SHAPES = {
    "one row": ("momentum_buffer", (1, 3), (6, 3)),
    "one number per matrix": ("momentum_buffer", (1,), (6, 3)),
    "a number": ("momentum_buffer", (), (6, 3)),
    "more dimensions": ("momentum_buffer", (1, 6, 3), (6, 3)),
    "counters": ("skipped", (6, 3), (1,)),
}


@pytest.mark.parametrize(("name", "shape", "expected"), OTHER_SHAPES.values(), ids=OTHER_SHAPES.keys())
@pytest.mark.parametrize("foreach", [True, False])
@pytest.mark.parametrize("cls", [gs.LandingSGD, gs.RiemannianSGD, gs.PenaltySGD])
def test_an_entry_of_another_shape_is_refused_and_the_state_stays(cls, foreach, name, shape, expected):
    params = parameters([(5, 2), (6, 3)])
    named = [("first", params[0]), ("second", params[1])]
    optimizer = cls(named, lr=0.05, momentum=0.9, foreach=foreach)
    feed(optimizer, params, random_gradients(params, 2))
    saved = through_a_file(optimizer.state_dict())
    before = entries(optimizer.state_dict())
    bad = with_entry(saved, 1, name, torch.ones(shape))
    bad["param_groups"] = [{**bad["param_groups"][0], "lr": 0.7}]
    pattern = rf"{cls.__name__}: .*'{name}' of parameter 'second'.*{expected}; got {shape}".replace("(", r"\(")
    with pytest.raises(ValueError, match=pattern.replace(")", r"\)")):
        optimizer.load_state_dict(bad)
    assert entries(optimizer.state_dict()) == before
    assert optimizer.param_groups[0]["lr"] == 0.05
    expected_params = copies_of(params)
    resumed = cls(expected_params, lr=0.05, momentum=0.9, foreach=foreach)
    resumed.load_state_dict(saved)
    after = random_gradients(params, 2, seed=5)
    feed(optimizer, params, after)
    feed(resumed, expected_params, after)
    assert_same(params, expected_params)


@pytest.mark.parametrize(
    ("cls", "name"), [(gs.LandingAdam, "exp_avg"), (gs.LandingSGD, "momentum_buffer")], ids=["AdamW", "SGD"]
)
def test_an_entry_of_another_shape_is_refused_for_free_parameters_too(cls, name):
    free = torch.nn.Parameter(torch.ones(3, 2))
    options = {} if cls is gs.LandingAdam else {"momentum": 0.9}
    optimizer = cls([{"params": [free], "orthogonal": False}], **options)
    feed(optimizer, [free], [[torch.ones(3, 2)]])
    saved = through_a_file(optimizer.state_dict())
    with pytest.raises(ValueError, match=rf"'{name}' of parameter 0.*\(3, 2\); got \(2,\)"):
        optimizer.load_state_dict(with_entry(saved, 0, name, torch.ones(2)))
    optimizer.load_state_dict(saved)


def test_a_moment_or_master_of_another_shape_is_refused():
    params = [torch.nn.Parameter(p.detach().bfloat16()) for p in parameters([(6, 3)], dtype=torch.float32)]
    adam = gs.LandingAdam(params)
    feed(adam, params, random_gradients(params, 1))
    attached = gs.attach_landing(torch.optim.SGD(params, lr=0.1), params)
    feed(attached, params, random_gradients(params, 1))
    for optimizer, name, shape in (
        (adam, "second_moment", (3,)),
        (adam, "steps", ()),
        (attached.landing, "master", (3,)),
    ):
        bad = with_entry(optimizer.state_dict(), 0, name, torch.ones(shape))
        with pytest.raises(ValueError, match=rf"'{name}' of parameter 0"):
            optimizer.load_state_dict(bad)


def test_a_hook_may_mend_a_state_before_it_is_loaded():
    params = parameters([(6, 3)])
    optimizer = gs.LandingSGD(params, lr=0.05, momentum=0.9)
    feed(optimizer, params, random_gradients(params, 2))
    saved = through_a_file(optimizer.state_dict())
    bad = with_entry(saved, 0, "momentum_buffer", saved["state"][0]["momentum_buffer"].reshape(18))
    resumed = gs.LandingSGD(copies_of(params), lr=0.05, momentum=0.9)

    def mend(_, state):
        return with_entry(state, 0, "momentum_buffer", state["state"][0]["momentum_buffer"].reshape(6, 3))

    resumed.register_load_state_dict_pre_hook(mend)
    resumed.load_state_dict(bad)
    assert entries(resumed.state_dict()) == entries(saved)
