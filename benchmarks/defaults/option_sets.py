"""The option sets that are compared, and the optimizers they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

import glideslope as gs
from glideslope.optim.base import StiefelOptimizer
from glideslope.stiefel.views import matrix_shape

# Keeps 1 / (2 attraction), where a landing step ends, from being rounded to less than the step that is asked for.
BELOW_THE_LIMIT = 1 - 1e-5


@dataclass(frozen=True)
class OptionSet:
    """Options of an optimizer; with a `pull`, the attraction follows lr so that every step contains that pull.

    A pull of ½ is one whole Newton-Schulz step at the point where the step starts.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    pull: float | None = None
    optimizers: tuple[str, ...] = ("sgd", "adam")

    def optimizer(self, kind: str, model: nn.Module, lr: float, **shared: Any) -> StiefelOptimizer:
        """An optimizer of kind "sgd" or "adam" for a model with marked weights, in one group per number of rows."""
        classes: dict[str, Callable[..., StiefelOptimizer]] = {
            "sgd": gs.LandingSGD,
            "adam": gs.LandingAdam,
            "riemannian": gs.RiemannianSGD,
        }
        made = classes["riemannian" if "retraction" in self.options else kind]
        return made(groups_by_rows(model), lr=lr, **shared, **self.options)

    def follow_learning_rate(self, kind: str, optimizer: StiefelOptimizer) -> None:
        """Set the attraction of every group to pull / (step size along the field); to be called before a step."""
        if self.pull is None:
            return
        for group in optimizer.param_groups:
            if group["orthogonal"]:
                rows = rows_of(group["params"][0], group["view"])
                step_size = group["lr"] * (rows**0.5 if kind == "adam" else 1)
                group["attraction"] = self.pull * BELOW_THE_LIMIT / step_size


def rows_of(parameter: nn.Parameter, view: str) -> int:
    """The number of rows n of the n x p matrices of a parameter."""
    return matrix_shape(parameter.shape, view)[-2]


def groups_by_rows(model: nn.Module) -> list[dict[str, Any]]:
    """`gs.param_groups`, with the constrained groups split by the number of rows of their matrices."""
    groups: list[dict[str, Any]] = []
    for group in gs.param_groups(model):
        parts: dict[int, list[tuple[str, nn.Parameter]]] = {}
        for name, parameter in group["params"]:
            rows = rows_of(parameter, group["view"]) if group["orthogonal"] else 0
            parts.setdefault(rows, []).append((name, parameter))
        groups += [group | {"params": part} for part in parts.values()]
    return groups


EUCLIDEAN = {"metric": "euclidean"}
OPTION_SETS = (
    OptionSet("landing canonical", {"metric": "canonical", "normal_step": "landing", "attraction": 1.0}),
    OptionSet("landing euclidean", EUCLIDEAN | {"normal_step": "landing", "attraction": 1.0}),
    OptionSet("landing euclidean, pull 1/2", EUCLIDEAN | {"normal_step": "landing"}, pull=0.5),
    OptionSet("landing euclidean, pull 1/4", EUCLIDEAN | {"normal_step": "landing"}, pull=0.25),
    OptionSet("newton-schulz canonical", {"metric": "canonical", "normal_step": "newton-schulz"}),
    OptionSet("newton-schulz euclidean", EUCLIDEAN | {"normal_step": "newton-schulz"}),
    OptionSet("polar euclidean", EUCLIDEAN | {"normal_step": "polar"}),
    OptionSet(
        "landing euclidean, exact safeguard",
        EUCLIDEAN | {"normal_step": "landing", "attraction": 1.0, "safeguard": "exact"},
        optimizers=("adam",),
    ),
    OptionSet("RiemannianSGD qr euclidean", EUCLIDEAN | {"retraction": "qr"}, optimizers=("sgd",)),
)
