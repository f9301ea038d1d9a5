"""Bare parameters: the marks of a model decide what is constrained, however the optimizer is given its parameters."""

import copy
import gc
import pickle
import weakref

import pytest
import torch
from contract.factories import through_a_file
from networks import Transformer, small_model
from torch import nn

import glideslope as gs
from glideslope.stiefel import marks

OPTIMIZERS = {
    "LandingSGD": lambda params: gs.LandingSGD(params, lr=0.05, momentum=0.9),
    "LandingAdam": lambda params: gs.LandingAdam(params, lr=0.01),
    "RiemannianSGD": lambda params: gs.RiemannianSGD(params, lr=0.05),
    "PenaltySGD": lambda params: gs.PenaltySGD(params, lr=0.01, penalty_weight=1.0),
}
GIVEN = {
    "parameters": lambda model: model.parameters(),
    "named_parameters": lambda model: model.named_parameters(),
    "the module": lambda model: model,
    "one group": lambda model: [{"params": list(model.parameters())}],
    "one group of a generator": lambda model: [{"params": model.parameters()}],
}


def transformer():
    torch.manual_seed(0)
    model = Transformer()
    gs.orthogonalize_(model)
    return model


def train(model, optimizer, steps=5, first=0):
    for step in range(first, first + steps):
        tokens = torch.randint(0, 20, (4, 6), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(tokens), tokens.flatten()).backward()
        optimizer.step()


def assert_equal_models(first, second):
    for (name, one), other in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other), name


def views(optimizer):
    return [group.get("view") for group in optimizer.param_groups]


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS.keys())
@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN.keys())
def test_every_way_to_give_the_parameters_trains_as_param_groups_does(make, given):
    model, expected = transformer(), transformer()
    optimizer, reference = make(given(model)), make(gs.param_groups(expected))
    assert views(optimizer) == views(reference)
    train(model, optimizer)
    train(expected, reference)
    assert_equal_models(model, expected)
    assert gs.orthogonality(model).largest_distance < 0.5


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN.keys())
@pytest.mark.parametrize("back", [False, True])
def test_states_move_between_param_groups_and_the_other_ways(given, back):
    make = OPTIMIZERS["LandingAdam"]
    model, expected = transformer(), transformer()
    ways = (given, gs.param_groups) if back else (gs.param_groups, given)
    optimizer, reference = make(ways[0](model)), make(gs.param_groups(expected))
    train(model, optimizer, 3)
    state = through_a_file(optimizer.state_dict())
    optimizer = make(ways[1](model))
    optimizer.load_state_dict(state)
    train(model, optimizer, 3, first=3)
    train(expected, reference, 6)
    assert_equal_models(model, expected)


@pytest.mark.parametrize("given", ["parameters", "named_parameters", "the module"])
def test_attached_landing_takes_the_marks_too(given):
    model, expected = transformer(), transformer()
    for one, params in ((model, GIVEN[given](model)), (expected, gs.param_groups(expected))):
        optimizer = gs.attach_landing(torch.optim.AdamW(one.parameters(), lr=0.01), params)
        train(one, optimizer)
    assert_equal_models(model, expected)
    assert gs.orthogonality(model).largest_distance < 0.5


def test_attached_landing_ignores_free_parameters_that_the_optimizer_does_not_have():
    model = transformer()
    constrained = [p for g in gs.param_groups(model) if g["orthogonal"] for _, p in g["params"]]
    optimizer = gs.attach_landing(torch.optim.SGD(constrained, lr=0.1), gs.param_groups(model))
    start = model.embed.weight.detach().clone()
    train(model, optimizer)
    assert torch.equal(model.embed.weight, start)
    assert gs.orthogonality(model).largest_distance < 0.5
    with pytest.raises(ValueError, match=r"'head.weight' of shape \(20, 16\) is not a parameter of the optimizer"):
        gs.attach_landing(torch.optim.SGD(constrained[:-1], lr=0.1), gs.param_groups(model))


def test_groups_of_a_trainer_are_divided_each_with_its_options():
    model = small_model()
    gs.orthogonalize_(model)
    decay = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim == 1]
    optimizer = gs.LandingAdam([{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}])
    found = [(g["orthogonal"], g.get("view"), g["weight_decay"], len(g["params"])) for g in optimizer.param_groups]
    assert found == [
        (True, "conv", 0.1, 1),
        (True, "grouped_conv:4", 0.1, 1),
        (True, "matrix", 0.1, 2),
        (False, None, 0.0, 8),
    ]


def test_the_names_of_a_group_are_divided_with_its_parameters():
    model = transformer()
    names, params = zip(*model.named_parameters(), strict=True)
    optimizer = gs.LandingSGD([{"params": list(params), "param_names": list(names)}])
    expected = gs.LandingSGD(gs.param_groups(model))
    assert [g["param_names"] for g in optimizer.param_groups] == [g["param_names"] for g in expected.param_groups]


