"""What the trainers train: a small network and GPT-2, with data from a seed."""

import torch
from torch import nn

import glideslope as gs


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3))
    gs.orthogonalize_(model)
    return model


def batch(step, size=8):
    inputs = torch.randn(size, 6, generator=torch.Generator().manual_seed(step))
    return inputs, inputs[:, :3].sin()


def total_loss(model):
    """The loss over the batches that it is trained on."""
    with torch.no_grad():
        return sum(loss_of(model, step).item() for step in range(10))


def loss_of(model, step):
    inputs, targets = batch(step)
    return (model(inputs) - targets).square().mean()


def train(model, optimizer, steps=20, first=0, backward=torch.Tensor.backward):
    """The losses of some steps."""
    losses = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        loss = loss_of(model, step)
        backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return losses


def assert_equal(first, second):
    """Equal to the last bit."""
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other), name


def assert_constrained(model, names=("0.weight", "2.weight"), within=0.1):
    """The marked weights are these, and have stayed close to orthonormal."""
    report = gs.orthogonality(model)
    assert tuple(row.name for row in report) == tuple(names), report
    assert report.largest_distance < within, report
