"""Real models of each kind train: the loss falls and every routed weight stays in the safe region."""

import pytest
import torch
from networks import Recurrent, Transformer, resnet18, vgg16
from torch import nn

import glideslope as gs

MODELS = {
    "ResNet18": (resnet18, nn.Conv2d, "image", 0.1),
    "VGG16": (vgg16, None, "image", 0.1),
    "transformer": (Transformer, None, "tokens", 0.5),
    "LSTM": (Recurrent, nn.LSTM, "tokens", 5.0),
}
OPTIMIZERS = {
    "LandingSGD": lambda groups, lr: gs.LandingSGD(groups, lr=lr, momentum=0.9),
    "LandingSGD two-step": lambda groups, lr: gs.LandingSGD(
        groups, lr=lr, momentum=0.9, metric="euclidean", normal_step="newton-schulz"
    ),
    "LandingAdam": lambda groups, lr: gs.LandingAdam(groups, lr=lr / 20),
    "RiemannianSGD": lambda groups, lr: gs.RiemannianSGD(groups, lr=lr, momentum=0.9),
}


def batch_for(kind):
    if kind == "image":
        return torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
    tokens = torch.randint(20, (8, 12))
    return tokens, tokens.flatten()


@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize("model_name", MODELS)
def test_a_model_trains_with_every_routed_weight_in_the_safe_region(model_name, optimizer_name):
    torch.manual_seed(0)
    build, select, kind, lr = MODELS[model_name]
    model = build()
    names = gs.orthogonalize_(model, select)
    assert names
    optimizer = OPTIMIZERS[optimizer_name](gs.param_groups(model), lr)
    inputs, targets = batch_for(kind)
    losses = []
    for _ in range(15):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert all(row.distance <= 0.5 for row in gs.orthogonality(model))
    assert min(losses[-3:]) < 0.9 * losses[0]
    assert {row.name for row in gs.orthogonality(model)} == set(names)
    gs.project_(model)
    assert all(row.distance < 1e-5 for row in gs.orthogonality(model))