def test_a_group_that_says_for_itself_is_left_alone():
    model = nn.Sequential(nn.Linear(6, 4), nn.Linear(4, 4))
    gs.orthogonalize_(model)
    free = {"params": [model[0].weight], "orthogonal": False}
    split = {"params": [model[1].weight], "view": "split:1"}
    optimizer = gs.LandingSGD([free, split, {"params": [model[0].bias, model[1].bias], "orthogonal": False}])
    assert [(g["orthogonal"], g.get("view")) for g in optimizer.param_groups] == [
        (False, None),
        (True, "split:1"),
        (False, None),
    ]


def test_a_group_added_later_is_divided_and_without_marks_free():
    model, head, bare = transformer(), nn.Linear(4, 4), nn.Parameter(torch.eye(3))
    other = nn.Sequential(nn.Linear(4, 4))
    gs.orthogonalize_(other)
    optimizer = gs.LandingSGD(model.parameters())
    before = len(optimizer.param_groups)
    optimizer.add_param_group({"params": other.parameters(), "lr": 0.5})
    optimizer.add_param_group({"params": head.parameters()})
    added = [(g["orthogonal"], g["lr"], len(g["params"])) for g in optimizer.param_groups[before:]]
    assert added == [(True, 0.5, 1), (False, 0.5, 1), (False, 1e-3, 2)]
    explicit = gs.LandingSGD([nn.Parameter(torch.eye(4))])
    explicit.add_param_group({"params": [bare]})
    explicit.add_param_group({"params": list(other.parameters())})
    explicit.add_param_group({"params": [nn.Parameter(torch.eye(2))]})
    assert [g["orthogonal"] for g in explicit.param_groups] == [True, True, True, False, True]


def test_a_refused_part_of_an_added_group_takes_back_the_others():
    model = nn.Sequential(nn.Linear(6, 4), nn.Conv2d(2, 3, 2))
    gs.orthogonalize_(model)
    optimizer = gs.LandingSGD([nn.Parameter(torch.eye(4))])
    with torch.no_grad():
        model[1].weight.mul_(3)
    with pytest.raises(ValueError, match="starts at distance"):
        optimizer.add_param_group({"params": model.parameters()})
    assert len(optimizer.param_groups) == 1


def test_frozen_parameters_stay_in_the_optimizer_as_in_torch():
    model = transformer()
    model.head.weight.requires_grad_(False)
    optimizer = gs.LandingSGD(model.parameters())
    assert sum(len(g["params"]) for g in optimizer.param_groups) == len(list(model.parameters()))


def reloaded(model):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("copied", [copy.deepcopy, reloaded])
def test_the_bare_parameters_of_a_copy_have_its_marks(copied):
    model = transformer()
    first, second = copied(model), copied(model)
    assert views(gs.LandingSGD(first.parameters())) == views(gs.LandingSGD(model))
    both = gs.LandingSGD([*model.parameters(), *second.parameters()])
    assert len(both.diagnostics()) == 2 * len(gs.orthogonality(model))


def test_replaced_and_converted_parameters_have_their_marks():
    model = transformer().to(torch.float64)
    with torch.no_grad():
        model.head.weight = nn.Parameter(model.head.weight.clone())
    assert views(gs.LandingSGD(model.parameters())) == views(gs.LandingSGD(gs.param_groups(model)))


@pytest.mark.xdist_group("compiler")
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_the_parameters_of_a_compiled_module_have_its_marks():
    model = transformer()
    compiled = torch.compile(model, backend="eager")
    copied = copy.deepcopy(compiled)
    for given in (compiled, compiled.parameters(), copied.parameters()):
        assert views(gs.LandingSGD(given)) == views(gs.LandingSGD(model))


def test_a_tied_weight_is_given_once():
    model = nn.ModuleDict({"first": nn.Linear(4, 4), "second": nn.Linear(4, 4)})
    model["second"].weight = model["first"].weight
    gs.orthogonalize_(model)
    optimizer = gs.LandingSGD(model["second"].parameters())
    assert [(g["orthogonal"], len(g["params"])) for g in optimizer.param_groups] == [(True, 1), (False, 1)]


def test_the_registry_keeps_nothing_alive():
    before = len(marks._seen)
    model = transformer()
    seen = [weakref.ref(parameter) for parameter in model.parameters()]
    gs.LandingSGD(model.parameters())
    assert len(marks._seen) > before
    del model
    gc.collect()
    assert [one for one in seen if one() is not None] == []
    assert len(marks._seen) <= before


