"""param_groups: marked and free parameters as named groups that torch's optimizers take."""

import copy
import pickle

import pytest
import torch
from torch import nn

from glideslope.stiefel import orthogonalize_, param_groups


def model():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=4), nn.LayerNorm(8), nn.Linear(8, 6), nn.Linear(6, 2)
    )
    orthogonalize_(net)
    return net


def summary(groups):
    """Groups with names in place of (name, parameter) pairs."""
    return [{**group, "params": [name for name, _ in group["params"]]} for group in groups]


FREE = ["0.bias", "1.bias", "2.weight", "2.bias", "3.bias", "4.bias"]


def test_there_is_one_group_per_view_and_one_for_the_free_parameters():
    assert summary(param_groups(model(), lr=0.1, betas=(0.9, 0.99))) == [
        {"params": ["0.weight"], "orthogonal": True, "view": "conv", "lr": 0.1, "betas": (0.9, 0.99)},
        {"params": FREE, "orthogonal": False, "lr": 0.1, "betas": (0.9, 0.99)},
        {"params": ["1.weight"], "orthogonal": True, "view": "grouped_conv:4", "lr": 0.1, "betas": (0.9, 0.99)},
        {"params": ["3.weight", "4.weight"], "orthogonal": True, "view": "matrix", "lr": 0.1, "betas": (0.9, 0.99)},
    ]


def test_the_groups_hold_every_parameter_under_its_name_once():
    net = model()
    found = [pair for group in param_groups(net) for pair in group["params"]]
    assert sorted(name for name, _ in found) == sorted(name for name, _ in net.named_parameters())
    assert all(net.get_parameter(name) is parameter for name, parameter in found)


def test_a_model_without_marks_has_only_free_parameters_and_a_warning_says_so():
    net = nn.Linear(3, 2)
    with pytest.warns(
        UserWarning, match=r"no parameter of this Linear is marked.*gs\.orthogonalize_\(model\)"
    ) as caught:
        groups = param_groups(net, lr=1.0)
    assert summary(groups) == [{"params": ["weight", "bias"], "orthogonal": False, "lr": 1.0}]
    assert [warning.filename for warning in caught] == [__file__]


def test_a_model_whose_marked_parameters_need_no_gradient_does_not_warn():
    net = nn.Linear(3, 2)
    orthogonalize_(net)
    net.weight.requires_grad_(False)
    assert [group["orthogonal"] for group in param_groups(net)] == [False]


def test_a_model_without_parameters_has_no_groups_and_no_warning():
    assert param_groups(nn.ReLU()) == []


def test_options_can_be_set_per_pattern_and_later_patterns_win():
    patterns = {"*.bias": {"lr": 0.2, "weight_decay": 0.0}, "4.*": {"lr": 0.3}}
    groups = summary(param_groups(model(), patterns, lr=0.1))
    assert groups == [
        {"params": ["0.weight"], "orthogonal": True, "view": "conv", "lr": 0.1},
        {"params": ["0.bias", "1.bias", "2.bias", "3.bias"], "orthogonal": False, "lr": 0.2, "weight_decay": 0.0},
        {"params": ["1.weight"], "orthogonal": True, "view": "grouped_conv:4", "lr": 0.1},
        {"params": ["2.weight"], "orthogonal": False, "lr": 0.1},
        {"params": ["3.weight"], "orthogonal": True, "view": "matrix", "lr": 0.1},
        {"params": ["4.weight"], "orthogonal": True, "view": "matrix", "lr": 0.3},
        {"params": ["4.bias"], "orthogonal": False, "lr": 0.3, "weight_decay": 0.0},
    ]


def test_patterns_with_the_same_options_share_a_group():
    groups = summary(param_groups(model(), {"3.weight": {"lr": 1.0}, "4.weight": {"lr": 1.0}}))
    assert [group["params"] for group in groups if group.get("view") == "matrix"] == [["3.weight", "4.weight"]]


def test_an_option_that_only_some_have_makes_a_group_of_its_own():
    groups = summary(param_groups(model(), {"3.bias": {"weight_decay": 0.5}}, lr=0.1))
    assert {"params": ["3.bias"], "orthogonal": False, "lr": 0.1, "weight_decay": 0.5} in groups


def test_tensor_options_are_compared_by_identity_without_reading_them():
    lr = torch.tensor([0.1, 0.2])  # `lr == lr` would have no truth value
    other = lr.clone()
    groups = param_groups(model(), {"4.weight": {"lr": other}}, lr=lr)
    assert [group["lr"] is lr for group in groups] == [True, True, True, True, False]
    assert groups[-1]["lr"] is other


def test_parameters_that_need_no_gradient_are_left_out():
    net = model()
    net[0].weight.requires_grad_(False)
    net[2].weight.requires_grad_(False)
    names = [name for group in summary(param_groups(net)) for name in group["params"]]
    assert "0.weight" not in names
    assert "2.weight" not in names
    assert len(names) == 8


def test_tied_parameters_come_once_and_any_of_their_names_sets_options():
    net = nn.ModuleDict({"first": nn.Linear(3, 3, bias=False), "second": nn.Linear(3, 3, bias=False)})
    net["second"].weight = net["first"].weight
    orthogonalize_(net)
    expected = [{"params": ["first.weight"], "orthogonal": True, "view": "matrix", "lr": 2.0}]
    assert summary(param_groups(net, {"second.*": {"lr": 2.0}}, lr=1.0)) == expected
    assert summary(param_groups(copy.deepcopy(net), {"second.*": {"lr": 2.0}})) == expected


def test_torch_optimizers_take_the_groups_and_learn_the_names():
    optimizer = torch.optim.SGD(param_groups(model(), lr=0.1))
    assert [group["param_names"] for group in optimizer.param_groups] == [
        ["0.weight"],
        FREE,
        ["1.weight"],
        ["3.weight", "4.weight"],
    ]
    assert pickle.loads(pickle.dumps(optimizer.state_dict()))["param_groups"][2]["view"] == "grouped_conv:4"


def test_changing_one_group_changes_no_other():
    groups = param_groups(model(), lr=0.1)
    groups[0]["lr"] = 5.0
    assert [group["lr"] for group in groups[1:]] == [0.1, 0.1, 0.1]


def test_a_pattern_that_matches_nothing_is_an_error():
    with pytest.raises(
        ValueError, match=r"param_groups: '5.weight' matches no parameter; near it are '4.weight'|'3.wei"
    ):
        param_groups(model(), {"5.weight": {"lr": 1.0}})


@pytest.mark.parametrize("key", ["orthogonal", "view", "params"])
def test_what_the_marks_say_cannot_be_overridden(key):
    with pytest.raises(ValueError, match=f"param_groups sets '{key}' from the marks"):
        param_groups(model(), {"0.weight": {key: None}})
