"""What a step costs in products, on a device without data, and with products of reduced precision."""

import pytest
import torch
from combinations import every_pair
from counting import ProductCounter
from literal import point_at_distance, random_matrix
from torch._subclasses.fake_tensor import FakeTensorMode

import glideslope as gs
from glideslope.engine.production import take_step
from glideslope.engine.rule import StepRule

METRICS = ["canonical", "euclidean"]
NORMAL_STEPS = ["landing", "newton-schulz", "polar"]
SAFEGUARDS = ["lemma", "exact", None]


def start(shape, dtype, generator, distance=0.3):
    X = point_at_distance(*shape[-2:], distance, batch=shape[:-2], dtype=dtype, generator=generator)
    return X, random_matrix(*shape, dtype=dtype, generator=generator)


@pytest.mark.parametrize(
    ("shape", "options", "products"),
    [
        ((40, 8), {"metric": "canonical"}, 4 * 40 * 8 * 8),
        ((40, 8), {"metric": "canonical", "attraction": 1.0}, 4 * 40 * 8 * 8),
        # The Euclidean metric has one p x p product more; for n = p it is the canonical one.
        ((40, 8), {}, 4 * 40 * 8 * 8 + 8**3),
        ((8, 8), {}, 3 * 8**3),
        ((8, 8), {"metric": "canonical"}, 3 * 8**3),
        ((40, 8), {"normal_step": "newton-schulz", "metric": "canonical"}, 6 * 40 * 8 * 8),
        # These long steps are shortened, for which their Gram matrix is squared: p x p.
        ((5000, 32), {"normal_step": "newton-schulz"}, 5 * 5000 * 32 * 32 + 10 * 32**3),
        ((40, 8), {"normal_step": "newton-schulz"}, 6 * 40 * 8 * 8 + 2 * 8**3),
        ((784, 10), {"normal_step": "newton-schulz"}, 6 * 784 * 10 * 10 + 2 * 10**3),
        ((40, 8), {"safeguard": "exact"}, 6 * 40 * 8 * 8 + 2 * 8**3),
    ],
)
def test_a_step_costs_its_products_and_no_more(shape, options, products, generator):
    X, G = start(shape, torch.float64, generator)
    with ProductCounter() as counter:
        gs.landing_step(X, G, step_size=0.1, **options)
    assert counter.multiplications == products


@every_pair(safeguard=SAFEGUARDS, normal_step=NORMAL_STEPS, shape=[(6, 6), (9, 4), (3, 9, 4)])
def test_a_step_on_fake_cuda_tensors_needs_no_data_and_creates_nothing_on_the_cpu(shape, normal_step, safeguard):
    with FakeTensorMode():
        X, G = torch.empty(shape, device="cuda"), torch.empty(shape, device="cuda")
        size = torch.empty((), device="cuda")
        for attraction in (1.0, "auto"):
            rule = StepRule(attraction=attraction, normal_step=normal_step, safeguard=safeguard)
            assert all(tensor.device.type == "cuda" for tensor in take_step(X, G, size, rule, out=X))
        for metric in METRICS:
            assert gs.formulas.landing_field(X, G, attraction=1.0, metric=metric).device.type == "cuda"


@pytest.mark.parametrize("normal_step", NORMAL_STEPS)
def test_reduced_precision_products_are_charged_for(normal_step, monkeypatch, generator):
    """With bfloat16 factors in its products a step keeps a larger distance from the boundary."""
    X, G = start((9, 4), torch.float32, generator)
    rule = StepRule(safe_radius=0.5, normal_step=normal_step)
    full = take_step(X, G, 1e3, rule).X
    monkeypatch.setattr(torch, "get_float32_matmul_precision", lambda: "medium")
    reduced = take_step(X, G, 1e3, rule).X
    assert (reduced - X).norm() < (full - X).norm()
