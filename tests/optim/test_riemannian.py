"""RiemannianSGD over many steps: rounding must not add up, whichever retraction ends a step."""

import pytest
import torch

import glideslope as gs


@pytest.mark.parametrize("retraction", ["qr", "polar", "cayley", "exponential"])
def test_two_thousand_float32_steps_end_as_orthonormal_as_one(retraction, generator):
    X = torch.nn.Parameter(gs.random_stiefel(6, 3, batch=(8,), generator=generator))
    optimizer = gs.RiemannianSGD([X], lr=0.1, retraction=retraction)
    for _ in range(2000):
        X.grad = torch.randn(X.shape, generator=generator)
        optimizer.step()
    distances = gs.formulas.distance(X.detach().double())
    assert distances.max() < 2e-6
