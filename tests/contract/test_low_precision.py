"""bfloat16 and float16 parameters: float32 masters in the state, and distances of float32 level for 1000 steps."""

import pytest
import torch
from contract.factories import OWN, assert_same, distances, feed, of, orthonormal, parameters, random_gradients, seeded

import glideslope as gs


def half(params, dtype):
    return [torch.nn.Parameter(param.detach().to(dtype)) for param in params]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@of(OWN)
def test_masters_take_the_steps_of_a_float32_parameter(make, dtype):
    params = half(parameters(dtype=torch.float32), dtype)
    single = [torch.nn.Parameter(param.detach().float()) for param in params]
    gradients = random_gradients(params, 5)
    optimizer = make(params, lr=0.02)
    feed(optimizer, params, gradients)
    feed(make(single, lr=0.02), single, [[g.float() for g in given] for given in gradients])
    masters = [optimizer.state[param]["master"] for param in params]
    assert all(master.dtype == torch.float32 for master in masters)
    assert_same(masters, single, 1e-5)
    assert all(torch.equal(param, master.to(dtype)) for param, master in zip(params, masters, strict=True))
    assert all(param.dtype == dtype for param in params)


def test_steps_too_small_for_bfloat16_add_up_in_the_master():
    (X,) = half([torch.nn.Parameter(orthonormal((6, 3)))], torch.bfloat16)
    optimizer = gs.LandingSGD([X], lr=3e-5)
    gradient = random_gradients([X], 1)
    start = X.detach().clone()
    feed(optimizer, [X], gradient)
    assert torch.equal(X, start)
    feed(optimizer, [X], gradient * 300)
    assert not torch.equal(X, start)


def thousand_steps(normal_step, rate, dtype=torch.bfloat16, **options):
    """Procrustes with noisy gradients; the distances of the master and of the parameter at the end."""
    generator = seeded(4)
    (X,) = half([torch.nn.Parameter(orthonormal((16, 4), torch.float32))], dtype)
    target = orthonormal((16, 4), torch.float32, seeded(5))
    optimizer = gs.LandingSGD([X], lr=rate(0), normal_step=normal_step, **options)
    for step in range(1000):
        optimizer.param_groups[0]["lr"] = rate(step)
        noise = torch.randn(16, 4, generator=generator)
        X.grad = (X.detach().float() - target + 0.1 * noise).to(dtype)
        optimizer.step()
    assert (X.float() - target).abs().max() < 0.1
    return distances(X, optimizer=optimizer).item(), distances(X).item()


@pytest.mark.parametrize("normal_step", ["newton-schulz", "polar"])
def test_a_thousand_steps_in_bfloat16_keep_the_master_at_float32_level(normal_step):
    master, rounded = thousand_steps(normal_step, lambda step: 0.02, momentum=0.5)
    assert master < 1e-5
    assert rounded > 1e-4  # what the parameter alone would be


def test_a_thousand_landing_steps_in_bfloat16_end_where_those_in_float32_end():
    """Noise of size g keeps a landing step at a distance of about lr g² / (2 λ), whatever the type: 2e-4 here."""

    def rate(step):
        return 0.2 / (1 + step / 20)

    master, rounded = thousand_steps("landing", rate)
    single, _ = thousand_steps("landing", rate, torch.float32)
    assert master < 1.2 * single < 4e-4
    assert rounded > 3 * master


@pytest.mark.parametrize("retraction", ["qr", "polar", "cayley", "exponential"])
def test_a_thousand_retractions_in_float32_do_not_drift(retraction):
    X = torch.nn.Parameter(orthonormal((16, 4), torch.float32))
    target = orthonormal((16, 4), torch.float32, seeded(5))
    optimizer = gs.RiemannianSGD([X], lr=0.05, retraction=retraction)
    generator = seeded(4)
    for _ in range(1000):
        X.grad = X.detach() - target + 0.1 * torch.randn(16, 4, generator=generator)
        optimizer.step()
    assert distances(X).item() < 1e-4


@pytest.mark.parametrize("foreach", [True, False])
def test_half_and_full_precision_parameters_share_an_optimizer(foreach):
    single = parameters([(6, 3), (4, 4)], torch.float32)
    mixed = [*single, *half(single, torch.bfloat16), *half(single, torch.float16)]
    optimizer = gs.LandingSGD(mixed, lr=0.05, momentum=0.9, foreach=foreach)
    feed(optimizer, mixed, random_gradients(mixed, 3))
    assert ["master" in optimizer.state[param] for param in mixed] == [False] * 2 + [True] * 4
    assert [param.dtype for param in mixed] == [torch.float32] * 2 + [torch.bfloat16] * 2 + [torch.float16] * 2
