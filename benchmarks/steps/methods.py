"""The methods of the benchmark: the bare products, our optimizers, torch's own, and the peers.

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

from benchmarks.steps import checks
from benchmarks.steps.workloads import Case, Reference, Workload
from glideslope.cli.workloads import OPTIMIZERS, Make, bare_products, ours
from glideslope.optim import LandingSGD, RiemannianSGD

# Multiplications a second that a step is expected to reach; decides only what is too slow to try.
EXPECTED_SPEED = 2e10
LANDING, NEWTON_SCHULZ, QR, ADAMW = "LandingSGD", "LandingSGD newton-schulz", "RiemannianSGD qr", "torch AdamW"
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
        requires: Distribution of the peer it needs.
    """

    name: str
    build: Callable[[Case, float], Running]
    reference: Reference | None = None
    check: Callable[[Case, list[Tensor], list[Tensor]], str | None] = checks.equals
    per_entry: bool = False
    applies: Callable[[Workload], bool] = lambda workload: True
    seconds: Callable[[Workload], float] = nothing
    requires: str | None = None

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
    """Seconds of a step from its multiplications per n x p matrix, and what comes on top of them."""

    def seconds(workload: Workload) -> float:
        shapes = workload.matrices()
        work = sum(count * multiplications(n, p) for (n, p), count in shapes.items())
        overhead = per_matrix * sum(shapes.values()) + per_parameter * len(workload.shapes)
        return work * (4 if workload.is_complex else 1) / EXPECTED_SPEED + overhead

    return seconds


def products(case: Case, lr: float, *, square: bool) -> Running:
    """The bare products as a method; they have no learning rate."""
    step, results = bare_products(case, square=square)
    return Running(step, lambda: results)


def built(make: Make) -> Callable[[Case, float], Running]:
    """An optimizer on parameters at X whose gradients are G."""

    def build(case: Case, lr: float) -> Running:
        params = case.parameters()
        return running(make(params, case.view, lr), lambda: case.tall([param.detach() for param in params]))

    return build


def running(optimizer: torch.optim.Optimizer, points: Callable[[], list[Tensor]]) -> Running:
    """A built optimizer as a method that runs."""

    def set_lr(lr: float) -> None:
        for group in optimizer.param_groups:
            group["lr"] = lr

    return Running(optimizer.step, points, set_lr)


def riemannian(retraction: str, seconds: Callable[[Workload], float]) -> Method:
    """RiemannianSGD with a retraction."""
    build = built(ours(RiemannianSGD, retraction=retraction))
    return Method(f"RiemannianSGD {retraction}", build, checks.tangent_step, checks.retracts, seconds=seconds)


def known(name: str, reference: Reference, **settings: Any) -> Method:
    """One of the optimizers of `glideslope bench`."""
    return Method(name, built(OPTIMIZERS[name]), reference, **settings)


OWN: tuple[Method, ...] = (
    Method(FOUR_PRODUCTS, partial(products, square=False), checks.four_products),
    Method(
        THREE_PRODUCTS, partial(products, square=True), checks.three_products, applies=lambda workload: workload.square
    ),
    known(LANDING, checks.landing_step),
    known("LandingSGD momentum", checks.landing_step),
    known(NEWTON_SCHULZ, checks.newton_schulz_step),
    Method("LandingSGD polar", built(ours(LandingSGD, normal_step="polar")), checks.tangent_step, checks.retracts),
    known("LandingAdam", checks.landing_adam_step, per_entry=True),
    known("attach_landing(AdamW)", checks.attached_step, per_entry=True),
    known(QR, checks.tangent_step, check=checks.retracts),
    riemannian("polar", expected(lambda n, p: 4 * n * p**2 + 20 * p**3, per_matrix=5e-4)),
    riemannian("cayley", expected(lambda n, p: 8 * n * p**2 + 3 * p**3, per_matrix=2e-4)),
    riemannian("exponential", expected(lambda n, p: 8 * n * p**2 + 160 * p**3, per_matrix=3e-4)),
    known("torch SGD", checks.euclidean_step),
    known(ADAMW, checks.adamw_step, per_entry=True),
)
