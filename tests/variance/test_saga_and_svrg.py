"""The formulas of section 3.3 that training loops and minimize share, against the sums written out."""

from functools import partial

import pytest
import torch

from glideslope.variance.saga_and_svrg import mean_of_memory_, update_mean_, variance_reduced

SHARES = [0.5, 0.3, 0.2]


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_the_estimate_averages_over_uniform_slots_to_the_weighted_gradient(dtype, generator):
    fresh, memory = torch.randn(2, 3, 5, 2, generator=generator, dtype=dtype)
    mean = sum(share * Phi for share, Phi in zip(SHARES, memory, strict=True))
    estimates = [variance_reduced(mean, fresh[i] - memory[i], weight=3 * SHARES[i]) for i in range(3)]
    expected = sum(share * G for share, G in zip(SHARES, fresh, strict=True))
    torch.testing.assert_close(sum(estimates) / 3, expected)
    assert (estimates[0] - expected).abs().max() > 1e-2


def test_the_estimate_may_take_the_place_of_the_change(generator):
    mean, change = torch.randn(2, 5, 2, generator=generator)
    expected = mean + 0.7 * change
    found = variance_reduced(mean, change, weight=0.7, out=change)
    assert found is change
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(variance_reduced(mean, change), mean + change)


def test_the_updated_mean_is_the_mean_of_the_new_memory(generator):
    draw = partial(torch.randn, 5, 2, generator=generator, dtype=torch.float64)
    memory = [draw() for _ in SHARES]
    mean = mean_of_memory_(draw(), zip(SHARES, memory, strict=True))
    for slot in (1, 1, 0, 2):
        fresh = draw()
        update_mean_(mean, fresh - memory[slot], share=SHARES[slot])
        memory[slot] = fresh
    torch.testing.assert_close(mean, sum(share * Phi for share, Phi in zip(SHARES, memory, strict=True)))


def test_the_mean_of_a_narrow_memory_is_summed_in_the_type_of_the_mean(generator):
    memory = torch.randn(1000, 4, generator=generator).bfloat16()
    mean = mean_of_memory_(torch.empty(4), ((1 / 1000, row) for row in memory))
    torch.testing.assert_close(mean, memory.double().mean(0).float())


def test_a_memory_of_factors_has_the_mean_of_their_products(generator):
    draw = partial(torch.randn, generator=generator, dtype=torch.complex128)
    factors = [(draw(4, 5), draw(4, 2)) for _ in SHARES]
    mean = mean_of_memory_(draw(5, 2), zip(SHARES, factors, strict=True))
    torch.testing.assert_close(mean, sum(s * A.mH @ W for s, (A, W) in zip(SHARES, factors, strict=True)))
