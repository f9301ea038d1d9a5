"""Which weights a selection means, tied ones included, and what is refused, by name and with the reason."""

import pytest
import torch
from networks import small_model
from torch import nn
from torch.nn.utils import parametrizations, prune

from glideslope.stiefel import orthogonality, orthogonalize_, project_


class Tied(nn.Module):
    """An embedding tied to the last layer, and two layers tied to each other."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 4)
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.last = nn.Linear(4, 9)
        self.second.weight = self.first.weight
        self.last.weight = self.embedding.weight


def test_by_default_norms_biases_embeddings_and_recurrent_weights_stay_free():
    model = nn.ModuleDict(
        {
            "table": nn.Embedding(5, 4),
            "block": nn.TransformerEncoderLayer(4, 2, dim_feedforward=6),
            "memory": nn.LSTM(4, 4),
            "form": nn.Bilinear(2, 3, 4),
        }
    )
    inside = ("self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight", "linear2.weight")
    assert orthogonalize_(model) == [f"block.{name}" for name in inside]


def test_patterns_choose_in_the_order_of_the_model():
    assert orthogonalize_(small_model(), ["6.weight", "[02].weight"]) == ["0.weight", "2.weight", "6.weight"]


def test_a_type_means_the_weights_of_the_layers_inside_it_too():
    model = nn.ModuleDict({"a": nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "ab": nn.Linear(2, 2)})
    assert orthogonalize_(model, nn.Sequential) == ["a.0.weight"]


def test_tied_weights_are_handled_once_and_tied_embeddings_stay_free():
    model = Tied()
    table = model.embedding.weight.detach().clone()
    assert orthogonalize_(model) == ["first.weight"]
    assert model.second.weight is model.first.weight
    assert torch.equal(model.embedding.weight, table)
    assert project_(model) == ["first.weight"]
    assert [row.name for row in orthogonality(model)] == ["first.weight"]


@pytest.mark.parametrize(("chosen", "first"), [("second.weight", "first.weight"), ("last.weight", "embedding.weight")])
def test_a_tied_weight_chosen_by_a_later_name_goes_by_its_first(chosen, first):
    model = Tied()
    assert orthogonalize_(model, [chosen]) == [first]
    assert [row.name for row in orthogonality(model)] == [first]


def test_a_layer_registered_twice_can_be_chosen_by_either_name():
    layer = nn.Linear(3, 3)
    model = nn.ModuleDict({"first": layer, "second": layer})
    assert orthogonalize_(model, ["second.weight"]) == ["first.weight"]
    assert project_(model) == ["first.weight"]


def test_two_calls_mark_the_weights_of_both():
    model = small_model()
    orthogonalize_(model, ["0.weight"])
    orthogonalize_(model, ["6.weight"])
    assert project_(model) == ["0.weight", "6.weight"]


class Odd(nn.Module):
    """Parameters that cannot be orthonormal, or not without being told how."""

    def __init__(self):
        super().__init__()
        self.good = nn.Parameter(torch.randn(3, 2))
        self.bias = nn.Parameter(torch.ones(3))
        self.codes = nn.Parameter(torch.ones(3, 2, dtype=torch.int32), requires_grad=False)
        self.kernel = nn.Parameter(torch.ones(4, 3, 2, 2))
        self.empty = nn.Parameter(torch.ones(0, 2))
        self.broken = nn.Parameter(torch.full((3, 2), torch.nan))
        self.absent = nn.Parameter(torch.ones(3, 2, device="meta"))
        self.sparse = nn.Parameter(torch.eye(2).to_sparse())
        self.lazy = nn.LazyLinear(2)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("bias", r"has shape \(3,\); a matrix has 2 dimensions or more"),
        ("codes", r"has the type torch\.int32; it must be floating point or complex"),
        ("kernel", r"has shape \(4, 3, 2, 2\), which can be read in several ways: .* returns its view"),
        ("empty", r"needs a tensor with entries; got shape \(0, 2\)"),
        ("broken", "has infinite or NaN entries"),
        ("absent", "is on the meta device"),
        ("sparse", r"is stored as torch\.sparse_coo; it must be dense"),
        ("lazy.weight", "is not initialized yet: run a batch through the model first"),
    ],
)
def test_what_cannot_be_orthonormal_is_refused_by_name_and_nothing_is_changed(name, reason):
    model = Odd()
    before = model.good.detach().clone()
    with pytest.raises(ValueError, match=rf"orthonormal, and changed nothing:\n  '{name}' .*{reason}"):
        orthogonalize_(model, ["good", name])
    assert torch.equal(model.good, before)
    with pytest.raises(ValueError, match="is marked"):
        project_(model)


def test_all_refusals_are_said_at_once():
    with pytest.raises(ValueError, match=r"'bias' (.|\n)*'kernel' "):
        orthogonalize_(Odd(), ["bias", "kernel"])


def test_lazy_layers_are_refused_by_default_too():
    with pytest.raises(ValueError, match=r"'0.weight' is not initialized yet"):
        orthogonalize_(nn.Sequential(nn.LazyConv2d(4, 3)))


@pytest.mark.parametrize(
    "change",
    [
        parametrizations.weight_norm,
        parametrizations.spectral_norm,
        lambda layer: prune.l1_unstructured(layer, "weight", amount=1),
    ],
    ids=["weight_norm", "spectral_norm", "pruned"],
)
def test_a_weight_that_is_computed_from_others_is_refused(change):
    model = nn.Sequential(nn.Linear(3, 2))
    change(model[0])
    with pytest.raises(
        ValueError, match=r"'0.weight' is no parameter of its .*Linear: weight norm, pruning or another"
    ):
        orthogonalize_(model)


@pytest.mark.parametrize(
    ("select", "message"),
    [
        (["0.weigth"], r"'0.weigth' matches no parameter; near it are '0.weight'"),
        (["0"], r"'0' matches no parameter; near it are '0.weight', '0.bias'"),
        (["0.weight", "conv*"], r"'conv\*' matches no parameter; near it are "),
        (nn.GRU, "no GRU in this model, which has BatchNorm2d, Conv2d, Flatten, LayerNorm, Linear, Sequential"),
        ((nn.GRU, nn.LSTM), "no GRU or LSTM in this model"),
        (nn.LayerNorm, "chooses no parameter of 2 dimensions or more"),
        (lambda name, parameter, module: False, "chooses no parameter"),
        (
            lambda name, parameter, module: name == "4.weight" and "conv",
            r"'4.weight' does not fit: view 'conv' needs a",
        ),
        ([], r"select must be a module type .*; got \[\]"),
        ([nn.Linear, "0.weight"], "select must be a module type"),
        (3, "select must be a module type .*; got 3"),
        (nn.Linear(2, 2), r"select must be a module type .*; got a layer, Linear\(...\): give its name or type"),
        (int, "select must be a module type .*; got <class 'int'>"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_selection_that_means_nothing_is_an_error(select, message):
    with pytest.raises(ValueError, match=message):
        orthogonalize_(small_model(), select)


def test_the_name_of_a_module_is_answered_with_the_parameters_in_it():
    model = nn.ModuleDict({"a": nn.ModuleDict({"projection": nn.Linear(2, 2)}), "b": nn.Linear(2, 2)})
    with pytest.raises(ValueError, match=r"'a' matches no .* near it are 'a.projection.weight', 'a.projection.bias'$"):
        orthogonalize_(model, ["a"])
