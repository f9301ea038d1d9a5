"""Bad input gets a ValueError that names the argument, what it got and what it accepts."""

import pytest
import torch

import glideslope as gs

X = torch.eye(4, 2)
formulas = gs.formulas


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: formulas.gram(torch.ones(2, 4)), r"X must be tall.*\(2, 4\).*X\.mT"),
        (lambda: formulas.gram(torch.ones(4)), r"X must have shape \(\*batch, n, p\); got \(4,\)"),
        (lambda: formulas.gram(torch.ones(4, 0)), r"X must be tall.*\(4, 0\)"),
        (lambda: formulas.gram([[1.0]]), r"X must be a torch\.Tensor.*list"),
        (lambda: formulas.distance(X.long()), r"X must be floating point or complex; got torch\.int64"),
        (
            lambda: formulas.landing_field(X, X[:3], attraction=1.0),
            r"G must have the shape of X, \(4, 2\); got \(3, 2\)",
        ),
        (
            lambda: formulas.landing_field(X, X.double(), attraction=1.0),
            r"G must have the type.*float32.*float64",
        ),
        (
            lambda: formulas.landing_field(X, X.to("meta"), attraction=1.0),
            r"G must have the type and device of X, .*cpu; got .*meta",
        ),
        (
            lambda: formulas.riemannian_gradient(X, X, metric="flat"),
            r"metric.*'canonical', 'euclidean'; got 'flat'",
        ),
        (
            lambda: formulas.skew_field(X, torch.zeros(4, 4), attraction=-1.0),
            r"attraction must be finite and > 0; got -1\.0",
        ),
        (
            lambda: formulas.skew_field(X, [[0.0]], attraction=1.0),
            r"A must be a torch\.Tensor.*list",
        ),
        (
            lambda: formulas.landing_field(X, X, attraction=-1.0),
            r"attraction must be finite and > 0; got -1\.0",
        ),
        (
            lambda: formulas.landing_field(X, X, attraction="big"),
            r"attraction must be a number > 0; got 'big'",
        ),
        (
            lambda: formulas.landing_field(X, X, attraction=1.0, metric="flat"),
            r"metric.*'canonical', 'euclidean'; got 'flat'",
        ),
        (
            lambda: formulas.skew_field(X, torch.ones(2, 2), attraction=1.0),
            r"A must have shape.*\(4, 4\).*\(2, 2\)",
        ),
        (
            lambda: formulas.safeguard_step(X[0, 0], X[0, 0], attraction=0.0, safe_radius=0.5),
            r"attraction.*got 0\.0",
        ),
        (
            lambda: formulas.safeguard_step(X[0, 0], X[0, 0], attraction=1.0, safe_radius=0.0),
            r"safe_radius.*\(0, 1\); got 0\.0",
        ),
        (
            lambda: formulas.safeguard_step(X[0, 0], X[0, 0], attraction=1.0, safe_radius=1.0),
            r"safe_radius.*\(0, 1\); got 1\.0",
        ),
        (lambda: formulas.exact_safeguard_step(X, X, safe_radius=-0.5), r"safe_radius.*got -0\.5"),
        (
            lambda: formulas.safeguard_lower_bound(0.0, attraction=1.0, safe_radius=0.5),
            r"field_bound.*got 0\.0",
        ),
        (
            lambda: formulas.landing_step(X, X, step_size=-1.0),
            r"step_size must be finite and >= 0; got -1\.0",
        ),
        (lambda: formulas.landing_step(X, X, step_size=float("nan")), r"step_size.*got nan"),
        (lambda: formulas.landing_step(X, X, step_size=float("inf")), r"step_size.*got inf"),
        (lambda: formulas.landing_step(X, X, step_size=True), r"step_size.*got True"),
        (lambda: formulas.landing_step(X, X, step_size="auto"), r"step_size.*got 'auto'"),
        (
            lambda: formulas.landing_step(X, X, step_size=torch.ones(3)),
            r"step_size.*batch shape \(\); got \(3,\)",
        ),
        (lambda: formulas.landing_step(X, X, step_size=1.0, safe_radius=True), r"safe_radius.*got True"),
        (
            lambda: formulas.landing_step(X, X, step_size=1.0, normal_step="qr"),
            r"normal_step.*'polar'; got 'qr'",
        ),
        (lambda: formulas.landing_step(X, X, step_size=1.0, safeguard="no"), r"safeguard.*None; got 'no'"),
        (lambda: gs.landing_step(X, X, step_size=1.0, out=X[:3]), r"out must have the shape of X"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_arguments_may_be_given_by_name_in_any_order(dtype):
    Y = (X / 3).to(dtype)
    assert torch.equal(formulas.gram(X=Y), formulas.gram(Y))
    assert torch.equal(
        formulas.landing_field(attraction=0.3, G=Y + 1, X=Y), formulas.landing_field(Y, Y + 1, attraction=0.3)
    )
    with pytest.raises(TypeError, match="X"):
        formulas.gram()
