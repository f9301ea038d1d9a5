"""The view "split_columns": a weight of blocks of columns is stepped as its transposed blocks would be on their own."""

from functools import partial

import pytest
import torch
from contract.factories import ATTACHED, parameters

import glideslope as gs

MAKERS = {
    "LandingSGD": partial(gs.LandingSGD, momentum=0.9),
    "LandingAdam": gs.LandingAdam,
    "stacked": partial(gs.LandingAdam, foreach=True, normal_step="newton-schulz"),
    "RiemannianSGD": gs.RiemannianSGD,
    **ATTACHED,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (5, 5)], ids=str)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.bfloat16, 2e-2)], ids=str)
def test_blocks_of_columns_are_stepped_as_matrices_of_their_own(make, shape, dtype, tolerance):
    blocks = parameters([shape[::-1]] * 6, dtype)

    def side_by_side(tensors, i):
        return torch.cat([tensor.detach().mT for tensor in tensors[i : i + 3]], 1)

    fused = [torch.nn.Parameter(side_by_side(blocks, i)) for i in (0, 3)]
    single = make(blocks, lr=0.05)
    together = make([{"params": fused, "view": "split_columns:3"}], lr=0.05)
    for step in range(4):
        generator = torch.Generator().manual_seed(step)
        for block in blocks:
            block.grad = torch.randn(block.shape, generator=generator).to(dtype)
        for weight, i in zip(fused, (0, 3), strict=True):
            weight.grad = side_by_side([block.grad for block in blocks], i)
        single.step()
        together.step()
    for weight, i in zip(fused, (0, 3), strict=True):
        assert (weight - side_by_side(blocks, i)).abs().max() <= tolerance
