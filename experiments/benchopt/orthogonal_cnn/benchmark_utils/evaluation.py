"""What is recorded of a model: its accuracy on the test images, and its distance to the constraint."""

import copy
import math

import torch
from torch import nn

import glideslope as gs
from benchmark_utils.networks import kernels, tall

MEASURED = ("value", "accuracy", "accuracy_projected", "penalty", "distance")


@torch.no_grad()
def measure(model, images, *, with_projected):
    """Error rate, accuracy, that with projected kernels (on request), sum of N and largest ‖XᵀX - I‖ of the kernels."""
    if model is None:
        return dict.fromkeys(MEASURED, math.nan)
    matrices = [tall(weight).double() for weight in kernels(model)]
    accuracy = accuracy_of(model, images)
    values = (
        1 - accuracy,
        accuracy,
        accuracy_of(projected(model), images) if with_projected else math.nan,
        sum(float(gs.formulas.penalty(X)) for X in matrices),
        max(float(gs.formulas.distance(X)) for X in matrices),
    )
    return dict(zip(MEASURED, values, strict=True))


def accuracy_of(model, images):
    model.eval()
    batches = (batch.contiguous(memory_format=torch.channels_last) for batch in images.test.split(500))
    right = sum(
        (model(batch).argmax(1) == labels).sum()
        for batch, labels in zip(batches, images.test_labels.split(500), strict=True)
    )
    return int(right) / len(images.test)


def projected(model):
    """A copy whose kernels are the nearest orthonormal ones; a parametrized model is orthonormal as it is."""
    if any(hasattr(module, "flat_kernel") for module in model.modules()):
        return model
    model = copy.deepcopy(model)
    gs.orthogonalize_(model, nn.Conv2d)
    return model