def test_without_marks_matrices_are_constrained_and_anything_else_shows_the_line_to_write():
    optimizer = gs.LandingSGD([nn.Parameter(torch.eye(3)), nn.Parameter(torch.eye(2).expand(4, 2, 2).clone())])
    assert [g["orthogonal"] for g in optimizer.param_groups] == [True]
    model = nn.Sequential(nn.Linear(4, 4))
    nn.init.orthogonal_(model[0].weight)
    with pytest.raises(ValueError, match=r"LandingAdam: parameter 1 of shape \(4,\) is not a matrix") as error:
        gs.LandingAdam(model.parameters())
    assert "gs.orthogonalize_(model), then gs.LandingAdam(model, ...)" in str(error.value)
    assert "conv" not in str(error.value)
    gs.orthogonalize_(model)
    assert len(gs.LandingAdam(model).param_groups) == len(gs.LandingAdam(model.parameters()).param_groups) == 2


def test_the_line_of_attach_landing_is_its_own():
    model = nn.Sequential(nn.Linear(4, 4))
    nn.init.orthogonal_(model[0].weight)
    with pytest.raises(ValueError, match=r"gs.orthogonalize_\(model\), then gs.attach_landing\(optimizer, model\)"):
        gs.attach_landing(torch.optim.SGD(model.parameters()), model.parameters())


def test_a_module_without_marks_means_its_parameters():
    X = nn.Parameter(gs.random_stiefel(5, 2))
    for given in (nn.ParameterList([X]), nn.ParameterDict({"X": X})):
        assert [group["orthogonal"] for group in gs.LandingSGD(given).param_groups] == [True]
    with pytest.raises(ValueError, match=r"gs.orthogonalize_\(model\)"):
        gs.LandingSGD(small_model())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_matrices_of_a_copy_have_its_marks_before_anything_walked_through_it(copied):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    nn.init.orthogonal_(model[1].weight)
    gs.orthogonalize_(model, ["0.weight"])
    twin = copied(model)
    matrices = [parameter for parameter in twin.parameters() if parameter.ndim == 2]
    for _ in range(2):
        groups = gs.LandingSGD(matrices).param_groups
        assert [(group["orthogonal"], len(group["params"])) for group in groups] == [(True, 1), (False, 1)]


def test_groups_of_the_caller_are_not_written():
    model = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 3))
    groups = [{"params": list(model.parameters()), "lr": 0.1}]
    with pytest.raises(ValueError, match=r"gs.orthogonalize_\(model\)"):
        gs.LandingSGD(groups)
    gs.orthogonalize_(model)
    assert [group["orthogonal"] for group in gs.LandingSGD(groups).param_groups] == [True, False]
    assert groups[0].keys() == {"params", "lr"}


def test_a_copied_optimizer_divides_added_groups_as_the_original_does():
    model = nn.Sequential(nn.Linear(4, 3))
    gs.orthogonalize_(model)
    optimizer = gs.LandingSGD(model.parameters())
    for one in (optimizer, copy.deepcopy(optimizer)):
        one.add_param_group({"params": [nn.Parameter(gs.random_stiefel(3, 3))]})
        assert one.param_groups[-1]["orthogonal"] is False


def test_an_empty_group_is_kept():
    model = transformer()
    optimizer = gs.LandingSGD([{"params": model.parameters()}, {"params": [], "lr": 0.5}])
    assert (len(optimizer.param_groups[-1]["params"]), optimizer.param_groups[-1]["lr"]) == (0, 0.5)


@pytest.mark.parametrize("bad", [3, {"lr": 0.1}, {"params": {torch.eye(3)}}, {"params": [3]}])
@pytest.mark.parametrize("marked", [False, True])
def test_a_bad_group_added_later_is_refused_in_the_words_of_torch(bad, marked):
    optimizer = gs.LandingSGD(transformer() if marked else [nn.Parameter(torch.eye(3))])
    groups = len(optimizer.param_groups)
    with pytest.raises((TypeError, KeyError)) as expected:
        torch.optim.SGD([nn.Parameter(torch.eye(3))]).add_param_group(bad)
    with pytest.raises(expected.type) as found:
        optimizer.add_param_group(bad)
    assert str(found.value) == str(expected.value)
    assert len(optimizer.param_groups) == groups


@pytest.mark.parametrize("bad", [[], torch.eye(3), 3, [torch.eye(3), {"params": []}], ["weight"], [{"lr": 0.1}]])
def test_what_torch_refuses_is_refused_in_its_words(bad):
    with pytest.raises((TypeError, ValueError, KeyError)) as expected:
        torch.optim.SGD(bad)
    with pytest.raises(expected.type) as found:
        gs.LandingSGD(bad)
    assert str(found.value) == str(expected.value)
