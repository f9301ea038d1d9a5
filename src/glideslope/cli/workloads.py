"""The steps `glideslope bench` takes: parameters with gradients, the bare products of their field, and optimizers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, AdamW, Optimizer

from glideslope.optim import LandingAdam, LandingSGD, RiemannianSGD, attach_landing
from glideslope.stiefel.points import random_stiefel
from glideslope.stiefel.views import as_matrices, copy_matrices_, matrix_shape

Make = Callable[[list[Tensor], str, float], Optimizer]
STACK_UP_TO = 32_768  # entries of a matrix; the bare products of many smaller ones are batched


@dataclass(frozen=True)
class Workload:
    """Parameters that take a step together: their shapes, and how they are read as matrices."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    view: str = "matrix"

    @property
    def square(self) -> bool:
        """Whether every matrix is square, so that the field has a form of three products."""
        return all(n == p for *_, n, p in (matrix_shape(shape, self.view) for shape in self.shapes))


WORKLOADS = (
    Workload("5000 x 100", ((5000, 100),)),
    Workload("5000 x 500", ((5000, 500),)),
    Workload("1000 x 1000", ((1000, 1000),)),
    Workload("1000 of 16 x 16", ((16, 16),) * 1000),
    Workload("batch of 1000 x 32 x 32", ((1000, 32, 32),)),
    Workload("10 kernels of 256 x 128 x 3 x 3", ((256, 128, 3, 3),) * 10, view="conv"),
)


class Case:
    """A workload with its points X, orthonormal, and gradients G of norm one per matrix."""

    def __init__(self, workload: Workload, *, dtype: torch.dtype, device: str) -> None:
        self.view, self.dtype, self.device = workload.view, dtype, torch.device(device)
        self.points, self.gradients = list[Tensor](), list[Tensor]()
        generator = torch.Generator(self.device).manual_seed(0)
        for shape in workload.shapes:
            *batch, n, p = matrix_shape(shape, self.view)
            X = random_stiefel(n, p, batch=batch, generator=generator, dtype=dtype)
            G = torch.randn(X.shape, generator=generator, dtype=dtype, device=self.device)
            G /= torch.linalg.vector_norm(G, dim=(-2, -1), keepdim=True)
            self.points.append(copy_matrices_(X.new_empty(shape), X, self.view))
            self.gradients.append(copy_matrices_(X.new_empty(shape), G, self.view))

    def parameters(self) -> list[Tensor]:
        """New parameters at X whose gradients are G."""
        params: list[Tensor] = [torch.nn.Parameter(X.clone()) for X in self.points]
        for param, G in zip(params, self.gradients, strict=True):
            param.grad = G
        return params


def bare_products(case: Case, *, square: bool) -> tuple[Callable[[], None], list[Tensor]]:
    """A call that computes X (X^H G) + G (X^H X), or X X^H and (G X^H) X if square; and where its results are."""
    points, gradients = ([as_matrices(M, case.view) for M in tensors] for tensors in (case.points, case.gradients))
    if len(points) > 1 and len({X.shape for X in points}) == 1 and points[0].numel() <= STACK_UP_TO:
        points, gradients = [torch.stack(points)], [torch.stack(gradients)]
    small = [X.new_empty(2, *X.shape[:-2], *[X.shape[-2 if square else -1]] * 2) for X in points]
    results = [torch.empty_like(X) for X in points]

    def step() -> None:
        for X, G, (S, C), F in zip(points, gradients, small, results, strict=True):
            if square:
                torch.matmul(X, X.mH, out=S)
                torch.matmul(G, X.mH, out=C)
                torch.matmul(C, X, out=F)
            else:
                torch.matmul(X.mH, X, out=S)
                torch.matmul(X.mH, G, out=C)
                torch.matmul(X, C, out=F)
                (F.addmm_ if F.ndim == 2 else F.baddbmm_)(G, S)

    return step, results


def ours(kind: Callable[..., Optimizer], **options: Any) -> Make:
    """Make one of our optimizers from parameters, their view and a learning rate."""
    return lambda params, view, lr: kind([{"params": params, "view": view}], lr=lr, **options)


OPTIMIZERS: dict[str, Make] = {
    "LandingSGD": ours(LandingSGD),
    "LandingSGD momentum": ours(LandingSGD, momentum=0.9),
    "LandingSGD newton-schulz": ours(LandingSGD, normal_step="newton-schulz"),
    "LandingAdam": ours(LandingAdam),
    "attach_landing(AdamW)": ours(lambda groups, lr: attach_landing(AdamW(groups[0]["params"], lr=lr), groups)),
    "RiemannianSGD qr": ours(RiemannianSGD, retraction="qr"),
    "torch SGD": lambda params, view, lr: SGD(params, lr=lr),
    "torch AdamW": lambda params, view, lr: AdamW(params, lr=lr),
}
