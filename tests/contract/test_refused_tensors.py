"""Tensors no step can be taken with: refused by name with the way out, before anything has moved."""

import pytest
import torch
from contract.factories import (
    ALL,
    ATTACHED,
    CLASSES,
    assert_same,
    copies_of,
    feed,
    of,
    orthonormal,
    parameters,
    random_gradients,
)

import glideslope as gs

X = orthonormal((6, 3), torch.float32)
PARAMETERS = {
    "sparse": (lambda: X.to_sparse(), r"is sparse_coo.*to_dense\(\)"),
    "CSR": (lambda: X.to_sparse_csr(), r"is sparse_csr.*to_dense\(\)"),
    "MKL-DNN": (lambda: X.to_mkldnn(), r"is _mkldnn.*to_dense\(\)"),
    "nested": (lambda: torch.nested.nested_tensor([X, X]), "is a nested tensor.*parameter of its own"),
    "jagged": (lambda: torch.nested.nested_tensor([X, X], layout=torch.jagged), "is a nested tensor.*of its own"),
    "float8": (lambda: X.to(torch.float8_e4m3fn), "is float8_e4m3fn.*bfloat16"),
    "complex32": (lambda: X.to(torch.complex32), "is complex32.*complex64"),
}


# torch says that CSR tensors, nested tensors and complex32 are new.
@pytest.mark.filterwarnings("ignore:Sparse CSR", "ignore:The PyTorch API of nested", "ignore:ComplexHalf")
@pytest.mark.parametrize(("made", "message"), PARAMETERS.values(), ids=PARAMETERS.keys())
@of({**CLASSES, **ATTACHED})
def test_a_constrained_parameter_of_another_kind_is_refused(make, made, message):
    bad, good = torch.nn.Parameter(made()), torch.nn.Parameter(X.clone())
    with pytest.raises(ValueError, match=rf"parameter 'odd' {message}"):
        make([("good", good), ("odd", bad)])
    if make in CLASSES.values():
        optimizer = make([good])
        with pytest.raises(ValueError, match=rf"parameter 1 {message}"):
            optimizer.add_param_group({"params": [bad]})
        assert len(optimizer.param_groups) == 1


@of(ALL)
def test_a_sparse_gradient_is_refused_before_anything_moves(make):
    params = parameters()
    optimizer = make(params, lr=0.05)
    expected = copies_of(params)
    first, second, third = random_gradients(params, 3)
    feed(optimizer, params, [first])
    points = copies_of(params)
    sparse = [gradient.to_sparse() if i == 5 else gradient for i, gradient in enumerate(second)]
    with pytest.raises(ValueError, match=r"parameter 5 has a sparse_coo gradient.*to_dense\(\)"):
        feed(optimizer, params, [sparse])
    assert_same(params, points)
    assert params[5].grad.is_sparse
    feed(optimizer, params, [third])
    feed(make(expected, lr=0.05), expected, [first, third])
    assert_same(params, expected)


@of(CLASSES)
def test_free_parameters_take_sparse_gradients_where_the_torch_optimizer_does(make):
    params, table = parameters([(6, 3)]), torch.nn.Parameter(torch.ones(5, 2, dtype=torch.float64))
    optimizer = make([{"params": params}, {"params": [table], "orthogonal": False}], lr=0.1)
    start = copies_of([*params, table])
    params[0].grad, table.grad = torch.ones_like(params[0]), torch.ones_like(table).to_sparse()
    if make is gs.LandingAdam:
        with pytest.raises(ValueError, match=r"LandingAdam: parameter 1 has a sparse_coo gradient"):
            optimizer.step()
        assert_same([*params, table], start)
    else:
        optimizer.step()
        assert_same([table], [start[1].detach() - 0.1], tolerance=1e-12)
