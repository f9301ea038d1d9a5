"""A list of small matrices costs a step as many products as one of them."""

import pytest
import torch
from counting import ProductCounter

import glideslope as gs

OPTIMIZERS = {
    "LandingSGD": lambda params: gs.LandingSGD(params, lr=0.1),
    "LandingAdam": lambda params: gs.LandingAdam(params, lr=0.1),
    "attached AdamW": lambda params: gs.attach_landing(torch.optim.AdamW(params, lr=0.1), params),
    "attached, half": lambda params: gs.attach_landing(torch.optim.SGD(params, lr=0.1), params),
}


def products_of_a_step(name, count):
    generator = torch.Generator().manual_seed(0)
    dtype = torch.bfloat16 if name.endswith("half") else torch.float32
    params = [torch.nn.Parameter(gs.random_stiefel(6, 4, generator=generator, dtype=dtype)) for _ in range(count)]
    optimizer = OPTIMIZERS[name](params)
    for _ in range(2):
        for param in params:
            param.grad = torch.randn(6, 4, generator=generator).to(dtype)
        with ProductCounter() as counter:
            optimizer.step()
    return counter.calls


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_number_of_products_does_not_grow_with_the_list(name):
    assert 0 < products_of_a_step(name, 2) == products_of_a_step(name, 40)


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize(("n", "p", "products"), [(40, 8, 4), (8, 8, 3)])
def test_momentum_costs_one_product_more(n, p, products, nesterov):
    generator = torch.Generator().manual_seed(0)
    X = torch.nn.Parameter(gs.random_stiefel(n, p, generator=generator))
    optimizer = gs.LandingSGD([X], lr=0.1, momentum=0.9, nesterov=nesterov)
    for _ in range(2):
        X.grad = torch.randn(n, p, generator=generator)
        with ProductCounter() as counter:
            optimizer.step()
        small = 0 if n == p else p**3  # skew(C) Δ of the Euclidean metric
        assert counter.multiplications == (products + 1) * n * p * p + small
