"""adopt_ and release_: parametrized weights become plain marked ones with the same outputs; marks are taken away."""

import copy

import geotorch
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import glideslope as gs


class Rotation(nn.Module):
    """A parametrization as users write them: the exponential of a skew-symmetric matrix."""

    def forward(self, A):
        return torch.linalg.matrix_exp(A.triu(1) - A.triu(1).mT)


class Doubled(nn.Module):
    def forward(self, X):
        return 2 * X


def layers(dtype=torch.float64):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 9)).to(dtype)


def torch_map(name, **options):
    def make():
        model = layers()
        for i in (0, 2, 4):
            parametrizations.orthogonal(model[i], orthogonal_map=name, **options)
        return model

    return make


def geotorch_stiefel():
    model = layers()
    geotorch.orthogonal(model[2], "weight")
    geotorch.orthogonal(model[4], "weight", triv="cayley")
    return model


def geotorch_so():
    model = layers()
    geotorch.orthogonal(model[0], "weight")
    return model


def geotorch_grassmannian():
    model = layers()
    geotorch.grassmannian(model[4], "weight")
    return model


def own_parametrization():
    model = layers()
    parametrize.register_parametrization(model[0], "weight", Rotation())
    return model


def float32():
    return parametrizations.orthogonal(layers(torch.float32)[:1][0])


MODELS = {
    **{name: torch_map(name) for name in ("matrix_exp", "cayley", "householder")},
    "without trivialization": torch_map("matrix_exp", use_trivialization=False),
    "GeoTorch Stiefel": geotorch_stiefel,
    "GeoTorch SO": geotorch_so,
    "GeoTorch Grassmannian": geotorch_grassmannian,
    "own": own_parametrization,
    "float32": float32,
}


def assert_same_outputs(found, expected):
    """To rounding: a product has another order of sums if its matrix lies transposed in memory."""
    torch.testing.assert_close(found, expected, rtol=0, atol=16 * torch.finfo(expected.dtype).eps)


def trained_away_from_the_start(model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(1)).to(next(model.parameters()).dtype)
    for _ in range(3):
        optimizer.zero_grad()
        model(inputs).square().cumsum(-1).mean().backward()
        optimizer.step()
    return model, inputs


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_an_adopted_model_has_the_same_outputs_and_the_state_dict_of_a_plain_one(make):
    model, inputs = trained_away_from_the_start(make())
    before = model(inputs).detach()
    names = gs.adopt_(model)
    assert names
    assert_same_outputs(model(inputs), before)
    assert not any(parametrize.is_parametrized(module) for module in model.modules())
    assert [row.name for row in gs.orthogonality(model)] == names
    assert gs.orthogonality(model).largest_distance < (1e-11 if before.dtype == torch.float64 else 1e-5)
    plain = layers() if isinstance(model, nn.Sequential) else nn.Linear(6, 6)
    plain.load_state_dict(model.state_dict(), strict=True)
    assert all(type(one) is type(other) for one, other in zip(model.modules(), plain.modules(), strict=True))
    assert all(parameter.grad is None for name, parameter in model.named_parameters() if name in names)


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS.keys())
def test_training_goes_on_as_for_a_plain_copy(make):
    model, inputs = trained_away_from_the_start(make())
    weights = {name: value.clone() for name, value in model.state_dict().items() if "parametriz" not in name}
    weights |= {
        f"{prefix}.{name}".removeprefix("."): getattr(module, name).detach().clone()
        for prefix, module in model.named_modules()
        if parametrize.is_parametrized(module)
        for name in module.parametrizations
    }
    names = gs.adopt_(model)
    plain = layers() if isinstance(model, nn.Sequential) else nn.Linear(6, 6)
    plain.load_state_dict(weights, strict=True)
    gs.orthogonalize_(plain, names)
    plain.load_state_dict(weights, strict=True)
    losses = []
    for one in (model, plain):
        optimizer = gs.LandingAdam(one.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            loss = one(inputs).square().cumsum(-1).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[:3] == losses[3:]
    assert losses[2] < losses[0]


@pytest.mark.parametrize("register", [parametrizations.orthogonal, lambda layer: geotorch.orthogonal(layer, "weight")])
def test_kernels_keep_the_batch_of_matrices_they_were(register):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Conv2d(5, 4, (2, 3))).to(torch.float64)
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    for conv in model:
        register(conv)
    before = model(images)
    assert gs.adopt_(model) == ["0.weight", "1.weight"]
    assert_same_outputs(model(images), before)
    assert [row.view for row in gs.orthogonality(model)] == ["matrix", "matrix"]
    assert [row.count for row in gs.orthogonality(model)] == [15, 20]


def test_kernels_that_are_orthonormal_flattened_are_read_so():
    class Flattened(nn.Module):
        def forward(self, kernel):
            return torch.linalg.qr(kernel.flatten(1).mT).Q.mT.reshape(kernel.shape)

    model = nn.Sequential(nn.Conv2d(3, 5, 3)).to(torch.float64)
    parametrize.register_parametrization(model[0], "weight", Flattened())
    gs.adopt_(model)
    assert [row.view for row in gs.orthogonality(model)] == ["conv"]


