"""The memory of SAGA and SVRG: its bytes, types and devices, checkpoints, and what is refused with which words."""

import copy
import logging

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from variance.sums import Sum, distances, saga_correct, svrg_correct

import glideslope as gs
from glideslope.variance import SAGA, SVRG


def test_what_the_type_of_the_memory_cannot_hold_is_not_remembered(generator):
    param = torch.nn.Parameter(torch.zeros(3))
    saga = SAGA([param], 2, dtype=torch.float16)
    saga.start_(lambda slot: ((1 + slot) * param).sum().backward())
    param.grad = torch.full((3,), 1e6)
    saga.correct_(0)
    assert torch.equal(param.grad, torch.full((3,), 1e6 - 1 + 1.5))
    assert torch.equal(saga.state_dict()["memory"][0][0], torch.ones(3, dtype=torch.float16))
    assert torch.equal(saga.state_dict()["means"][0], torch.full((3,), 1.5))


def test_half_precision_parameters_have_a_float32_mean():
    param = torch.nn.Parameter(torch.zeros(4, dtype=torch.bfloat16))
    saga = SAGA([param], 3)
    param.grad = torch.ones_like(param)
    saga.correct_(0)
    assert saga.state_dict()["memory"][0].dtype == torch.bfloat16
    assert saga.state_dict()["means"][0].dtype == torch.float32
    assert param.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("of_params", [torch.float32, torch.bfloat16, torch.complex64], ids=str)
def test_memory_bytes_are_known_before_and_are_what_is_allocated(of_params, dtype):
    params = [torch.nn.Parameter(torch.zeros(shape, dtype=of_params)) for shape in ((5, 3), (), (0, 2), (7,))]
    saga, svrg = SAGA(params, 6, dtype=dtype), SVRG(params, dtype=dtype)
    announced = [saga.memory_bytes, svrg.memory_bytes]
    assert not saga.state_dict()["memory"]
    assert not svrg.state_dict()["memory"]
    saga.start_(lambda slot: sum(param.abs().sum() for param in params).backward())
    svrg.anchor_(lambda: sum(param.abs().sum() for param in params).backward())
    states = [method.state_dict() for method in (saga, svrg)]
    tensors = [[*state["memory"], *state["means"]] for state in states]
    assert [sum(tensor.untyped_storage().nbytes() for tensor in each) for each in tensors] == announced


def test_the_memory_is_announced_and_a_large_one_warned_about(caplog):
    caplog.set_level(logging.INFO, logger="glideslope")
    model = torch.nn.Linear(64, 32)
    saga = SAGA(model.parameters(), slots=31)
    assert repr(saga) == "SAGA(slots=31, parameters=2, memory=260 KiB)"
    assert caplog.records[0].name == "glideslope"
    assert "260 KiB" in caplog.text
    assert repr(SVRG(model.parameters())) == "SVRG(parameters=2, memory=16.25 KiB)"
    with pytest.warns(UserWarning, match=r"SAGA\(slots=1000000.* GiB.*dtype=torch.bfloat16, fewer slots") as warned:
        SAGA(model.parameters(), 1_000_000)
    assert warned[0].filename == __file__


def test_params_may_be_tensors_named_or_groups_and_frozen_ones_are_left_out():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
    gs.orthogonalize_(model, ["0.weight"])
    model[1].bias.requires_grad_(False)
    ways = [
        model.parameters(),
        model.named_parameters(),
        gs.param_groups(model),
        gs.LandingSGD(gs.param_groups(model)).param_groups,
        [{"params": model[0].weight}, {"params": [model[0].bias, model[1].weight]}],
    ]
    assert {SAGA(way, 2).memory_bytes for way in ways} == {(16 + 4 + 8) * 3 * 4}


def test_a_start_keeps_what_is_not_finite_out_and_counts_a_missing_gradient_as_zero(generator):
    problem = Sum(generator)
    saga = SAGA(problem.params, problem.slots)
    saga.start_(problem.backward)
    before = copy.deepcopy(saga.state_dict())
    problem.move(generator)

    def gradients(slot):
        problem.set_gradients(slot)
        if slot == 2:
            problem.params[0].grad[0, 0] = float("nan")
            problem.params[1].grad = None

    saga.start_(gradients)
    memory = saga.state_dict()["memory"]
    assert torch.equal(memory[0][2], before["memory"][0][2])
    assert not torch.equal(memory[0][1], before["memory"][0][1])
    assert torch.equal(memory[1][2], torch.zeros(3))
    assert distances(saga.state_dict()["means"], [rows.mean(0) for rows in memory]) < 1e-14


