"""The workloads of the benchmark, and their points and gradients: the same ones for every method."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

import torch
from torch import Tensor

from glideslope.cli import workloads
from glideslope.stiefel.views import as_matrices, matrix_shape

COMPLEX_OF = {torch.float32: torch.complex64, torch.float64: torch.complex128}
# Beyond this many multiplications the references are computed in the type of the points, not in double precision.
DOUBLE_UP_TO = 2e10


@dataclass(frozen=True)
class Workload(workloads.Workload):
    """Parameters that take a step together.

    Args:
        name: What the table and `--only` call it.
        shapes: Shapes of the parameters.
        view: How they are read as matrices.
        family: "single", "list", "batched", "network", or "growth": measured for the fitted exponents only.
        is_complex: Whether they are complex.
    """

    family: str = "single"
    is_complex: bool = False

    def matrices(self) -> Counter[tuple[int, int]]:
        """{(n, p): how many matrices of that shape}."""
        count: Counter[tuple[int, int]] = Counter()
        for shape in self.shapes:
            *batch, n, p = matrix_shape(shape, self.view)
            count[n, p] += math.prod(batch)
        return count


def single(n: int, p: int, family: str = "single") -> Workload:
    """One n x p matrix."""
    return Workload(f"{n} x {p}", ((n, p),), family=family)


def many(count: int, n: int, p: int) -> tuple[Workload, Workload]:
    """Separate parameters of one shape, and the same as one batched tensor."""
    return (
        Workload(f"{count} of {n} x {p}", ((n, p),) * count, family="list"),
        Workload(f"batch of {count} x {n} x {p}", ((count, n, p),), family="batched"),
    )


def resnet18_kernels() -> tuple[tuple[int, ...], ...]:
    """Shapes of the 20 convolution kernels of ResNet18, shortcuts included."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7)]
    for width, before in ((64, 64), (128, 64), (256, 128), (512, 256)):
        shapes += [(width, before, 3, 3), *[(width, width, 3, 3)] * 3]
        shapes += [(width, before, 1, 1)] if before != width else []
    return tuple(shapes)


SMALL = (many(1000, 3, 3), many(1000, 16, 16), many(1000, 32, 32), many(218, 768, 16))
SINGLE = ((5000, 100), (5000, 200), (5000, 500), (5000, 1000), (1000, 1000), (4096, 4096), (4608, 512), (30000, 50))
WORKLOADS: tuple[Workload, ...] = (
    *(single(n, p) for n, p in SINGLE),
    *(separate for separate, _ in SMALL),
    *(together for _, together in SMALL),
    Workload("ResNet18 kernels", resnet18_kernels(), view="conv", family="network"),
    Workload("complex 500 of 64 x 64", ((64, 64),) * 500, family="list", is_complex=True),
    *(single(n, 64, "growth") for n in (1000, 3000, 10000, 30000)),
)
# In this order, cheap ones first: on a busy machine the time may be up before the last.
QUICK = (
    "1000 x 64",
    "3000 x 64",
    "10000 x 64",
    "5000 x 100",
    "1000 of 16 x 16",
    "batch of 1000 x 32 x 32",
    "218 of 768 x 16",
    "complex 500 of 64 x 64",
)


def select(known: Sequence[Workload], patterns: Sequence[str], *, quick: bool) -> list[Workload]:
    """The workloads whose name matches a pattern; without patterns all, or the quick ones.

    A pattern is a glob; "batch*" and "5000 x *" select several.
    """
    if not patterns and quick:
        return sorted((one for one in known if one.name in QUICK), key=lambda one: QUICK.index(one.name))
    if not patterns:
        return list(known)
    for pattern in patterns:
        if not any(fnmatchcase(one.name, pattern) for one in known):
            names = ", ".join(repr(one.name) for one in known)
            raise ValueError(f"--only: {pattern!r} matches no workload; there are {names}")
    return [one for one in known if any(fnmatchcase(one.name, pattern) for pattern in patterns)]


Reference = Callable[["Case", float], list[Tensor]]


class Case(workloads.Case):
    """Points and gradients of a workload, with what the results of methods are compared with."""

    def __init__(self, workload: Workload, *, dtype: torch.dtype, device: str) -> None:
        super().__init__(workload, dtype=COMPLEX_OF[dtype] if workload.is_complex else dtype, device=device)
        self.workload = workload
        self._references: dict[tuple[Reference, float], list[Tensor]] = {}

    @property
    def wide(self) -> torch.dtype:
        """The type norms are taken in."""
        return torch.float32 if self.dtype == torch.bfloat16 else self.dtype

    @property
    def entries(self) -> int:
        """Entries of the largest matrix."""
        return max(n * p for n, p in self.workload.matrices())

    def tall(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Parameters as (n, p) or (batch, n, p) with n >= p, in their own memory where that is possible."""
        return [as_matrices(tensor, self.view) for tensor in tensors]

    @cached_property
    def tall_gradients(self) -> list[Tensor]:
        """The gradients as peers get them: tall and contiguous."""
        return [G.contiguous() for G in self.tall(self.gradients)]

    def exact(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Tall matrices in the type of the references, equal shapes stacked."""
        work = sum(count * n * p * p for (n, p), count in self.workload.matrices().items())
        double = torch.complex128 if self.dtype.is_complex else torch.float64
        kind = double if work <= DOUBLE_UP_TO else self.wide
        alike: dict[torch.Size, list[Tensor]] = {}
        for matrix in tensors:
            alike.setdefault(matrix.shape, []).append(matrix.detach().to(kind))
        return [torch.stack(group) for group in alike.values()]

    @cached_property
    def start(self) -> list[Tensor]:
        """X of the references."""
        return self.exact(self.tall(self.points))

    @cached_property
    def slope(self) -> list[Tensor]:
        """G of the references."""
        return self.exact(self.tall(self.gradients))

    def expected(self, reference: Reference, lr: float) -> list[Tensor]:
        """reference(self, lr), computed once."""
        if (reference, lr) not in self._references:
            self._references[reference, lr] = reference(self, lr)
        return self._references[reference, lr]

    def forget_references(self) -> None:
        """Free the memory of the references."""
        self._references.clear()
        for name in ("start", "slope"):
            self.__dict__.pop(name, None)
