"""Learning lowers the objective and keeps R orthogonal; what is exported is what was folded."""

import pytest
import torch
from interop.packages import needs
from interop.rotations.decoders import decoder, logits, tokens

import glideslope as gs
from recipes.rotations.cayley_sgd import CayleySGD
from recipes.rotations.export import exact, export, load, named, plain, read_rotations
from recipes.rotations.fold import fold_, fuse_norms_, off_orthogonal
from recipes.rotations.learn import landing, learn
from recipes.rotations.quantise import Quantisation
from recipes.rotations.rotations import Rotations, cross_entropy, rounding_error

GRIDS = Quantisation.named("W4A4")
OBJECTIVES = {
    "cross-entropy": lambda model: cross_entropy(model, GRIDS, lambda step: tokens()),
    "data-free": lambda model: rounding_error(model, GRIDS),
}


@pytest.mark.parametrize("kind", OBJECTIVES)
@pytest.mark.parametrize("name", ["Llama", "Qwen3"])
def test_learning_lowers_the_objective_and_stays_orthogonal_without_a_projection(name, kind):
    model = fuse_norms_(decoder(name))
    rotations, objective = Rotations.start(model, "hadamard"), OBJECTIVES[kind](model)
    values = []
    learn(rotations, objective, landing(rotations, 3e-3), 30, report=lambda step, value: values.append(value))
    assert objective(rotations, 0) < min(values[0], 0.999 * values[0])
    assert max(off_orthogonal(rotations.R1), off_orthogonal(rotations.R2)) < 1e-6
    assert torch.equal(rotations.scales, torch.ones_like(rotations.scales))


def test_scales_are_learned_beside_rotations_by_the_same_optimizer():
    model = fuse_norms_(decoder())
    reached = []
    for scale_lr in (0.0, 1e-2):
        rotations, objective = Rotations.start(model, "hadamard"), OBJECTIVES["cross-entropy"](model)
        learn(rotations, objective, landing(rotations, 1e-3, scale_lr), 30)
        reached.append(objective(rotations, 0))
    assert (rotations.scales - 1).abs().max() > 1e-2
    assert reached[1] < reached[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_export_and_reload_are_exact_and_the_file_of_rotations_folds_to_the_same_model(tmp_path, dtype):
    transformers = needs("transformers")
    original = decoder("Qwen3", dtype)
    model, again = fuse_norms_(decoder("Qwen3", dtype)), fuse_norms_(decoder("Qwen3", dtype))
    rotations = Rotations.start(model, "random")
    with torch.no_grad():
        rotations.R1.add_(1e-5 * torch.randn_like(rotations.R1))
    folded = export(model, rotations, tmp_path)
    reloaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=dtype)
    assert type(reloaded) is type(original)
    assert torch.equal(logits(reloaded), logits(folded))
    if dtype == torch.float32:
        assert (logits(reloaded) - logits(original)).abs().max() < 1e-4
    file = torch.load(tmp_path / "R.bin", weights_only=True)
    assert list(file) == ["R1", "model.layers.0.self_attn.R2", "model.layers.1.self_attn.R2"]
    assert max(off_orthogonal(R) for R in file.values()) < 1e-14
    R2 = torch.stack([file[f"model.layers.{i}.self_attn.R2"] for i in range(2)])
    assert torch.equal(logits(fold_(again, file["R1"], R2)), logits(folded))
    assert torch.equal(read_rotations(tmp_path / "R.bin", model).R1, exact(rotations)[0].float())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.pop("R1"), r"R\.bin has no R1; the model has 2 layers"),
        (lambda found: found.pop("model.layers.1.self_attn.R2"), r"has no model\.layers\.1\.self_attn\.R2"),
        (
            lambda found: found.update(R1=torch.eye(5)),
            r"R1 in .* must have shape \(24, 24\) for .*; got \(5, 5\)",
        ),
    ],
)
def test_rotations_of_another_model_are_refused(tmp_path, change, message):
    model = fuse_norms_(decoder())
    found = named(*exact(Rotations.start(model, "random")))
    change(found)
    torch.save(found, tmp_path / "R.bin")
    with pytest.raises(ValueError, match=message):
        read_rotations(tmp_path / "R.bin", model)
    (tmp_path / "R.bin").write_text("not a file of torch", encoding="utf-8")
    with pytest.raises(ValueError, match=r"is no file of rotations"):
        read_rotations(tmp_path / "R.bin", model)


def test_loading_gives_a_frozen_model_that_can_be_saved_though_its_file_was_quantised(tmp_path):
    transformers, tokenizers = needs("transformers"), needs("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "b": 1}, unk_token="a"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="a").save_pretrained(tmp_path)
    decoder().save_pretrained(tmp_path)
    model, tokenizer = load(tmp_path)
    assert torch.equal(logits(model), logits(decoder()))
    assert not any(p.requires_grad for p in model.parameters())
    assert tokenizer("b")["input_ids"] == [1]
    model.config.quantization_config = {"quant_method": "gguf"}
    bare = plain(model)
    assert not hasattr(bare.config, "quantization_config")
    assert torch.equal(logits(bare), logits(model))
    assert bare.lm_head.weight is bare.model.embed_tokens.weight  # still tied


def test_cayley_sgd_follows_the_cayley_transform_of_the_gradient(generator):
    X = torch.nn.Parameter(gs.random_stiefel(6, 6, generator=generator, dtype=torch.float64))
    start, X.grad = X.detach().clone(), torch.randn(6, 6, generator=generator, dtype=torch.float64)
    CayleySGD([X], lr=1e-2, iterations=20).step()
    A = -X.grad @ start.mT + 0.5 * start @ start.mT @ X.grad @ start.mT
    W, identity = A - A.mT, torch.eye(6, dtype=torch.float64)
    expected = torch.linalg.solve(identity - 5e-3 * W, (identity + 5e-3 * W) @ start)
    assert torch.allclose(X, expected, atol=1e-12)
