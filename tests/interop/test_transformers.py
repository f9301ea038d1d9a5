"""Hugging Face: Trainer with both ways to give an optimizer, accelerate, and PEFT."""

import copy

import pytest
import torch
from interop.networks_and_data import assert_constrained, assert_equal, network, total_loss, train
from interop.packages import needs

import glideslope as gs

LAYERS = ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")
NAMES = [f"transformer.h.{i}.{layer}.weight" for i in (0, 1) for layer in LAYERS]
TEXTS = [torch.randint(0, 40, (12,), generator=torch.Generator().manual_seed(i)) for i in range(32)]


def gpt2():
    transformers = needs("transformers")
    torch.manual_seed(0)
    shape = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 40, "n_positions": 16}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape, bos_token_id=0, eos_token_id=0))
    assert gs.orthogonalize_(model) == NAMES
    return model


def trainer_of(model, **given):
    transformers = needs("transformers")
    options = transformers.TrainingArguments(
        "output",
        max_steps=8,
        save_steps=4,
        per_device_train_batch_size=8,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    texts = [{"input_ids": text, "labels": text} for text in TEXTS]
    return transformers.Trainer(model, options, train_dataset=texts, **given)


WAYS = {
    "class": lambda model: {"optimizer_cls_and_kwargs": (gs.LandingAdam, {"lr": 1e-2})},
    "optimizer": lambda model: {"optimizers": (gs.LandingAdam(model.parameters(), lr=1e-2), None)},
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS.keys())
def test_trainer_keeps_weights_orthonormal_and_resumes_to_the_same_bits(way):
    model, resumed = gpt2(), gpt2()
    trainer = trainer_of(model, **way(model))
    trainer.train()
    views = {group["view"] for group in trainer.optimizer.param_groups if group["orthogonal"]}
    assert views == {"split_columns:3", "matrix"}
    assert_constrained(model, NAMES)
    assert (model.get_parameter(NAMES[0]) - resumed.get_parameter(NAMES[0])).abs().max() > 1e-2
    trainer_of(resumed, **way(resumed)).train(resume_from_checkpoint="output/checkpoint-4")
    assert_equal(model, resumed)


def test_trainers_own_groups_keep_their_weight_decay():
    model = gpt2()
    transformers = needs("transformers")
    options = transformers.TrainingArguments("output", weight_decay=0.1, use_cpu=True, report_to=[])
    trainer = transformers.Trainer(model, options, optimizer_cls_and_kwargs=(gs.LandingAdam, {"lr": 1e-2}))
    groups = trainer.create_optimizer().param_groups
    found = [(group.get("view"), group["weight_decay"], len(group["params"])) for group in groups]
    assert found == [(None, 0.1, 2), ("split_columns:3", 0.1, 2), ("matrix", 0.1, 6), (None, 0.0, 18)]


def test_accelerate_prepares_saves_and_loads():
    accelerate = needs("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model, resumed = network(), network()
    prepared, optimizer = accelerator.prepare(model, gs.LandingAdam(model.parameters(), lr=1e-2))
    start = total_loss(model)
    train(prepared, optimizer, 5, backward=accelerator.backward)
    accelerator.save_state("checkpoint")
    train(prepared, optimizer, 5, first=5, backward=accelerator.backward)
    assert total_loss(model) < start
    assert_constrained(accelerator.unwrap_model(prepared))
    accelerator.free_memory()
    again, optimizer = accelerator.prepare(resumed, gs.LandingAdam(resumed.parameters(), lr=1e-2))
    accelerator.load_state("checkpoint")
    train(again, optimizer, 5, first=5, backward=accelerator.backward)
    assert_equal(model, resumed)


def test_lora_factors_stay_orthonormal_and_merge():
    peft = needs("peft")
    torch.manual_seed(0)
    base = torch.nn.Sequential(torch.nn.Linear(6, 10), torch.nn.Tanh(), torch.nn.Linear(10, 3))
    frozen = copy.deepcopy(base)
    model = peft.get_peft_model(base, peft.LoraConfig(r=2, target_modules=["0", "2"]))
    names = gs.orthogonalize_(model, ["*.lora_A.*.weight"])
    assert len(names) == 2
    optimizer = gs.LandingAdam(model.parameters(), lr=5e-2)
    start = total_loss(model)
    train(model, optimizer)
    assert total_loss(model) < start
    assert_constrained(model, names)
    assert all(row.shape[1] == 2 for row in gs.orthogonality(model))
    gs.project_(model)
    inputs = torch.randn(5, 6)
    before = model(inputs)
    merged = model.merge_and_unload()
    assert [name for name, _ in merged.named_parameters()] == [name for name, _ in frozen.named_parameters()]
    torch.testing.assert_close(merged(inputs), before, rtol=0, atol=1e-5)
    for one, other in zip((merged[0], merged[2]), (frozen[0], frozen[2]), strict=True):
        assert torch.linalg.matrix_rank((one.weight - other.weight).detach(), atol=1e-5) == 2
