"""Two ways to the same result: stacked and one by one, free groups and torch's optimizers, landing and retraction."""

from functools import partial

import pytest
import torch
from contract.factories import (
    ALL,
    CLASSES,
    OWN,
    SAFE,
    assert_same,
    copies_of,
    feed,
    of,
    orthonormal,
    parameters,
    random_gradients,
    seeded,
)
from literal import random_matrix

import glideslope as gs


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)], ids=str)
@of(ALL)
def test_stacked_equals_one_by_one(make, dtype, tolerance):
    stacked = parameters(dtype=dtype)
    apart, decided = copies_of(stacked), copies_of(stacked)
    gradients = random_gradients(stacked, 5)
    for params, foreach in [(stacked, True), (apart, False), (decided, None)]:
        feed(make(params, lr=0.05, foreach=foreach), params, gradients)
    assert_same(apart, stacked, tolerance)
    assert_same(decided, stacked, tolerance)
    assert not torch.equal(apart[0], parameters(dtype=dtype)[0])


@pytest.mark.parametrize("foreach", [True, False])
@of({**SAFE, "RiemannianSGD": partial(gs.RiemannianSGD, retraction="polar")})
def test_kernels_in_channels_last_take_the_same_steps(make, foreach):
    """The QR retraction is left out: it depends on the order of the columns, and the order in memory is that."""
    plain = [torch.nn.Parameter(orthonormal((4, 18), generator=seeded()).view(4, 2, 3, 3)) for _ in range(2)]
    last = [torch.nn.Parameter(param.detach().clone(memory_format=torch.channels_last)) for param in plain]
    assert last[0].stride() != plain[0].stride()
    for params in (plain, last):
        optimizer = make([{"params": params, "view": "conv"}], lr=0.05, foreach=foreach)
        gradients = random_gradients(plain, 4)
        if params is last:
            gradients = [[g.clone(memory_format=torch.channels_last) for g in given] for given in gradients]
        feed(optimizer, params, gradients)
    assert_same(last, plain, 1e-12)


def free_parameters():
    generator = seeded(3)
    shapes = [(5,), (3, 4), (), (2, 3, 2)]
    return [torch.nn.Parameter(torch.randn(shape, dtype=torch.float64, generator=generator)) for shape in shapes]


FREE_SGD = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    {"momentum": 0.9, "dampening": 0.3},
    {"weight_decay": 0.1, "maximize": True},
    {"momentum": 0.5, "maximize": True, "foreach": False},
    {"momentum": 0.5, "foreach": True},
]


@pytest.mark.parametrize("options", FREE_SGD, ids=str)
@pytest.mark.parametrize("name", ["LandingSGD", "RiemannianSGD", "PenaltySGD"])
def test_free_groups_equal_torch_sgd_exactly(name, options):
    ours, theirs = free_parameters(), free_parameters()
    gradients = random_gradients(ours, 5)
    feed(CLASSES[name]([{"params": ours, "orthogonal": False}], lr=0.1, **options), ours, gradients)
    feed(torch.optim.SGD(theirs, lr=0.1, **options), theirs, gradients)
    assert_same(ours, theirs)


@pytest.mark.parametrize(
    "options",
    [{}, {"weight_decay": 0.1, "betas": (0.8, 0.9), "eps": 1e-3}, {"maximize": True, "foreach": False}],
    ids=str,
)
def test_free_groups_of_landing_adam_equal_torch_adamw_exactly(options):
    ours, theirs = free_parameters(), free_parameters()
    gradients = random_gradients(ours, 5)
    feed(gs.LandingAdam([{"params": ours, "orthogonal": False}], lr=0.1, **options), ours, gradients)
    feed(torch.optim.AdamW(theirs, lr=0.1, **{"weight_decay": 0, **options}), theirs, gradients)
    assert_same(ours, theirs)


