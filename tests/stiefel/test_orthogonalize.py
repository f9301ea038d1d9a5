"""orthogonalize_ and project_: the chosen weights become the nearest orthonormal ones, and nothing else changes."""

import copy

import pytest
import scipy.linalg
import torch
from networks import small_model
from torch import nn

from glideslope.stiefel import orthogonality, orthogonalize_, param_groups, project_


class Experts(nn.Module):
    """A batch of matrices in one parameter, and a kernel that no torch module owns."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 5, 2))
        self.kernel = nn.Parameter(torch.randn(4, 2, 3, 3))
        self.scale = nn.Parameter(torch.ones(5))


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
