"""Folding rotations changes the weights of a decoder and not what it computes."""

import pytest
import torch
from interop.rotations.decoders import DECODERS, decoder, logits
from torch import nn

from recipes.rotations.fold import fold_, fuse_norms_
from recipes.rotations.rotations import Rotations, hadamard_like

UNMOVED = ("q_norm.weight", "k_norm.weight", "q_proj.bias", "k_proj.bias", "gate_proj.bias", "up_proj.bias")
EXACT = {torch.float32: 1e-4, torch.float64: 1e-10}


@pytest.mark.parametrize("dtype", EXACT)
@pytest.mark.parametrize("name", DECODERS)
def test_folding_leaves_the_logits_and_moves_the_weights(name, dtype):
    model = decoder(name, dtype)
    before, weights = logits(model), {place: p.clone() for place, p in model.named_parameters()}
    rotations = Rotations.start(model, "random", dtype=torch.float64)
    fold_(fuse_norms_(model), rotations.R1, rotations.R2)
    assert before.std() > 0.1
    assert (logits(model) - before).abs().max() < EXACT[dtype]
    kept = [p for p in weights if (model.get_parameter(p) - weights[p]).abs().max() < 1e-2]
    assert kept == [place for place in weights if place.endswith(UNMOVED)]
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    assert not model.config.tie_word_embeddings


@pytest.mark.parametrize("wrong", ["R1", "R2", "heads of another layer"])
def test_a_wrong_rotation_shows_in_the_logits(wrong):
    model = fuse_norms_(decoder("Qwen3", torch.float64))
    before, rotations = logits(model), Rotations.start(model, "random", dtype=torch.float64)
    fold_(model, rotations.R1, rotations.R2)
    layer = model.model.layers[0]
    damaged = {"R1": layer.mlp.up_proj, "R2": layer.self_attn.v_proj, "heads of another layer": layer.self_attn.o_proj}
    damaged[wrong].weight.copy_(damaged[wrong].weight.flip(0))
    assert (logits(model) - before).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: delattr(model.model.layers[1].mlp, "gate_proj"), r"has no model\.layers\.1\.mlp\.gate_proj"),
        (lambda model: delattr(model, "lm_head"), r"LlamaForCausalLM has no lm_head"),
        (
            lambda model: setattr(model.model.layers[0].mlp, "up_proj", nn.Conv1d(1, 1, 1)),
            r"up_proj .* must be a torch\.nn\.Linear; got Conv1d",
        ),
        (
            lambda model: setattr(model.model.layers[1], "after", nn.Linear(2, 2)),
            r"model\.layers\.1\.after .* has no known rotation",
        ),
        (
            lambda model: setattr(model.model, "norm", nn.LayerNorm(24)),
            r"model\.norm .*LayerNorm.* must be an RMS norm",
        ),
        (
            lambda model: setattr(model.model.norm, "bias", nn.Parameter(torch.zeros(24))),
            r"model\.norm .*RMSNorm.* must be an RMS norm, .* without a bias",
        ),
    ],
)
def test_a_part_that_is_missing_or_of_another_kind_is_named(change, message):
    model = decoder()
    change(model)
    with pytest.raises(ValueError, match=message):
        fuse_norms_(model)


@pytest.mark.parametrize(
    ("name", "changed", "message"),
    [
        ("GPT2", {}, r"GPT2LMHeadModel has no model\.embed_tokens"),
        ("Gemma", {}, r"GemmaRMSNorm\) must be an RMS norm"),
        ("Gemma2", {}, r"model\.layers\.0\.\w+ of Gemma2ForCausalLM .* has no known rotation"),
        ("Olmo2", {}, r"Olmo2ForCausalLM has no model\.layers\.0\.input_layernorm"),
        ("Phi3", {}, r"Phi3ForCausalLM has no model\.layers\.0\.self_attn\.q_proj"),
        ("Mixtral", {}, r"MixtralForCausalLM has no model\.layers\.0\.mlp\.gate_proj"),
    ],
)
def test_other_architectures_are_refused_with_the_name_of_what_is_missing(name, changed, message):
    from interop.packages import needs

    transformers = needs("transformers")
    if name == "GPT2":
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50))
    else:
        model = decoder(name, **changed)
    with pytest.raises(ValueError, match=message):
        fuse_norms_(model)


def test_a_model_whose_norms_are_not_fused_is_not_folded():
    model = decoder()
    rotations = Rotations.start(model, "random")
    with pytest.raises(ValueError, match=r"call fuse_norms_"):
        fold_(model, rotations.R1, rotations.R2)
    with pytest.raises(ValueError, match=r"R1 must be orthogonal"):
        fold_(fuse_norms_(model), 2 * rotations.R1, rotations.R2)
    with pytest.raises(ValueError, match=r"R2 must have shape \(2, 6, 6\)"):
        fold_(model, rotations.R1, rotations.R2[:1])


@pytest.mark.parametrize("n", [1, 8, 12, 9, 576])
def test_a_hadamard_like_matrix_is_orthogonal_and_has_even_entries_where_hadamard_exists(n):
    R = hadamard_like(n, torch.Generator().manual_seed(0))
    assert (R.mT @ R - torch.eye(n)).abs().max() < 1e-12
    if n & (n - 1) == 0:
        assert torch.allclose(R.abs(), torch.full_like(R, n**-0.5))
