"""Fake quantisation against its literal definition, and models that run with it."""

import pytest
import torch
from interop.rotations.decoders import decoder, logits, tokens

from recipes.rotations.fold import fold_, fuse_norms_, places
from recipes.rotations.quantise import Grid, Quantisation, fake_quantise, quantised
from recipes.rotations.rotations import Rotations, cross_entropy

EXACT = Quantisation.named("W16A16")


def literal(row, grid):
    """One row or group, number by number."""
    if grid.symmetric:
        top = 2 ** (grid.bits - 1) - 1
        step = max(abs(x) for x in row) / top
        return [max(-top, min(top, round(x / step))) * step for x in row]
    low, high = min(0.0, *row), max(0.0, *row)
    step = (high - low) / (2**grid.bits - 1)
    zero = round(-low / step)
    return [(max(0, min(2**grid.bits - 1, round(x / step) + zero)) - zero) * step for x in row]


@pytest.mark.parametrize("group", [None, 4])
@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_rounding_is_that_of_the_definition(bits, symmetric, group, generator):
    x = torch.randn(5, 12, generator=generator, dtype=torch.float64)
    grid = Grid(bits, symmetric, group)
    expected = [literal(part, grid) for part in x.reshape(-1, group or 12).tolist()]
    assert torch.allclose(
        fake_quantise(x, grid), torch.tensor(expected, dtype=torch.float64).reshape(5, 12), atol=1e-12
    )


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_gradient_passes_the_rounding_and_reaches_the_step(symmetric, generator):
    x = torch.randn(3, 16, generator=generator, dtype=torch.float64, requires_grad=True)
    clip = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    fake_quantise(x, Grid(4, symmetric), clip).sum().backward()
    rounded = fake_quantise(x, Grid(4, symmetric), clip)
    low = 0.7 * x.detach().amin(-1, keepdim=True) if not symmetric else -0.7 * x.detach().abs().amax(-1, keepdim=True)
    high = 0.7 * x.detach().amax(-1, keepdim=True) if not symmetric else -low
    inside = (x > low) & (x < high) & (x.abs() < 0.65 * x.abs().amax(-1, keepdim=True))
    extreme = (x == x.amax(-1, keepdim=True)) | (x == x.amin(-1, keepdim=True))
    assert inside.any()
    assert torch.allclose(x.grad[inside & ~extreme], torch.ones((), dtype=torch.float64))
    assert clip.grad.abs() > 0
    assert len(rounded[0].unique()) <= 16


def test_zeros_stay_zeros_and_sixteen_bits_stay_as_they_are():
    assert fake_quantise(torch.zeros(2, 4), Grid(4)).abs().max() == 0
    assert fake_quantise(torch.zeros(2, 4), Grid(4, symmetric=False)).abs().max() == 0
    x = torch.randn(3)
    assert fake_quantise(x, Grid(16)) is x


@pytest.mark.parametrize("name", ["W4", "W1A4", "W4A32", "4-8"])
def test_a_quantisation_that_does_not_exist_is_refused(name):
    with pytest.raises(ValueError, match=r"named like W4A8, with 2 to 16 bits; got"):
        Quantisation.named(name)


def test_a_group_that_does_not_divide_is_refused():
    with pytest.raises(ValueError, match=r"group=5 must divide the last dimension, 12"):
        fake_quantise(torch.ones(12), Grid(4, group=5))


@pytest.mark.parametrize("grids", [EXACT, Quantisation.named("W4A8"), Quantisation.named("W4A8", group=4)])
@pytest.mark.parametrize("name", ["Llama, all biases", "Qwen3"])
def test_inside_the_context_the_model_computes_as_if_folded_and_rounded_and_outside_as_before(name, grids):
    model = fuse_norms_(decoder(name, torch.float64))
    before, rotations = logits(model), Rotations.start(model, "random", dtype=torch.float64)
    with quantised(model, grids, rotations):
        inside = logits(model)
    assert torch.equal(logits(model), before)
    fold_(model, rotations.R1, rotations.R2)
    for _, _, linear in places(model):
        linear.weight.copy_(fake_quantise(linear.weight, grids.weights))
    with quantised(model, Quantisation(Grid(16), grids.inputs)):
        assert torch.allclose(logits(model), inside, atol=1e-8)
    assert torch.allclose(inside, before, atol=1e-8) == (grids is EXACT)


def test_a_bfloat16_model_learns_float32_rotations_and_is_not_written():
    model = fuse_norms_(decoder("Qwen2", torch.bfloat16))
    weights = {place: p.clone() for place, p in model.named_parameters()}
    rotations = Rotations.start(model, "hadamard")
    cross_entropy(model, Quantisation.named("W4A8"), tokens)(rotations, 0)
    assert rotations.R1.grad.dtype == rotations.R2.grad.dtype == torch.float32
    assert rotations.R1.grad.abs().max() > 0
    assert all(torch.equal(p, weights[place]) for place, p in model.named_parameters())


def test_recomputing_keeps_one_hidden_state_per_layer_and_changes_no_gradient():
    saved = {}
    for recompute in (True, False):
        kept = {}
        for layers in (2, 6):
            model = fuse_norms_(decoder("Llama", torch.float64, num_hidden_layers=layers))
            rotations = Rotations.start(model, "random", dtype=torch.float64)
            bytes_of = {}

            def keep(tensor, bytes_of=bytes_of):
                bytes_of[tensor.data_ptr()] = tensor.numel() * tensor.element_size()
                return tensor

            counting = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
            with counting, quantised(model, Quantisation.named("W4A4"), rotations, recompute=recompute):
                model(tokens(), use_cache=False).logits.square().mean().backward()
            kept[layers] = sum(bytes_of.values())
            if layers == 2:
                saved[recompute] = rotations.R1.grad.clone()
        if recompute:
            hidden = 3 * 12 * 24 * 8
            assert kept[6] - kept[2] <= 4 * hidden * 1.1
        else:
            assert kept[6] - kept[2] > 4 * 5 * 3 * 12 * 24 * 8
    assert torch.equal(saved[True], saved[False])
