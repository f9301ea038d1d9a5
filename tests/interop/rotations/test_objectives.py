"""The two objectives against their definitions."""

import pytest
import torch
from interop.rotations.decoders import decoder, logits, tokens

from recipes.rotations.fold import fold_, fuse_norms_
from recipes.rotations.quantise import Quantisation, fake_quantise
from recipes.rotations.rotations import Rotations, cross_entropy, rounding_error
from recipes.rotations.texts import batches_of

GRIDS = Quantisation.named("W4A4")


def test_cross_entropy_is_that_of_the_next_token():
    model = fuse_norms_(decoder("Qwen3", torch.float64))
    rotations = Rotations.start(model, "random", dtype=torch.float64)
    log_likelihoods = logits(model).log_softmax(-1)
    ids = tokens()
    expected = [log_likelihoods[i, j, ids[i, j + 1]] for i in range(3) for j in range(11)]
    found = cross_entropy(model, Quantisation.named("W16A16"), lambda step: ids)(rotations, 0)
    assert found == pytest.approx(-sum(expected).item() / 33, abs=1e-6)


def relative_error(Y, grid):
    return ((Y - fake_quantise(Y, grid)).square().sum() / Y.square().sum()).item()


@pytest.mark.parametrize("stream", [True, False])
def test_the_data_free_objective_is_the_mean_error_of_the_folded_weights_and_of_what_writes_to_the_stream(stream):
    model = fuse_norms_(decoder("Qwen3", torch.float64))
    rotations = Rotations.start(model, "random", dtype=torch.float64)
    found = rounding_error(model, GRIDS, stream=stream)(rotations, 0)
    fold_(model, rotations.R1, rotations.R2)
    weights = {name: p for name, p in model.named_parameters() if "proj.weight" in name}
    expected = sum(relative_error(W, GRIDS.weights) for W in weights.values()) / len(weights)
    if stream:
        writers = [W.mT for name, W in weights.items() if "o_proj" in name or "down_proj" in name]
        expected += sum(relative_error(W, GRIDS.inputs) for W in writers) / len(writers)
    assert len(weights) == 14
    assert found == pytest.approx(expected, rel=1e-10)


def test_a_step_that_draws_layers_is_an_estimate_of_the_whole():
    model = fuse_norms_(decoder("Llama", torch.float64, num_hidden_layers=4))
    rotations = Rotations.start(model, "random", dtype=torch.float64)
    whole = rounding_error(model, GRIDS)(rotations, 0)
    drawn = [rounding_error(model, GRIDS, 2)(rotations, step) for step in range(60)]
    assert len({round(value, 12) for value in drawn}) == 6  # pairs of four layers
    other = [rounding_error(model, GRIDS, 2, seed=1)(rotations, step) for step in range(60)]
    assert drawn != other
    assert sum(drawn) / 60 == pytest.approx(whole, rel=1e-2)


def test_batches_depend_on_the_step_and_the_seed_alone():
    ids = torch.arange(40).unflatten(0, (20, 2))
    first = batches_of(ids, 3, seed=1)
    torch.randn(7)
    again = batches_of(ids, 3, seed=1)
    assert all(torch.equal(first(step), again(step)) for step in (5, 0, 5))
    assert not torch.equal(first(0), first(1))
    assert not torch.equal(first(0), batches_of(ids, 3, seed=2)(0))
