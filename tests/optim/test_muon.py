"""attach_landing on torch.optim.Muon, which holds the matrices of a model and nothing else."""

import copy

import pytest
import torch
from torch import nn

import glideslope as gs

if not hasattr(torch.optim, "Muon"):
    pytest.skip("torch has no Muon", allow_module_level=True)


def network():
    """A model with two marked matrices, one of them wide, and free parameters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 24), nn.LayerNorm(24), nn.GELU(), nn.Linear(24, 6))
    gs.orthogonalize_(model)
    return model


def parts(model):
    """Matrices and other parameters."""
    return [[param for param in model.parameters() if (param.ndim == 2) == matrices] for matrices in (True, False)]


def train(model, optimizers, steps=12):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        inputs = torch.randn(16, 6, generator=generator)
        model.zero_grad()
        (model(inputs) - inputs.flip(1)).square().mean().backward()
        for optimizer in optimizers:
            optimizer.step()


GIVEN = {
    "groups": gs.param_groups,
    "the model": lambda model: model,
    "its parameters": lambda model: model.parameters(),
    "its matrices": lambda model: parts(model)[0],
}


@pytest.mark.parametrize("given", GIVEN)
def test_landing_attached_to_a_muon_of_the_matrices_ignores_free_parameters_that_muon_does_not_hold(given):
    model = network()
    matrices, rest = parts(model)
    before = [param.detach().clone() for param in (*matrices, *rest)]
    muon = gs.attach_landing(torch.optim.Muon(matrices, lr=0.02), GIVEN[given](model))
    train(model, [muon])
    assert gs.orthogonality(model).largest_distance < 1e-5
    moved = [not torch.equal(old, new) for old, new in zip(before, (*matrices, *rest), strict=True)]
    assert moved == [True] * len(matrices) + [False] * len(rest)
    assert len(muon.landing.diagnostics()) == len(matrices)
    assert all(row.shortened == [0] for row in muon.landing.diagnostics())


@pytest.mark.parametrize("muon_first", [True, False])
def test_muon_for_the_matrices_and_adamw_for_the_rest_step_one_model(muon_first):
    model = network()
    matrices, rest = parts(model)
    muon = gs.attach_landing(torch.optim.Muon(matrices, lr=0.02), gs.param_groups(model))
    optimizers = [muon, torch.optim.AdamW(rest, lr=0.01)]
    without_landing = copy.deepcopy(model)
    train(model, optimizers if muon_first else optimizers[::-1])
    assert gs.orthogonality(model).largest_distance < 1e-5
    free, others = parts(without_landing)
    train(without_landing, [torch.optim.Muon(free, lr=0.02), torch.optim.AdamW(others, lr=0.01)])
    assert gs.orthogonality(without_landing).largest_distance > 0.1


def test_the_first_step_is_the_tangent_part_of_muons_update_and_one_newton_schulz_step():
    model, lr = network(), 0.02
    matrices, _ = parts(model)
    model(torch.ones(4, 6)).square().mean().backward()
    with torch.no_grad():
        points, gradients = (
            [tall(matrix).clone() for matrix in each] for each in (matrices, [m.grad for m in matrices])
        )
        proposals = copy.deepcopy(matrices)
        for proposal, X, G in zip(proposals, points, gradients, strict=True):
            proposal.grad = like(tangent(X, G), proposal)
    torch.optim.Muon(proposals, lr=lr, weight_decay=0).step()
    gs.attach_landing(torch.optim.Muon(matrices, lr=lr, weight_decay=0.1), gs.param_groups(model)).step()
    for X, proposal, found in zip(points, proposals, matrices, strict=True):
        Y = X - tangent(X, X - tall(proposal.detach()))
        assert torch.allclose(tall(found.detach()), Y @ (1.5 * torch.eye(6) - 0.5 * Y.mT @ Y), rtol=0, atol=1e-5)


def tall(matrix):
    return matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT


def like(matrix, param):
    return matrix if matrix.shape == param.shape else matrix.mT


def tangent(X, G):
    product = X.mT @ G
    return G - X @ (product + product.mT) / 2


def test_a_marked_weight_that_muon_does_not_hold_is_named():
    model = network()
    muon = torch.optim.Muon(parts(model)[0][:1], lr=0.02)
    with pytest.raises(ValueError, match=r"'3\.weight' of shape \(6, 24\) is not a parameter of the optimizer"):
        gs.attach_landing(muon, gs.param_groups(model))


def test_constrained_matrices_may_be_divided_between_two_optimizers_with_landing():
    model = network()
    (first, second), rest = parts(model)
    muon = gs.attach_landing(torch.optim.Muon([first], lr=0.02), [first])
    adamw = gs.attach_landing(torch.optim.AdamW([second, *rest], lr=3e-3), [second])
    train(model, [muon, adamw])
    assert gs.orthogonality(model).largest_distance < 1e-5
