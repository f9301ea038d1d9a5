"""The methods of `glideslope bench steps`: the bare products, our optimizers, torch's own, and the peers.

A method is built on a case, takes one step that is checked, and is then timed with a learning rate so small that its
point stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glideslope.cli.bench import checks
from glideslope.cli.bench.workloads import Case, Reference, Workload
from glideslope.optim import LandingAdam, LandingSGD, RiemannianSGD, attach_landing

# Multiplications a second that a step is expected to reach; decides only what is too slow to try.
EXPECTED_SPEED = 2e10
STACK_PRODUCTS_UP_TO = 32_768  # entries of a matrix; the bare products of smaller ones are batched
LANDING = "LandingSGD"
FOUR_PRODUCTS, THREE_PRODUCTS = "four products", "three products"
GEOOPT, POGO = "geoopt RiemannianSGD (QR)", "pogo-torch POGO"


@dataclass
class Running:
    """A method on a case.

    Args:
        step: Take one step.
        points: The matrices now, tall.
        set_lr: Change the learning rate.
        observe: For methods without a literal definition: the check of the step just taken.
    """

    step: Callable[[], object]
    points: Callable[[], list[Tensor]]
    set_lr: Callable[[float], None] = lambda lr: None
    observe: Callable[[float], str | None] = lambda lr: None


def nothing(workload: Workload) -> float:
    """Seconds expected of a step of a method that is never left out."""
    return 0.0


@dataclass(frozen=True)
class Method:
    """How a method is built, checked and left out.

    Args:
        name: What the table calls it.
        build: Makes it on a case, with a learning rate.
        reference: X after its first step, or before its retraction.
        check: How the result is compared with the reference.
        per_entry: Whether lr is the size of one entry's update, as in Adam, and not of a whole matrix's.
        applies: The workloads it is for.
        seconds: Expected seconds of a step; above the limit it is skipped.
        requires: (distribution, module) of the peer it needs.
    """

    name: str
    build: Callable[[Case, float], Running]
    reference: Reference | None = None
    check: Callable[[Case, list[Tensor], list[Tensor]], str | None] = checks.equals
    per_entry: bool = False
    applies: Callable[[Workload], bool] = lambda workload: True
    seconds: Callable[[Workload], float] = nothing
    requires: tuple[str, str] | None = None

    def checked_lr(self, case: Case) -> float:
        """Learning rate of the checked step."""
        return checks.movement(case.dtype) / (case.entries**0.5 if self.per_entry else 1)

    def complaint(self, case: Case, running: Running, lr: float) -> str | None:
        """What is wrong with the step just taken, or None."""
        problem = running.observe(lr)
        if problem is None and self.reference is not None:
            problem = self.check(case, running.points(), case.expected(self.reference, lr))
        return problem


def floor_of(workload: Workload) -> str:
    """The bare products that the field of this workload consists of."""
    return THREE_PRODUCTS if workload.square else FOUR_PRODUCTS


def expected(
    multiplications: Callable[[int, int], float], *, per_matrix: float = 0.0, per_parameter: float = 0.0
) -> Callable[[Workload], float]:
    """Seconds of a step with so many multiplications per n x p matrix, and what comes on top of them."""

    def seconds(workload: Workload) -> float:
        shapes = workload.matrices()
        work = sum(count * multiplications(n, p) for (n, p), count in shapes.items())
        overhead = per_matrix * sum(shapes.values()) + per_parameter * len(workload.shapes)
        return work * (4 if workload.is_complex else 1) / EXPECTED_SPEED + overhead

    return seconds


def bare_products(case: Case, lr: float, *, square: bool) -> Running:
    """X^H X, X^H G, X K and G K into memory of their own; square: X X^H, G X^H and K X."""
    alike: dict[tuple[Any, ...], list[int]] = {}
    points, gradients = case.tall(case.points), case.tall(case.gradients)
    for i, X in enumerate(points):
        alone = X.ndim == 3 or X.numel() > STACK_PRODUCTS_UP_TO
        alike.setdefault((X.shape, X.stride(), i if alone else None), []).append(i)
    stacks = [
        [torch.stack([list_[i] for i in places]) if len(places) > 1 else list_[places[0]] for places in alike.values()]
        for list_ in (points, gradients)
    ]
    size = slice(0, -1) if square else slice(1, None)  # n x n or p x p
    small = [[X.new_empty((*X.shape[:-2], *[X.shape[-2:][size][0]] * 2)) for X in stacks[0]] for _ in range(2)]
    results = [torch.empty_like(X) for X in stacks[0]]

    def step() -> None:
        for X, G, S, C, F in zip(*stacks, *small, results, strict=True):
            if square:
                torch.matmul(X, X.mH, out=S)
                torch.matmul(G, X.mH, out=C)
                torch.matmul(C, X, out=F)
                continue
            torch.matmul(X.mH, X, out=S)
            torch.matmul(X.mH, G, out=C)
            torch.matmul(X, C, out=F)
            if F.ndim == 2:
                F.addmm_(G, S)
            else:
                F.baddbmm_(G, S)

    def matrices() -> list[Tensor]:
        found: list[Tensor] = [torch.empty(())] * len(points)
        for places, F in zip(alike.values(), results, strict=True):
            for i, matrix in zip(places, F if len(places) > 1 else [F], strict=True):
                found[i] = matrix
        return found

    return Running(step, matrices)


def optimizer_on(case: Case, make: Callable[[list[Tensor]], torch.optim.Optimizer]) -> Running:
    """An optimizer on parameters at X whose gradients are G."""
    params: list[Tensor] = [torch.nn.Parameter(X.clone()) for X in case.points]
    for param, G in zip(params, case.gradients, strict=True):
        param.grad = G
    return running(make(params), lambda: case.tall([param.detach() for param in params]))


def running(optimizer: torch.optim.Optimizer, points: Callable[[], list[Tensor]]) -> Running:
    """A built optimizer as a method that runs."""

    def set_lr(lr: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = lr

    return Running(optimizer.step, points, set_lr)


def ours(kind: Callable[..., torch.optim.Optimizer], **options: Any) -> Callable[[Case, float], Running]:
    """Build one of our optimizers."""

    def build(case: Case, lr: float) -> Running:
        return optimizer_on(case, lambda params: kind([{"params": params, "view": case.view}], lr=lr, **options))

    return build


def attached(case: Case, lr: float) -> Running:
    """torch.optim.AdamW with landing attached."""

    def make(params: list[Tensor]) -> torch.optim.Optimizer:
        return attach_landing(torch.optim.AdamW(params, lr=lr), [{"params": params, "view": case.view}])

    return optimizer_on(case, make)


def of_torch(kind: Callable[..., torch.optim.Optimizer]) -> Callable[[Case, float], Running]:
    """Build one of torch's optimizers with its defaults."""
    return lambda case, lr: optimizer_on(case, lambda params: kind(params, lr=lr))


