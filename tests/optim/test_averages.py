"""Averages of weights: not orthonormal themselves, marked as the model is, and made exact by project_."""

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

import glideslope as gs

KINDS = {"SWA": {}, "EMA": {"multi_avg_fn": get_ema_multi_avg_fn(0.5)}}


def trained_with_average(**options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    gs.orthogonalize_(model)
    averaged = AveragedModel(model, **options)
    optimizer = gs.LandingSGD(model.parameters(), lr=0.5, momentum=0.9, normal_step="polar")
    batches = [torch.randn(16, 6, generator=torch.Generator().manual_seed(i)) for i in range(12)]
    for inputs in batches:
        optimizer.zero_grad()
        (model(inputs) - inputs[:, :3]).square().mean().backward()
        optimizer.step()
        averaged.update_parameters(model)
    return model, averaged, batches


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())
def test_project_makes_an_averaged_model_exact_and_leaves_the_model_alone(options):
    model, averaged, batches = trained_with_average(**options)
    names = [row.name for row in gs.orthogonality(model)]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    average = averaged.module[0].weight.detach().clone()
    far = gs.orthogonality(averaged).largest_distance
    assert far > 1e3 * gs.orthogonality(model).largest_distance  # why it has to be projected
    assert gs.project_(averaged) == [f"module.{name}" for name in names]
    assert gs.orthogonality(averaged).largest_distance < 1e-5
    assert (averaged.module[0].weight - average).norm() < far  # to the nearest one
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    update_bn(batches, averaged)  # after the projection: its statistics belong to the weights
    model.load_state_dict(averaged.module.state_dict())


def test_the_bare_parameters_of_an_averaged_model_are_constrained():
    _, averaged, _ = trained_with_average()
    gs.project_(averaged)
    optimizer = gs.LandingSGD(averaged.parameters(), lr=0.1)
    assert [group["orthogonal"] for group in optimizer.param_groups] == [True, False]


def test_training_goes_on_from_an_average_that_was_projected():
    model, averaged, batches = trained_with_average()
    gs.project_(averaged)
    model.load_state_dict(averaged.module.state_dict())
    optimizer = gs.LandingSGD(model, lr=0.1)
    (model(batches[0]) ** 2).mean().backward()
    optimizer.step()
    assert gs.orthogonality(model).largest_distance < 0.1
