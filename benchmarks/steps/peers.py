"""The peers, imported by name when they are installed: geoopt, pogo-torch, GeoTorch, and torch's parametrizations.

Optimizers get the tall matrices, contiguous, and the same gradients. A parametrization's step is all of its overhead:
forward, backward of <W, G>, and a step of torch.optim.SGD.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.steps import checks
from benchmarks.steps.methods import GEOOPT, POGO, Method, Running, expected, running
from benchmarks.steps.workloads import Case, Workload

GEOTORCH, PER_KERNEL = "GeoTorch orthogonal", "GeoTorch orthogonal, each k x k apart"
MODULE_OVERHEAD = 2e-3  # seconds that one parametrized module costs in Python, forward and backward


def geoopt_sgd(case: Case, lr: float) -> Running:
    """geoopt.optim.RiemannianSGD on the manifold whose retraction is QR.

    That is EuclideanStiefel. geoopt.Stiefel() means the canonical one, whose Cayley retraction solves an n x n system.
    """
    geoopt: Any = importlib.import_module("geoopt")
    manifold = geoopt.EuclideanStiefel()
    params = [
        geoopt.ManifoldParameter(X.clone(memory_format=torch.contiguous_format), manifold=manifold)
        for X in case.tall(case.points)
    ]
    for param, G in zip(params, case.tall_gradients, strict=True):
        param.grad = G
    optimizer = geoopt.optim.RiemannianSGD(params, lr=lr)
    return running(optimizer, lambda: [param.detach().as_subclass(Tensor) for param in params])


def pogo_sgd(case: Case, lr: float) -> Running:
    """pogo.POGO over its SGD, on column-orthonormal matrices; it wants a batch dimension."""
    pogo: Any = importlib.import_module("pogo")
    base: Any = importlib.import_module("pogo.base")
    params = []
    for X, G in zip(case.tall(case.points), case.tall_gradients, strict=True):
        three = (-1, *X.shape[-2:])
        params.append(nn.Parameter(X.clone(memory_format=torch.contiguous_format).view(three)))
        params[-1].grad = G.view(three)
    shapes = [X.shape for X in case.tall(case.points)]
    optimizer = pogo.POGO(params, base.SGD(), lr=lr, rows=False)
    return running(optimizer, lambda: [param.detach().view(shape) for param, shape in zip(params, shapes, strict=True)])


def orthogonal_of_geotorch(module: nn.Module) -> None:
    """geotorch.orthogonal, W = B exp(A) with n x n matrices."""
    importlib.import_module("geotorch").orthogonal(module, "weight")


def orthogonal_of_torch(module: nn.Module) -> None:
    """torch.nn.utils.parametrizations.orthogonal: matrix exponential if square, else Householder, times an n x n."""
    nn.utils.parametrizations.orthogonal(module, "weight")


class Weight(nn.Module):
    """A module that is one weight."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(start.clone(memory_format=torch.contiguous_format))


def parametrized(case: Case, lr: float, *, register: Callable[[nn.Module], None], per_kernel: bool = False) -> Running:
    """Modules whose weights are parametrized, at X; the step is forward, backward of <W, G> and SGD."""
    if per_kernel:
        starts, gradients = [matrices_near(X) for X in case.points], case.gradients
    else:
        starts, gradients = case.tall(case.points), case.tall_gradients
    modules: list[Any] = []
    for start in starts:
        module: Any = Weight(start)
        register(module)
        module.weight = start
        modules.append(module)
    params = [param for module in modules for param in module.parameters()]
    optimizer = torch.optim.SGD(params, lr=lr)

    def objective() -> Tensor:
        pairs = zip(modules, gradients, strict=True)
        terms = [(module.weight * G.conj()).real.sum() for module, G in pairs]
        return torch.stack(terms).sum()

    def step() -> None:
        optimizer.zero_grad()
        objective().backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    def weights() -> list[Tensor]:
        with torch.no_grad():
            return [module.weight for module in modules]

    before = weights()

    @torch.no_grad()
    def observe(lr: float) -> str | None:
        return (
            starts_elsewhere(case, before, starts)
            or (None if per_kernel else checks.is_orthonormal(case, weights()))
            or does_not_descend(before, weights(), gradients, params, lr)
        )

    made = running(optimizer, weights)
    made.step, made.observe = step, observe
    return made


def matrices_near(kernel: Tensor) -> Tensor:
    """Orthonormal k x k matrices near those of a kernel, for the peer that constrains each of them apart."""
    left, _, right = torch.linalg.svd(kernel, full_matrices=False)
    near: Tensor = left @ right
    return near


def starts_elsewhere(case: Case, before: list[Tensor], starts: list[Tensor]) -> str | None:
    """A complaint if a parametrized weight is not the point it was set to."""
    worst = max((W - X).abs().max().item() for W, X in zip(before, starts, strict=True))
    return f"its weight is {worst:.2g} away from the X it was set to" if worst > 10 * checks.rounding(case) else None


def does_not_descend(
    before: list[Tensor], after: list[Tensor], gradients: list[Tensor], params: list[Tensor], lr: float
) -> str | None:
    """A complaint unless <W, G> fell by lr ‖gradient in the parameters‖², to first order."""
    triples = zip(before, after, gradients, strict=True)
    fell = sum(((old - new) * G.conj()).real.double().sum().item() for old, new, G in triples)
    due = lr * sum(param.grad.abs().double().square().sum().item() for param in params if param.grad is not None)
    return None if 0.8 * due <= fell <= 1.2 * due else f"<W, G> fell by {fell:.3g}, not by {due:.3g}"


def seconds_of_torch(workload: Workload) -> float:
    """Householder and an n² p product for tall matrices, an exponential with its derivative for square ones.

    The n x n base costs a QR once; that it may take ten times as long as a step is allowed is counted in.
    """

    def multiplications(n: int, p: int) -> float:
        return 60 * n**3 if n == p else max(6 * n**2 * p, n**3 / 5)

    return expected(multiplications, per_matrix=2e-4, per_parameter=MODULE_OVERHEAD)(workload)


def is_network(workload: Workload) -> bool:
    """Whether the parameters are convolution kernels of two dimensions."""
    return workload.view == "conv" and all(len(shape) == 4 for shape in workload.shapes)


PEERS: tuple[Method, ...] = (
    Method(GEOOPT, geoopt_sgd, checks.tangent_step, checks.retracts, requires="geoopt"),
    Method(POGO, pogo_sgd, checks.pogo_step, requires="pogo-torch"),
    Method(
        GEOTORCH,
        partial(parametrized, register=orthogonal_of_geotorch),
        seconds=expected(lambda n, p: 60 * n**3, per_matrix=2e-4, per_parameter=MODULE_OVERHEAD),
        requires="geotorch",
    ),
    Method(
        PER_KERNEL,
        partial(parametrized, register=orthogonal_of_geotorch, per_kernel=True),
        applies=is_network,
        requires="geotorch",
    ),
    Method(
        "torch parametrizations.orthogonal",
        partial(parametrized, register=orthogonal_of_torch),
        seconds=seconds_of_torch,
    ),
)