def riemannian(retraction: str, seconds: Callable[[Workload], float] = nothing) -> Method:
    """RiemannianSGD with a retraction."""
    build = ours(RiemannianSGD, retraction=retraction)
    return Method(f"RiemannianSGD {retraction}", build, checks.canonical_step, checks.retracts, seconds=seconds)


OWN: tuple[Method, ...] = (
    Method(FOUR_PRODUCTS, partial(bare_products, square=False), checks.four_products),
    Method(
        THREE_PRODUCTS,
        partial(bare_products, square=True),
        checks.three_products,
        applies=lambda workload: workload.square,
    ),
    Method(LANDING, ours(LandingSGD), checks.landing_step),
    Method(f"{LANDING} momentum", ours(LandingSGD, momentum=0.9), checks.landing_step),
    Method(f"{LANDING} newton-schulz", ours(LandingSGD, normal_step="newton-schulz"), checks.newton_schulz_step),
    Method(f"{LANDING} polar", ours(LandingSGD, normal_step="polar"), checks.canonical_step, checks.retracts),
    Method("LandingAdam", ours(LandingAdam), checks.landing_adam_step, per_entry=True),
    Method("attach_landing(AdamW)", attached, checks.attached_step, per_entry=True),
    riemannian("qr"),
    riemannian("polar", expected(lambda n, p: 4 * n * p**2 + 20 * p**3, per_matrix=5e-4)),
    riemannian("cayley", expected(lambda n, p: 8 * n * p**2 + 3 * p**3, per_matrix=2e-4)),
    riemannian("exponential", expected(lambda n, p: 8 * n * p**2 + 160 * p**3, per_matrix=3e-4)),
    Method("torch SGD", of_torch(torch.optim.SGD), checks.euclidean_step),
    Method("torch AdamW", of_torch(torch.optim.AdamW), checks.adamw_step, per_entry=True),
)