def test_tied_weights_stay_tied():
    model = layers()
    model[0], model[4] = nn.Linear(6, 6).double(), nn.Linear(6, 6).double()
    for i in (0, 4):
        parametrizations.orthogonal(model[i], use_trivialization=False)
    model[4].parametrizations.weight.original = model[0].parametrizations.weight.original
    model[4].parametrizations.weight[0].load_state_dict(model[0].parametrizations.weight[0].state_dict())
    first = model[0].weight.detach().clone()
    assert torch.equal(model[4].weight, first)
    assert gs.adopt_(model) == ["0.weight"]
    assert model[4].weight is model[0].weight
    assert torch.equal(model[0].weight, first)


def test_tied_originals_with_other_values_are_refused_and_unchanged():
    model = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)).double()
    for i, name in ((0, "cayley"), (1, "matrix_exp")):
        parametrizations.orthogonal(model[i], orthogonal_map=name, use_trivialization=False)
    model[1].parametrizations.weight.original = model[0].parametrizations.weight.original
    with pytest.raises(ValueError, match=r"'0.weight' and '1.weight' are computed from one parameter"):
        gs.adopt_(model)
    assert all(parametrize.is_parametrized(layer) for layer in model)


def test_a_module_that_is_registered_twice_is_adopted_once():
    layer = parametrizations.orthogonal(nn.Linear(5, 5))
    assert gs.adopt_(nn.Sequential(layer, nn.Tanh(), layer)) == ["0.weight"]


def test_copies_of_an_adopted_model_are_left_alone():
    model, inputs = trained_away_from_the_start(torch_map("cayley")())
    kept = copy.deepcopy(model)
    before = model(inputs)
    gs.adopt_(model)
    assert_same_outputs(kept(inputs), before)
    gs.adopt_(kept)
    assert_same_outputs(kept(inputs), before)


def test_other_parametrizations_stay():
    model = layers()
    parametrizations.orthogonal(model[0])
    parametrize.register_parametrization(model[2], "weight", Doubled())
    parametrizations.orthogonal(model[4])
    parametrize.register_parametrization(model[4], "weight", Doubled())
    parametrize.register_parametrization(model[2], "bias", Doubled())
    assert gs.adopt_(model) == ["0.weight"]
    assert parametrize.is_parametrized(model[2], "weight")
    assert parametrize.is_parametrized(model[4], "weight")


REFUSED = {
    "weight norm": lambda layer: parametrizations.weight_norm(layer),
    "spectral norm": lambda layer: parametrizations.spectral_norm(layer),
    "old weight norm": lambda layer: nn.utils.weight_norm(layer),
    "old spectral norm": lambda layer: nn.utils.spectral_norm(layer),
    "pruning": lambda layer: prune.l1_unstructured(layer, "weight", amount=2),
}


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated:FutureWarning")
@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
def test_the_line_in_a_refusal_removes_what_is_in_the_way(refused):
    model = layers()
    parametrizations.orthogonal(model[0])
    refused(model[2])
    with pytest.raises(
        ValueError, match=r"adopt_ cannot take these over, and changed nothing:\n  '2.weight': "
    ) as error:
        gs.adopt_(model)
    assert parametrize.is_parametrized(model[0])
    line = str(error.value).partition("'2.weight': ")[2].removesuffix(" first")
    with pytest.raises(ValueError, match=r"is no parameter of its .*gs.adopt_\(model\)"):
        gs.orthogonalize_(model)
    exec(line, {"torch": torch, "model": model})
    assert gs.adopt_(model) == ["0.weight"]
    assert gs.orthogonalize_(model) == ["0.weight", "2.weight", "4.weight"]


def test_nothing_to_adopt_is_said():
    with pytest.raises(ValueError, match=r"adopt_: no weight of this Linear .* gs.orthogonalize_\(model\)"):
        gs.adopt_(nn.Linear(3, 3))


def test_released_weights_are_free():
    model = layers()
    gs.orthogonalize_(model)
    assert gs.release_(model, ["2.*"]) == ["2.weight"]
    assert [row.name for row in gs.orthogonality(model)] == ["0.weight", "4.weight"]
    optimizer = gs.LandingSGD(model.named_parameters())
    assert [row.name for row in optimizer.diagnostics()] == ["0.weight", "4.weight"]
    with pytest.raises(ValueError, match=r"release_: no parameter that select=\['2\.\*'\] chooses"):
        gs.release_(model, ["2.*"])
    assert gs.release_(model) == ["0.weight", "4.weight"]
    assert not any("_glideslope_views" in vars(module) for module in model.modules())
    with pytest.raises(ValueError, match="release_: no parameter of this Sequential is marked"):
        gs.release_(model)


def test_a_tied_weight_is_released_under_any_of_its_names_and_by_type():
    model = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Linear(4, 4), "c": nn.Conv1d(2, 2, 2)})
    model["b"].weight = model["a"].weight
    gs.orthogonalize_(model)
    assert gs.release_(model, ["b.weight"]) == ["a.weight"]
    assert gs.release_(model, nn.Conv1d) == ["c.weight"]
