"""Allocations: the counter counts, and a second step allocates nothing of the size of X."""

import pytest
import torch

from benchmarks.steps.memory import allocations
from glideslope import LandingSGD, random_stiefel


def test_allocations_counts_what_is_new_and_says_who_asked_for_it():
    X, out = torch.ones(300, 100), torch.empty(100, 100)
    assert allocations(lambda: torch.mm(X.T, X, out=out)).total == 0
    counted = allocations(lambda: X.clone().neg())
    assert (counted.total, counted.largest, counted.count) == (240_000, 120_000, 2)
    assert counted.largest_by in ("aten::clone", "aten::neg")


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("normal_step", ["landing", "newton-schulz", "polar"])
def test_the_second_step_allocates_no_matrix_of_the_size_of_x(generator, normal_step, momentum):
    X = torch.nn.Parameter(random_stiefel(600, 50, generator=generator))
    X.grad = torch.randn(600, 50, generator=generator)
    optimizer = LandingSGD([X], lr=0.01, momentum=momentum, normal_step=normal_step, foreach=False)
    optimizer.step()
    for _ in range(2):
        counted = allocations(optimizer.step)
        assert counted.largest < X.numel() * X.element_size(), counted


@pytest.mark.parametrize("shape", [(200, 200), (50, 600), (40, 32, 32)])
def test_the_second_step_of_square_wide_and_batched_matrices_allocates_none_either(generator, shape):
    tall = random_stiefel(max(shape[-2:]), min(shape[-2:]), batch=shape[:-2], generator=generator)
    X = torch.nn.Parameter(tall if tall.shape == shape else tall.mT.contiguous())
    X.grad = torch.randn(shape, generator=generator)
    optimizer = LandingSGD([X], lr=0.01)
    optimizer.step()
    counted = allocations(optimizer.step)
    assert counted.largest < X.numel() * X.element_size(), counted
