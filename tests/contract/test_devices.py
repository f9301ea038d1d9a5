"""Fake CUDA tensors: nothing is created on the CPU or in another type, and no step asks the host for a number."""

from contextlib import contextmanager
from functools import partial

import pytest
import torch
from contract.factories import ALL, landing_of
from contract.peer import PeerSGD
from torch._subclasses.fake_tensor import FakeTensorMode

import glideslope as gs

SHAPES = [(6, 3), (6, 3), (2, 4, 4)]
TYPES = [torch.float32, torch.complex64, torch.bfloat16]


@contextmanager
def copies_without_a_device_guard():
    """Without a CUDA device, copy_ alone of all operations may not run on a fake CUDA tensor: spell it differently."""
    if torch.cuda.is_available():
        yield
        return
    before = torch.Tensor.copy_

    def copy_(self, source, non_blocking=False):
        return self.zero_().add_(source.to(self.dtype))

    torch.Tensor.copy_ = copy_
    try:
        yield
    finally:
        torch.Tensor.copy_ = before


def check_it_runs_on_fake_cuda_tensors(make, dtype, free=False):
    with copies_without_a_device_guard(), FakeTensorMode():
        params = [torch.nn.Parameter(torch.empty(shape, dtype=dtype, device="cuda")) for shape in SHAPES]
        optimizer = make(params, lr=0.1)
        if free:
            params.append(torch.nn.Parameter(torch.empty(5, dtype=dtype, device="cuda")))
            optimizer.add_param_group({"params": params[-1:], "orthogonal": False})
        for _ in range(2):
            for param in params:
                param.grad = torch.empty_like(param)
            optimizer.step()
        state = landing_of(optimizer).state
        entries = [(name, value) for of_one in state.values() for name, value in of_one.items()]
        assert not any(value.is_floating_point() and value.dtype != compute(dtype) for _, value in entries if not free)
        assert {value.device.type for _, value in entries} <= {"cuda"}
        assert all(param.device.type == "cuda" and param.dtype == dtype for param in params)
        return entries


def compute(dtype):
    if dtype in (torch.bfloat16, torch.float16):
        return torch.float32
    return dtype.to_real()


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("make", ALL.values(), ids=ALL.keys())
def test_a_step_runs_on_fake_cuda_tensors_with_all_its_state_there(make, dtype):
    assert check_it_runs_on_fake_cuda_tensors(make, dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("cls", [gs.LandingSGD, gs.LandingAdam])
def test_a_step_one_by_one_runs_on_fake_cuda_tensors(cls, dtype):
    assert check_it_runs_on_fake_cuda_tensors(partial(cls, foreach=False), dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("scale", ["modular", "free"])
@pytest.mark.parametrize("cls", [gs.LandingSGD, gs.LandingAdam])
def test_a_scaled_step_runs_on_fake_cuda_tensors_with_its_scale_there(cls, scale, dtype):
    for foreach in (True, False):
        entries = dict(check_it_runs_on_fake_cuda_tensors(partial(cls, scale=scale, foreach=foreach), dtype))
        assert ("scale" in entries) == (scale == "free")


@pytest.mark.parametrize("cls", [gs.LandingSGD, gs.LandingAdam, gs.RiemannianSGD, gs.PenaltySGD])
def test_free_parameters_keep_their_state_on_the_fake_cuda_device(cls):
    check_it_runs_on_fake_cuda_tensors(cls, torch.float32, free=True)


@pytest.mark.parametrize("defect", ["constants", "asks the host"])
def test_the_check_catches_a_constant_on_the_cpu_and_a_host_synchronisation(defect):
    check_it_runs_on_fake_cuda_tensors(PeerSGD, torch.float32)
    with pytest.raises(Exception, match=r"cpu|local_scalar_dense"):
        check_it_runs_on_fake_cuda_tensors(partial(PeerSGD, defect=defect), torch.float32)


def test_the_spelling_of_copy_used_here_is_undone():
    before = torch.Tensor.copy_
    with copies_without_a_device_guard():
        pass
    assert torch.Tensor.copy_ is before
