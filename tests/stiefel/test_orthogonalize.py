"""orthogonalize_ and project_: the chosen weights become the nearest orthonormal ones, and nothing else changes."""

import copy
import io
import pickle

import pytest
import scipy.linalg
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from glideslope.stiefel import orthogonality, orthogonalize_, param_groups, project_


class Experts(nn.Module):
    """A batch of matrices in one parameter, and a kernel that no torch module owns."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 5, 2))
        self.kernel = nn.Parameter(torch.randn(4, 2, 3, 3))
        self.scale = nn.Parameter(torch.ones(5))


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


def whole(W):
    return [W]


def flat(W):
    return [W.reshape(W.shape[0], -1)]


def cut(count):
    """The literal meaning of one matrix per gate, projection or group: consecutive rows of dimension 0."""
    return lambda W: [block.reshape(block.shape[0], -1) for block in W.split(W.shape[0] // count)]


# what, module, select, {name: its matrices}
CASES = [
    ("linear, wide", lambda: nn.Linear(5, 3), None, {"weight": whole}),
    ("linear, tall", lambda: nn.Linear(3, 5), None, {"weight": whole}),
    ("linear, complex", lambda: nn.Linear(3, 5, dtype=torch.complex64), None, {"weight": whole}),
    ("linear, half", lambda: nn.Linear(3, 5, dtype=torch.bfloat16), None, {"weight": whole}),
    ("linear, one output", lambda: nn.Linear(3, 1), None, {"weight": whole}),
    ("conv1d", lambda: nn.Conv1d(3, 4, 5), None, {"weight": flat}),
    ("conv2d", lambda: nn.Conv2d(3, 4, 3), None, {"weight": flat}),
    ("conv2d, tall", lambda: nn.Conv2d(3, 40, 3), None, {"weight": flat}),
    ("conv3d", lambda: nn.Conv3d(3, 4, (1, 2, 3)), None, {"weight": flat}),
    ("conv2d, grouped", lambda: nn.Conv2d(6, 9, 3, groups=3), None, {"weight": cut(3)}),
    ("conv2d, depthwise", lambda: nn.Conv2d(6, 6, 3, groups=6), None, {"weight": cut(6)}),
    ("conv2d, channels last", lambda: nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), None, {"weight": flat}),
    (
        "conv2d, grouped, channels last",
        lambda: nn.Conv2d(6, 4, 3, groups=2).to(memory_format=torch.channels_last),
        None,
        {"weight": cut(2)},
    ),
    (
        "conv3d, channels last",
        lambda: nn.Conv3d(3, 4, 2).to(memory_format=torch.channels_last_3d),
        None,
        {"weight": flat},
    ),
    ("transposed conv1d", lambda: nn.ConvTranspose1d(3, 4, 5), None, {"weight": flat}),
    ("transposed conv2d, grouped", lambda: nn.ConvTranspose2d(6, 4, 3, groups=2), None, {"weight": cut(2)}),
    ("transposed conv3d", lambda: nn.ConvTranspose3d(3, 4, 2), None, {"weight": flat}),
    ("attention", lambda: nn.MultiheadAttention(6, 2), None, {"in_proj_weight": cut(3), "out_proj.weight": whole}),
    (
        "attention by type",
        lambda: nn.MultiheadAttention(6, 2),
        nn.MultiheadAttention,
        {"in_proj_weight": cut(3), "out_proj.weight": whole},
    ),
    (
        "attention, kdim",
        lambda: nn.MultiheadAttention(6, 2, kdim=4, vdim=8),
        None,
        {"q_proj_weight": whole, "k_proj_weight": whole, "v_proj_weight": whole, "out_proj.weight": whole},
    ),
    ("LSTM", lambda: nn.LSTM(3, 4, 2), nn.LSTM, {"weight_hh_l0": cut(4), "weight_hh_l1": cut(4)}),
    ("GRU", lambda: nn.GRU(3, 4, bidirectional=True), nn.GRU, {"weight_hh_l0": cut(3), "weight_hh_l0_reverse": cut(3)}),
    ("RNN", lambda: nn.RNN(3, 4), (nn.RNN, nn.GRU), {"weight_hh_l0": whole}),
    ("LSTM, proj", lambda: nn.LSTM(3, 4, proj_size=2), nn.LSTM, {"weight_hh_l0": cut(4), "weight_hr_l0": whole}),
    ("LSTM cell", lambda: nn.LSTMCell(3, 4), nn.LSTMCell, {"weight_hh": cut(4)}),
    ("GRU cell", lambda: nn.GRUCell(3, 4), [nn.GRUCell], {"weight_hh": cut(3)}),
    ("RNN cell", lambda: nn.RNNCell(3, 4), nn.RNNCell, {"weight_hh": whole}),
    ("LSTM, input weights by name", lambda: nn.LSTM(3, 4), ["weight_ih*"], {"weight_ih_l0": cut(4)}),
    ("embedding by type", lambda: nn.Embedding(7, 3), nn.Embedding, {"weight": whole}),
    ("embedding by name", lambda: nn.Embedding(7, 3), "weight", {"weight": whole}),
    ("experts by name", Experts, ["weight"], {"weight": list}),
    ("kernel by predicate", Experts, lambda name, p, m: "conv" if name == "kernel" else False, {"kernel": flat}),
    ("experts by predicate", Experts, lambda name, parameter, m: parameter.ndim == 3, {"weight": list}),
]
all_kinds = pytest.mark.parametrize(
    ("build", "select", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES]
)


def wide(M):
    return M.detach().to(torch.complex128 if M.is_complex() else torch.float64)


def assert_orthonormal(M, tolerance):
    """W W^H = I or W^H W = I, whichever is the smaller identity."""
    M = wide(M)
    S = M @ M.mH if M.shape[0] < M.shape[1] else M.mH @ M
    assert (S - torch.eye(len(S), dtype=S.dtype)).abs().max() < tolerance


def rounding(tensor):
    return 4 * torch.finfo(tensor.dtype).eps


@all_kinds
def test_the_chosen_weights_become_the_nearest_orthonormal_ones_in_their_own_storage(build, select, expected):
    model = build()
    before = copy.deepcopy(model.state_dict())
    pointers = {name: parameter.data_ptr() for name, parameter in model.named_parameters()}
    strides = {name: parameter.stride() for name, parameter in model.named_parameters()}
    assert orthogonalize_(model, select) == list(expected)
    assert list(model.state_dict()) == list(before)
    for name, parameter in model.named_parameters():
        assert type(parameter) is nn.Parameter
        assert (parameter.data_ptr(), parameter.stride()) == (pointers[name], strides[name])
        if name not in expected:
            assert torch.equal(parameter, before[name])
            continue
        for block, old in zip(expected[name](parameter), expected[name](before[name]), strict=True):
            assert_orthonormal(block, rounding(block))
            polar = torch.from_numpy(scipy.linalg.polar(wide(old).numpy())[0])
            assert (wide(block) - polar).abs().max() < rounding(block)


@all_kinds
def test_calling_it_twice_changes_nothing_more(build, select, expected):
    model = build()
    names = orthogonalize_(model, select)
    once = copy.deepcopy(model.state_dict())
    assert orthogonalize_(model, select) == names
    for name, tensor in model.state_dict().items():
        assert (tensor - once[name]).abs().max() <= torch.finfo(tensor.dtype).eps


@all_kinds
def test_projecting_makes_disturbed_weights_exact_again_and_leaves_the_others(build, select, expected):
    model = build()
    orthogonalize_(model, select)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.05)
    before = copy.deepcopy(model.state_dict())
    assert project_(model) == list(expected)
    for name, parameter in model.named_parameters():
        if name in expected:
            for block in expected[name](parameter):
                assert_orthonormal(block, rounding(block))
        else:
            assert torch.equal(parameter, before[name])


def small_model():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, groups=4),
        nn.Flatten(),
        nn.Linear(8, 6),
        nn.LayerNorm(6),
        nn.Linear(6, 2),
    )


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


def test_mode_gradients_and_the_random_state_stay_as_they_are():
    model = small_model()
    model.eval()
    model[0].train()
    model[4].weight.requires_grad_(False)
    model[6].weight.grad = torch.ones_like(model[6].weight)
    training = [module.training for module in model.modules()]
    needed = [parameter.requires_grad for parameter in model.parameters()]
    random_state = torch.get_rng_state()
    orthogonalize_(model)
    project_(model)
    orthogonality(model)
    param_groups(model)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert [module.training for module in model.modules()] == training
    assert [parameter.requires_grad for parameter in model.parameters()] == needed
    assert torch.equal(model[6].weight.grad, torch.ones(2, 6))
    assert all(parameter.is_leaf and parameter.grad_fn is None for parameter in model.parameters())


def test_tied_weights_are_handled_once_and_tied_embeddings_stay_free():
    model = Tied()
    table = model.embedding.weight.detach().clone()
    assert orthogonalize_(model) == ["first.weight"]
    assert_orthonormal(model.second.weight, 1e-6)
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


def through_torch_save(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)


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


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
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


def test_a_marked_weight_that_is_no_parameter_any_more_is_said():
    model = nn.Sequential(nn.Linear(3, 2))
    orthogonalize_(model)
    prune.l1_unstructured(model[0], "weight", amount=1)
    with pytest.raises(ValueError, match=r"'0.weight' was marked by orthogonalize_ but is no parameter"):
        param_groups(model)


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
        (nn.Linear(2, 2), "select must be a module type .*; got 'Linear'"),
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


def test_projecting_a_weight_with_nan_names_it():
    model = small_model()
    orthogonalize_(model)
    with torch.no_grad():
        model[2].weight[0] = torch.nan
    with pytest.raises(ValueError, match=r"project_: '2.weight': X must be finite"):
        project_(model)


@pytest.mark.parametrize(
    ("options", "bound"),
    [
        ({"kernel_size": 3, "padding": 1}, 3),
        ({"kernel_size": 3, "padding": 1, "padding_mode": "circular"}, 3),
        ({"kernel_size": 3, "padding": 1, "groups": 2}, 3),
        ({"kernel_size": 1}, 1),
        ({"kernel_size": 2, "stride": 2}, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("out", [4, 40])
def test_an_orthonormal_kernel_matrix_bounds_the_convolution_operator_as_the_docs_say(options, bound, out):
    layer = nn.Conv2d(2, out, **options, bias=False, dtype=torch.float64)
    orthogonalize_(layer)
    images = torch.eye(2 * 6 * 6, dtype=torch.float64).reshape(-1, 2, 6, 6)
    singular_values = torch.linalg.svdvals(layer(images).flatten(1))
    assert singular_values.max() < bound + 1e-12
    if bound > 1:  # and it is no orthogonal operator
        assert singular_values.max() > 1.01
