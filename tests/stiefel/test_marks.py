"""Marks: they survive copies of the model, are not in its state_dict, and are missed when they are lost."""

import copy
import io
import pickle

import pytest
import torch
from networks import small_model
from torch import nn
from torch.nn.utils import prune

from glideslope.stiefel import orthogonality, orthogonalize_, param_groups, project_


def through_torch_save(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


SCRIPTING = pytest.mark.filterwarnings("ignore:.*torch.jit")  # deprecated, and a model may still be scripted


@SCRIPTING
@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model)), through_torch_save, torch.jit.script],
    ids=["deepcopy", "pickle", "torch.save", "torch.jit.script"],
)
def test_marks_survive(copied):
    model = small_model()
    names = orthogonalize_(model)
    twin = copied(model)
    views = [(row.name, row.view) for row in orthogonality(model)]
    assert [(row.name, row.view) for row in orthogonality(twin)] == views
    assert project_(twin) == names
    assert [group["orthogonal"] for group in param_groups(twin)] == [True, False, True, True]


def test_a_model_compiled_after_marking_keeps_its_marks():
    model = nn.Linear(4, 3)
    orthogonalize_(model)
    assert project_(torch.compile(model, backend="eager")) == ["_orig_mod.weight"]


class Recurrent(nn.Module):
    """A model with a recurrent and an attention layer that torch.jit can script."""

    def __init__(self):
        super().__init__()
        self.memory = nn.LSTM(3, 4)
        self.attention = nn.MultiheadAttention(4, 2)

    def forward(self, sequence: torch.Tensor) -> torch.Tensor:
        states = self.memory(sequence)[0]
        return self.attention(states, states, states)[0]


@SCRIPTING
def test_a_scripted_model_gives_the_results_of_the_marked_one_after_saving_too():
    model = Recurrent()
    orthogonalize_(model, (nn.LSTM, nn.MultiheadAttention))
    sequence = torch.ones(5, 2, 3)
    scripted = torch.jit.script(model)
    buffer = io.BytesIO()
    torch.jit.save(scripted, buffer)
    buffer.seek(0)
    loaded = torch.jit.load(buffer)
    assert torch.allclose(scripted(sequence), model(sequence), atol=1e-6)
    assert torch.allclose(loaded(sequence), model(sequence), atol=1e-6)
    assert project_(loaded) == ["memory.weight_hh_l0", "attention.in_proj_weight", "attention.out_proj.weight"]


def test_the_state_dict_of_a_marked_model_loads_into_a_plain_one():
    model, plain = small_model(), small_model()
    orthogonalize_(model)
    plain.load_state_dict(model.state_dict(), strict=True)
    with pytest.raises(ValueError, match="orthogonality: no parameter of this Sequential is marked"):
        orthogonality(plain)


@pytest.mark.parametrize("function", [project_, orthogonality])
def test_an_unmarked_model_is_told_to_call_orthogonalize(function):
    with pytest.raises(ValueError, match=rf"{function.__name__}: .*call orthogonalize_\(model\) first"):
        function(small_model())


def test_a_marked_weight_that_is_no_parameter_any_more_is_said():
    model = nn.Sequential(nn.Linear(3, 2))
    orthogonalize_(model)
    prune.l1_unstructured(model[0], "weight", amount=1)
    with pytest.raises(ValueError, match=r"'0.weight' was marked by orthogonalize_ but is no parameter"):
        param_groups(model)