def test_an_interrupted_start_leaves_memory_mean_and_gradients_consistent(generator):
    problem = Sum(generator)
    saga = SAGA(problem.params, problem.slots)
    problem.set_gradients(4)
    given = problem.params[0].grad

    def gradients(slot):
        if slot == 3:
            raise KeyboardInterrupt
        problem.backward(slot)

    with pytest.raises(KeyboardInterrupt):
        saga.start_(gradients)
    assert problem.params[0].grad is given
    state = saga.state_dict()
    assert state["seen"] == [0, 1, 2]
    assert distances(state["means"], [memory.mean(0) for memory in state["memory"]]) < 1e-14


def train(problem, method, slots, generator):
    trajectory = []
    for slot in slots:
        problem.move(generator, by=0.01)
        problem.set_gradients(slot)
        saga_correct(method, slot) if isinstance(method, SAGA) else svrg_correct(problem)(method, slot)
        trajectory.append(problem.params[0].grad.clone())
    return trajectory


@pytest.mark.parametrize("started", [True, False], ids=["started", "first pass"])
@pytest.mark.parametrize("make", [lambda p: SAGA(p.params, 5), lambda p: SVRG(p.params)], ids=["SAGA", "SVRG"])
def test_a_loaded_checkpoint_continues_identically(make, started, generator, tmp_path):
    problem = Sum(generator, dtype=torch.complex64)
    first = make(problem)
    if isinstance(first, SVRG):
        first.anchor_(lambda: problem.full_loss().backward())
    elif started:
        first.start_(problem.backward)
    train(problem, first, (0, 3, 3), generator)
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second = make(problem)
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    points, state = [param.detach().clone() for param in problem.params], generator.get_state()
    expected = train(problem, first, (1, 2, 4, 1, 0, 0, 3), generator)
    with torch.no_grad():
        for param, point in zip(problem.params, points, strict=True):
            param.copy_(point)
    found = train(problem, second, (1, 2, 4, 1, 0, 0, 3), generator.set_state(state))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_a_state_loads_into_another_type_and_device(generator):
    problem = Sum(generator)
    saga = SAGA(problem.params, problem.slots)
    saga.start_(problem.backward)
    narrow = SAGA(problem.params, problem.slots, dtype=torch.bfloat16, device="cpu")
    narrow.load_state_dict(saga.state_dict())
    state = narrow.state_dict()
    assert {memory.dtype for memory in state["memory"]} == {torch.bfloat16}
    exact = [memory.double().mean(0) for memory in state["memory"]]
    assert distances(state["means"], exact) < 1e-14
    elsewhere = SAGA([torch.nn.Parameter(param.detach().to("meta")) for param in problem.params], problem.slots)
    elsewhere.load_state_dict(saga.state_dict())
    assert {tensor.device.type for tensor in elsewhere.state_dict()["memory"]} == {"meta"}
    svrg, other = SVRG(problem.params), SVRG(problem.params, dtype=torch.float32)
    svrg.anchor_(lambda: problem.full_loss().backward())
    other.load_state_dict(svrg.state_dict())
    assert {anchor.dtype for anchor in other.state_dict()["memory"]} == {torch.float32}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("seen"), "the state has no 'seen'"),
        (lambda s: s.update(method="SVRG"), r"the state is one of SVRG; pass what SAGA\.state_dict"),
        (lambda s: s.update(sizes=[1, 1]), "the state has 2 slots of sizes .* this object has 5 of sizes"),
        (lambda s: s.update(sizes=[1, 1, 1, 1, 2]), "the state has 5 slots of sizes"),
        (lambda s: s.update(seen=[0, 5]), "has seen slot 5; this object has slots 0 to 4"),
        (lambda s: s["memory"].pop(), "the state has the memory of 1 parameters; this object has 2"),
        (lambda s: s["means"].pop(), "the state has the means of 1 parameters; this object has 2"),
        (lambda s: s.update(means=s["means"][::-1]), r"means of parameter 0 has shape \(3,\); expected \(6, 3\)"),
        (
            lambda s: s.update(memory=s["memory"][::-1]),
            r"memory of parameter 0 has shape \(5, 3\); expected \(5, 6, 3\)",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_changes_nothing(change, message, generator):
    problem = Sum(generator)
    saga = SAGA(problem.params, problem.slots)
    saga.start_(problem.backward)
    before, bad = copy.deepcopy(saga.state_dict()), copy.deepcopy(saga.state_dict())
    bad["corrections"] += 1
    change(bad)
    with pytest.raises(ValueError, match=message):
        saga.load_state_dict(bad)
    after = saga.state_dict()
    assert after["corrections"] == before["corrections"]
    assert after["seen"] == before["seen"]
    assert all(torch.equal(a, b) for a, b in zip(after["memory"], before["memory"], strict=True))


def test_a_loaded_state_is_a_copy(generator):
    problem = Sum(generator)
    first, second = SAGA(problem.params, problem.slots), SAGA(problem.params, problem.slots)
    first.start_(problem.backward)
    second.load_state_dict(first.state_dict())
    kept = first.state_dict()["memory"][0].clone()
    problem.move(generator)
    problem.set_gradients(0)
    second.correct_(0)
    assert torch.equal(first.state_dict()["memory"][0], kept)


P = torch.nn.Parameter(torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SAGA([P], 0), "slots must be an integer >= 1; got 0"),
        (lambda: SAGA([P], 2.0), "slots must be an integer >= 1; got 2.0"),
        (lambda: SAGA([P], True), "slots must be an integer >= 1; got True"),
        (lambda: SAGA([], 2), "params has no parameter that requires a gradient; got 0"),
        (lambda: SAGA([torch.zeros(3)], 2), "params has no parameter that requires a gradient; got 1"),
        (lambda: SAGA([P, P], 2), r"parameter 1 of shape \(2, 3\) is given twice"),
        (lambda: SVRG([("a", P), ("b", P)]), "parameter 'b' .* is given twice"),
        (lambda: SAGA(P, 2), "params must be a list of parameters or of groups; got Parameter"),
        (lambda: SAGA(torch.nn.Linear(2, 2), 2), "params must be a list of parameters or of groups; got Linear"),
        (lambda: SAGA(["weight"], 2), "parameter 0 must be a tensor, or a pair of a name and a tensor; got 'weight'"),
        (lambda: SAGA([P], 3, sizes=[1, 2]), r"sizes must be 3 integers >= 1, one per slot; got 2: \[1, 2\]"),
        (lambda: SAGA([P], 2, sizes=[1, 0]), "sizes must be 2 integers >= 1"),
        (lambda: SVRG([P], dtype=torch.int8), r"SVRG: dtype must be one of torch.float64.*; got torch.int8"),
    ],
)
def test_bad_arguments_are_refused_with_the_way_out(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("slot", [-1, 4, 1.0, True, torch.tensor(1)], ids=str)
def test_a_slot_out_of_range_is_refused_with_the_range_and_changes_nothing(slot):
    param = torch.nn.Parameter(torch.zeros(3))
    param.grad = torch.ones(3)
    saga = SAGA([param], 4)
    with pytest.raises(ValueError, match="slot must be an integer from 0 to 3; got"):
        saga.correct_(slot)
    assert saga.state_dict()["seen"] == []


def test_svrg_without_an_anchor_says_what_to_call():
    with pytest.raises(RuntimeError, match=r"no anchor yet; call anchor_"):
        SVRG([P]).correct_(lambda: None)


def test_sparse_gradients_are_refused_by_name():
    table = torch.nn.Embedding(5, 2, sparse=True)
    saga = SAGA(table.named_parameters(), 2)
    backward = lambda slot: table(torch.tensor([slot])).sum().backward()  # noqa: E731
    backward(0)
    with pytest.raises(ValueError, match=r"parameter 'weight' has a gradient of layout torch.sparse_coo.*sparse=False"):
        saga.correct_(0)
    with pytest.raises(ValueError, match="SVRG: parameter 'weight' has a gradient of layout"):
        SVRG(table.named_parameters()).anchor_(lambda: backward(1))
    assert table.weight.grad.is_sparse


@pytest.fixture
def copies_between_devices(monkeypatch):
    """A copy_ that fake CUDA tensors can do on a build without CUDA; see tests/contract/test_devices.py."""
    monkeypatch.setattr(
        torch.Tensor, "copy_", lambda self, source: self.zero_().add_(source.to(self.device, self.dtype))
    )


@pytest.mark.usefixtures("copies_between_devices")
@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bfloat16], ids=str)
def test_corrections_run_on_fake_cuda_tensors_with_the_memory_where_asked_and_no_host_synchronisation(dtype, device):
    with FakeTensorMode():
        params = [torch.nn.Parameter(torch.empty(shape, dtype=dtype, device="cuda")) for shape in ((6, 3), (2, 4, 4))]

        def set_gradients(*_):
            for param in params:
                param.grad = torch.empty_like(param)

        saga, svrg = SAGA(params, 3, device=device), SVRG(params, device=device)
        saga.start_(set_gradients)
        svrg.anchor_(set_gradients)
        for slot in range(4):
            set_gradients()
            saga.correct_(slot % 3)
            svrg.correct_(set_gradients)
        states = [saga.state_dict(), svrg.state_dict()]
        on_device = [*(param.grad for param in params), *(mean for state in states for mean in state["means"])]
        assert {tensor.device.type for tensor in on_device} == {"cuda"}
        assert {tensor.device.type for state in states for tensor in state["memory"]} == {device or "cuda"}