@of(CLASSES)
def test_free_and_constrained_groups_of_one_optimizer_do_not_disturb_each_other(make):
    constrained, free = parameters(), free_parameters()
    alone, free_alone = copies_of(constrained), copies_of(free)
    together = [{"params": free, "orthogonal": False}, {"params": constrained}]
    given, free_given = random_gradients(constrained, 3), random_gradients(free, 3, seed=2)
    both = [a + b for a, b in zip(free_given, given, strict=True)]
    feed(make(together, lr=0.1), free + constrained, both)
    feed(make(alone, lr=0.1), alone, given)
    feed(make([{"params": free_alone, "orthogonal": False}], lr=0.1), free_alone, free_given)
    assert_same(constrained, alone, 1e-13)
    assert_same(free, free_alone)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_landing_with_a_polar_normal_step_follows_riemannian_sgd_with_the_polar_retraction(dtype):
    """A hundred steps of min ½ ‖A X - B‖² in the Euclidean metric."""
    A, B = random_matrix(8, 8, dtype=dtype, generator=seeded(1)), random_matrix(8, 3, dtype=dtype, generator=seeded(2))
    landing = torch.nn.Parameter(orthonormal((8, 3), dtype))
    retracting = torch.nn.Parameter(landing.detach().clone())
    options = {"lr": 0.02, "metric": "euclidean"}
    first = gs.LandingSGD([landing], normal_step="polar", **options)
    second = gs.RiemannianSGD([retracting], retraction="polar", **options)
    for _ in range(100):
        for optimizer, X in [(first, landing), (second, retracting)]:
            feed(optimizer, [X], [[A.mH @ (A @ X.detach() - B)]])
        assert_same([landing], [retracting], 1e-9)
    assert (landing - orthonormal((8, 3), dtype)).abs().max() > 0.1


@of({name: make for name, make in OWN.items() if name != "PenaltySGD"})
def test_weight_decay_does_not_move_a_constrained_weight(make):
    decayed = parameters()
    plain = copies_of(decayed)
    gradients = random_gradients(decayed, 3)
    feed(make(decayed, lr=0.1, weight_decay=0.5), decayed, gradients)
    feed(make(plain, lr=0.1), plain, gradients)
    assert_same(decayed, plain)


def test_weight_decay_of_an_attached_optimizer_does_not_move_a_constrained_weight():
    X = torch.nn.Parameter(orthonormal((6, 3)))
    start = X.detach().clone()
    optimizer = gs.attach_landing(torch.optim.AdamW([X], lr=0.1, weight_decay=0.5), [X])
    feed(optimizer, [X], [[torch.zeros_like(X)]] * 5)
    assert_same([X], [start], 1e-13)


@of(OWN)
def test_maximize_mirrors_minimising_the_negative(make):
    up, down = parameters(), parameters()
    gradients = random_gradients(up, 4)
    feed(make(up, lr=0.05, maximize=True), up, gradients)
    feed(make(down, lr=0.05), down, [[-g for g in given] for given in gradients])
    assert_same(up, down)
    assert not torch.equal(up[0], parameters()[0])


@of(ALL)
def test_the_loss_falls(make):
    A, B = random_matrix(6, 6, generator=seeded(1)), random_matrix(6, 3, generator=seeded(2))
    X = torch.nn.Parameter(orthonormal((6, 3)))
    optimizer = make([X], lr=0.02)
    losses = []
    for _ in range(60):
        loss = (A @ X - B).square().sum() / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert min(losses[-5:]) < 0.8 * losses[0]


@of(SAFE)
def test_a_complex_parameter_with_real_values_takes_the_steps_of_the_real_one(make):
    if make is SAFE["attached AdamW"]:
        pytest.skip("torch's AdamW has second moments of their own for real and imaginary parts")
    real = parameters()
    complex_ = [torch.nn.Parameter(param.detach().to(torch.complex128)) for param in real]
    gradients = random_gradients(real, 4)
    feed(make(real, lr=0.05), real, gradients)
    feed(make(complex_, lr=0.05), complex_, [[g.to(torch.complex128) for g in given] for given in gradients])
    assert_same(complex_, [param.detach().to(torch.complex128) for param in real], 1e-12)
