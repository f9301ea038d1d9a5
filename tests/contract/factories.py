"""Every optimizer under contract as a factory of (params, **options), and the points and gradients they are fed."""

import io
from functools import partial

import pytest
import torch
from literal import REAL_OF, exact_distance, region_distance

import glideslope as gs
from glideslope.stiefel.views import as_matrices

HALF = (torch.bfloat16, torch.float16)


def through_a_file(value):
    """A value as torch.save and torch.load leave it."""
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def of(factories):
    """A test for each of some optimizers, as `make`."""
    return pytest.mark.parametrize("make", factories.values(), ids=factories.keys())


def seeded(seed=0):
    return torch.Generator().manual_seed(20240517 + seed)


def tensors_of(params):
    """The tensors in parameters, (name, parameter) pairs, or groups of either."""
    found = []
    for entry in params:
        for one in entry["params"] if isinstance(entry, dict) else [entry]:
            found.append(one[1] if isinstance(one, tuple) else one)
    return found


def attached(host, **fixed):
    """A factory: a torch optimizer with attach_landing."""

    def make(params, lr=1e-3, **options):
        params = list(params)
        return gs.attach_landing(host(tensors_of(params), lr=lr, **fixed), params, **options)

    return make


LANDING = {
    "LandingSGD": gs.LandingSGD,
    "LandingSGD momentum": partial(gs.LandingSGD, momentum=0.9),
    "LandingSGD nesterov": partial(gs.LandingSGD, momentum=0.9, nesterov=True),
    "LandingSGD exact euclidean": partial(gs.LandingSGD, safeguard="exact", metric="euclidean"),
    "LandingSGD newton-schulz": partial(gs.LandingSGD, normal_step="newton-schulz", momentum=0.5),
    "LandingSGD polar": partial(gs.LandingSGD, normal_step="polar", metric="euclidean"),
    "LandingAdam": gs.LandingAdam,
}
ATTACHED = {
    "attached AdamW": attached(torch.optim.AdamW),
    "attached SGD": attached(torch.optim.SGD, momentum=0.9),
}
RIEMANNIAN = {
    f"RiemannianSGD {retraction}": partial(gs.RiemannianSGD, retraction=retraction)
    for retraction in ("qr", "polar", "cayley", "exponential")
}
PENALTY = {"PenaltySGD": gs.PenaltySGD}
OWN = {**LANDING, **RIEMANNIAN, **PENALTY}
ALL = {**OWN, **ATTACHED}
SAFE = {**LANDING, **ATTACHED}
CLASSES = {"LandingSGD": gs.LandingSGD, "LandingAdam": gs.LandingAdam, "RiemannianSGD": gs.RiemannianSGD}
CLASSES |= {"PenaltySGD": gs.PenaltySGD}

SHAPES = [(6, 3), (3, 6), (6, 3), (4, 4), (1, 1), (2, 5, 3), (6, 3)]


def orthonormal(shape, dtype=torch.float64, generator=None):
    """Random orthonormal matrices, wide ones with orthonormal rows."""
    *batch, rows, columns = shape
    n, p = max(rows, columns), min(rows, columns)
    X = gs.random_stiefel(n, p, batch=batch, dtype=dtype, generator=generator or seeded())
    return (X if rows >= columns else X.mT).contiguous()


def parameters(shapes=SHAPES, dtype=torch.float64, seed=0):
    generator = seeded(seed)
    return [torch.nn.Parameter(orthonormal(shape, dtype, generator)) for shape in shapes]


def copies_of(params):
    return [torch.nn.Parameter(param.detach().clone()) for param in params]


def random_gradients(params, steps, seed=1, scale=1.0):
    """`steps` lists of one random gradient per parameter."""
    generator = seeded(seed)

    def one(param):
        dtype = torch.float32 if param.dtype in HALF else param.dtype
        return (scale * torch.randn(param.shape, dtype=dtype, generator=generator)).to(param.dtype)

    return [[one(param) for param in params] for _ in range(steps)]


def feed(optimizer, params, gradients):
    """One optimizer step per list of gradients."""
    for given in gradients:
        for param, gradient in zip(params, given, strict=True):
            param.grad = None if gradient is None else gradient.clone()
        optimizer.step()


def landing_of(optimizer):
    """The part of an optimizer that keeps the constrained state and has diagnostics()."""
    return getattr(optimizer, "landing", optimizer)


def master_of(optimizer, param):
    return landing_of(optimizer).state[param].get("master", param.detach())


def distances(param, view="matrix", optimizer=None):
    """Distances in double precision; with an optimizer, of its master and in the norm of its safe region."""
    point = param.detach() if optimizer is None else master_of(optimizer, param)
    point = as_matrices(point.float() if point.dtype in HALF else point, view)
    if optimizer is None:
        return exact_distance(point).reshape(-1)
    group = landing_of(optimizer).param_groups[0]
    return region_distance(point, group.get("normal_step", "landing"), group.get("safeguard")).reshape(-1)


def rounding(param, view="matrix"):
    """Two units of the type that is computed in, times the root of the number of columns."""
    dtype = torch.float32 if param.dtype in HALF else param.dtype
    return 2 * torch.finfo(REAL_OF.get(dtype, dtype)).eps * as_matrices(param, view).shape[-1] ** 0.5


def assert_same(actual, expected, tolerance=0.0):
    """Equal tensors, pair by pair; with a tolerance, up to it relative to the largest entry or 1."""
    assert len(actual) == len(expected)
    for a, b in zip(actual, expected, strict=True):
        a, b = a.detach(), b.detach()
        assert a.shape == b.shape
        assert torch.isfinite(a).all()
        if tolerance:
            assert (a - b).abs().max() <= tolerance * max(1.0, b.abs().max().item())
        else:
            assert torch.equal(a, b)
