"""Views: the matrices share the parameter's storage, hold its blocks, and take any memory order of the kernel."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from glideslope.stiefel import as_matrices, copy_matrices_, default_view, matrix_shape

CASES = [
    # shape, view, shape of the matrices
    ((5, 3), "matrix", (5, 3)),
    ((3, 5), "matrix", (5, 3)),
    ((1, 1), "matrix", (1, 1)),
    ((2, 3, 5), "matrix", (2, 5, 3)),
    ((2, 4, 3, 5), "matrix", (8, 5, 3)),
    ((4, 3, 5), "conv", (15, 4)),
    ((20, 3, 5), "conv", (20, 15)),
    ((4, 3, 2, 5), "conv", (30, 4)),
    ((4, 3, 2, 3, 2), "conv", (36, 4)),
    ((6, 2, 3), "grouped_conv:3", (3, 6, 2)),
    ((6, 4, 3, 3), "grouped_conv:2", (2, 36, 3)),
    ((6, 1, 3, 3), "grouped_conv:6", (6, 9, 1)),
    ((6, 1, 1, 1), "grouped_conv:1", (1, 6, 1)),
    ((12, 4), "split:3", (3, 4, 4)),
    ((12, 2), "split:4", (4, 3, 2)),
    ((4, 9), "split:4", (4, 9, 1)),
    ((4, 12), "split_columns:3", (3, 4, 4)),
    ((5, 6), "split_columns:2", (2, 5, 3)),
    ((3, 10), "split_columns:2", (2, 5, 3)),
]
all_cases = pytest.mark.parametrize(("shape", "view", "matrices"), CASES, ids=str)


def blocks_of(tensor, view):
    """The matrices by their literal definition, in the order of the dimensions: rows x flattened rest."""
    kind, _, number = view.partition(":")
    if kind == "matrix":
        return list(tensor.reshape(-1, *tensor.shape[-2:]))
    count = int(number or 1)
    if kind == "split_columns":
        tensor = tensor.T
    rows = tensor.shape[0] // count
    return [tensor[i * rows : (i + 1) * rows].reshape(rows, -1) for i in range(count)]


def laid_out(shape, order):
    """A dense tensor of distinct entries whose dimensions lie in memory in the given order, slowest first."""
    tensor = torch.arange(1.0, 1 + math.prod(shape), dtype=torch.float64).reshape([shape[dim] for dim in order])
    return tensor.permute([order.index(dim) for dim in range(len(shape))])


def assert_same_rows(X, blocks):
    """The rows of all blocks, their entries in one order: the products of any two rows agree."""
    for found, block in zip(X.reshape(-1, *X.shape[-2:]), blocks, strict=True):
        rows = found.T if block.shape[0] < block.shape[1] else found
        assert torch.equal(rows @ rows.T, block @ block.T)


@all_cases
def test_the_shape_of_the_matrices_is_tall(shape, view, matrices):
    assert matrix_shape(shape, view) == matrices
    assert matrix_shape(torch.Size(shape), view) == matrices


@all_cases
def test_the_matrices_are_the_blocks_and_wide_ones_are_transposed(shape, view, matrices):
    tensor = laid_out(shape, list(range(len(shape))))
    expected = torch.stack([M.T if M.shape[0] < M.shape[1] else M for M in blocks_of(tensor, view)])
    assert torch.equal(as_matrices(tensor, view), expected.reshape(matrices))


@all_cases
def test_writing_into_the_matrices_writes_the_parameter(shape, view, matrices):
    parameter = torch.nn.Parameter(torch.zeros(shape))
    with torch.no_grad():
        written = as_matrices(parameter, view)
        assert written.data_ptr() == parameter.data_ptr()
        written.copy_(torch.arange(math.prod(shape)).reshape(matrices))
    assert sorted(parameter.flatten().tolist()) == list(range(math.prod(shape)))


@pytest.mark.parametrize("view", ["conv", "grouped_conv:2"])
@pytest.mark.parametrize(
    ("shape", "memory_format"),
    [
        ((4, 3, 2, 5), torch.channels_last),
        ((6, 1, 2, 2), torch.channels_last),
        ((4, 3, 2, 3, 2), torch.channels_last_3d),
    ],
    ids=str,
)
def test_channels_last_kernels_share_storage_and_hold_the_same_blocks(shape, memory_format, view):
    tensor = laid_out(shape, list(range(len(shape)))).to(memory_format=memory_format)
    X = as_matrices(tensor, view)
    assert X.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    assert_same_rows(X, blocks_of(tensor, view))


@st.composite
def dense_tensors(draw):
    """A shape, a view that fits it, and an order of the dimensions in memory with the blocks outermost."""
    trailing = tuple(draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    count, rows = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    view = draw(st.sampled_from(["conv", f"grouped_conv:{count}"]))
    order = [0, *draw(st.permutations(range(1, len(trailing) + 1)))]
    return (count * rows, *trailing), view, order


@given(dense_tensors())
def test_in_any_memory_order_of_a_kernel_what_is_written_into_the_matrices_is_in_the_parameter(case):
    shape, view, order = case
    tensor = laid_out(shape, order)
    X = as_matrices(tensor, view)
    assert X.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    assert_same_rows(X, blocks_of(tensor, view))
    X.mul_(2)
    assert torch.equal(tensor, 2 * laid_out(shape, order))
    X.copy_(torch.arange(X.numel()).reshape(X.shape))
    for found, block in zip(X.reshape(-1, *X.shape[-2:]), blocks_of(tensor, view), strict=True):
        assert sorted(found.flatten().tolist()) == sorted(block.flatten().tolist())


@pytest.mark.parametrize("view", ["conv", "grouped_conv:2"])
def test_a_gradient_is_laid_out_in_the_order_of_its_parameter(view):
    gradient = laid_out((4, 3, 2, 5), [0, 1, 2, 3])
    parameter = torch.zeros(4, 3, 2, 5).to(memory_format=torch.channels_last)
    same_strides = gradient.clone(memory_format=torch.preserve_format).to(memory_format=torch.channels_last)
    found = as_matrices(gradient, view, strides_of=parameter)
    assert torch.equal(found, as_matrices(same_strides, view))
    assert not torch.equal(found, as_matrices(gradient, view))


def test_a_gradient_in_the_order_of_its_parameter_is_not_copied():
    parameter = torch.zeros(4, 3, 2, 5).to(memory_format=torch.channels_last)
    gradient = torch.zeros_like(parameter)
    assert as_matrices(gradient, "conv", strides_of=parameter).data_ptr() == gradient.data_ptr()


@all_cases
def test_copying_matrices_is_the_inverse_of_taking_them_in_every_memory_order(shape, view, matrices):
    for order in itertools.permutations(range(len(shape))):
        tensor = laid_out(shape, list(order))
        X = as_matrices(tensor, view).clone()
        target = torch.zeros_like(tensor)
        assert target.stride() == tensor.stride()
        assert copy_matrices_(target, X, view) is target
        assert torch.equal(target, tensor)


def test_copying_matrices_rounds_once_to_the_type_of_the_tensor():
    target = torch.zeros(2, 2, dtype=torch.bfloat16)
    values = torch.tensor([[1.001, 0.3], [0.7, 2.0]], dtype=torch.float64)
    assert torch.equal(copy_matrices_(target, values, "matrix"), values.to(torch.bfloat16))


def test_a_transposed_parameter_is_read_in_place():
    storage = torch.zeros(3, 5)
    as_matrices(storage.T, "matrix").fill_(1)
    assert storage.sum() == 15


@pytest.mark.parametrize(("shape", "order"), [((2, 3, 5), [0, 2, 1]), ((2, 4, 3, 5), [1, 0, 2, 3])], ids=str)
def test_a_batch_in_another_memory_order_keeps_its_matrices_and_shares_storage(shape, order):
    tensor = laid_out(shape, order)
    X = as_matrices(tensor, "matrix")
    assert X.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    assert sorted(X.mT.tolist()) == sorted(tensor.reshape(-1, 3, 5).tolist())


def test_a_gradient_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"strides_of must have the shape of the tensor, \(4, 3\); got \(3, 4\)"):
        as_matrices(torch.zeros(4, 3), "matrix", strides_of=torch.zeros(3, 4))


@pytest.mark.parametrize(
    ("shape", "view", "message"),
    [
        ((5,), "matrix", r"'matrix' needs 2 dimensions or more, .*; got shape \(5,\)"),
        ((5, 4), "conv", r"'conv' needs a kernel of 3 dimensions or more, .*; got shape \(5, 4\)"),
        ((4, 4), "grouped_conv:2", r"'grouped_conv:2' needs a kernel of 3 dimensions"),
        ((5, 4, 3), "grouped_conv:2", r"cuts dimension 0 into 2 equal blocks; got shape \(5, 4, 3\)"),
        ((7, 4), "split:3", r"cuts dimension 0 into 3 equal blocks; got shape \(7, 4\)"),
        ((6, 4, 3), "split:3", r"'split:3' needs 2 dimensions"),
        ((4, 7), "split_columns:3", r"cuts dimension 1 into 3 equal blocks; got shape \(4, 7\)"),
        ((6, 4, 3), "split_columns:3", r"'split_columns:3' needs 2 dimensions, \(n, blocks \* p\)"),
        ((0, 4), "matrix", r"needs a tensor with entries; got shape \(0, 4\)"),
        *(
            ((4, 4), view, "view must be 'matrix', 'conv', 'grouped_conv:G', 'split:K' or 'split_columns:K'")
            for view in (
                "rows",
                "split",
                "split:",
                "split:0",
                "split:-1",
                "split:x",
                "split:1.5",
                "grouped_conv",
                "",
                None,
            )
        ),
    ],
)
def test_a_view_that_does_not_fit_is_refused(shape, view, message):
    with pytest.raises(ValueError, match=message):
        matrix_shape(shape, view)
    with pytest.raises(ValueError, match=message):
        as_matrices(torch.zeros(shape), view)


def test_only_two_and_three_dimensions_have_a_default_view():
    assert [default_view(ndim) for ndim in range(6)] == [None, None, "matrix", "matrix", None, None]


@all_cases
@pytest.mark.parametrize("channels_last", [False, True])
def test_views_run_on_fake_cuda_tensors(shape, view, matrices, channels_last):
    with FakeTensorMode():
        parameter = torch.empty(shape, device="cuda")
        gradient = torch.empty(shape, device="cuda")
        if channels_last and len(shape) == 4:
            parameter = parameter.to(memory_format=torch.channels_last)
        X = as_matrices(parameter, view)
        assert tuple(X.shape) == matrices
        assert X.device.type == "cuda"
        assert tuple(as_matrices(gradient, view, strides_of=parameter).shape) == matrices
        copy_matrices_(parameter, X + 1, view)


def test_views_compile_into_one_graph():
    @torch.compile(fullgraph=True, backend="eager")
    def double(parameter, gradient):
        as_matrices(parameter, "grouped_conv:2").add_(as_matrices(gradient, "grouped_conv:2", strides_of=parameter))
        return parameter

    parameter = laid_out((4, 3, 2, 5), [0, 2, 3, 1])
    assert torch.equal(
        double(parameter, laid_out((4, 3, 2, 5), [0, 2, 3, 1]).contiguous()), 2 * laid_out((4, 3, 2, 5), [0, 2, 3, 1])
    )
