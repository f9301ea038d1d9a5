"""Linear layers with a transposed weight, as GPT-2 has them: found, and fused q, k and v constrained one by one."""

import pytest
import torch
from torch import nn

import glideslope as gs


class Conv1D(nn.Module):
    """The layer of transformers, in its interface."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        return x @ self.weight + self.bias


def attention(blocks=3):
    torch.manual_seed(0)
    return nn.ModuleDict({"c_attn": Conv1D(blocks * 8, 8), "c_proj": Conv1D(8, 8), "c_fc": Conv1D(32, 8)})


@pytest.mark.parametrize("blocks", [2, 3])
def test_they_are_chosen_by_default_with_fused_projections_as_blocks_of_columns(blocks):
    model = nn.Sequential(attention(blocks))
    assert gs.orthogonalize_(model) == ["0.c_attn.weight", "0.c_proj.weight", "0.c_fc.weight"]
    assert [row.view for row in gs.orthogonality(model)] == [f"split_columns:{blocks}", "matrix", "matrix"]
    assert [row.count for row in gs.orthogonality(model)] == [blocks, 1, 1]
    for block in model[0]["c_attn"].weight.chunk(blocks, dim=1):
        torch.testing.assert_close(block.T @ block, torch.eye(8), rtol=0, atol=1e-5)


def test_training_keeps_every_block_orthonormal():
    model = attention()
    gs.orthogonalize_(model)
    optimizer = gs.LandingAdam(model.parameters(), lr=0.01)
    start = model["c_attn"].weight.detach().clone()
    for step in range(20):
        inputs = torch.randn(4, 8, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model["c_attn"](inputs).cumsum(-1).square().mean().backward()
        optimizer.step()
    assert not torch.equal(model["c_attn"].weight, start)
    assert gs.orthogonality(model).largest_distance < 5e-2
    assert gs.orthogonality(model.state_dict()).largest_distance < 5e-2  # the report guesses the blocks from the name


def test_a_type_that_contains_them_chooses_them_too():
    model = nn.Sequential(attention(), nn.Linear(8, 8))
    assert gs.orthogonalize_(model, nn.ModuleDict) == ["0.c_attn.weight", "0.c_proj.weight", "0.c_fc.weight"]


def test_another_class_of_that_name_is_left_alone():
    class Conv1D(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

    assert gs.orthogonalize_(nn.Sequential(Conv1D(), nn.Linear(3, 3))) == ["1.weight"]
