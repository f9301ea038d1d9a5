"""Groups of an optimizer from whatever it is given: a module, bare or named parameters, or groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from glideslope.stiefel.marks import Mark, named, views_of
from glideslope.stiefel.models import add_to_group, param_groups

Group = dict[str, Any]


def divided(given: Any, *, by_marks: bool = False) -> tuple[Any, bool]:
    """Groups that say whether they are constrained, and whether the marks of a model decided it.

    A module with marks means its `param_groups`, one without marks its parameters. A group with neither `orthogonal`
    nor `view` is divided by the marks that `orthogonalize_` left: one group per view and scale and one of the free
    parameters, in the order of their first parameters, as `param_groups` has them. If no parameter of these groups is
    marked, all are constrained.

    Args:
        given: What an optimizer was given. What is none of the above is returned as it is: torch says what is wrong.
        by_marks: Whether parameters without a mark are free even if none of them has one.
    """
    if isinstance(given, nn.Module):
        if any(one.mark for one in named(given)):
            return param_groups(given), True
        given = given.named_parameters()
    if isinstance(given, Tensor) or not isinstance(given, Iterable):
        return given, by_marks
    entries = list(given)
    dicts = [entry for entry in entries if isinstance(entry, dict)]
    if not entries or 0 < len(dicts) < len(entries) or any("params" not in group for group in dicts):
        return entries, by_marks
    groups: list[Group] = [dict(group) for group in dicts] or [{"params": entries}]  # not the caller's own
    undecided = [group for group in groups if is_undecided(group)]
    for group in undecided:
        group["params"] = [group["params"]] if isinstance(group["params"], Tensor) else list(group["params"])
    views = views_of(tensor for group in undecided for tensor in map(tensor_of, group["params"]))
    if not views and not by_marks:
        for group in undecided:
            group["orthogonal"] = True
        return groups, False
    return [part for group in groups for part in (parts(group, views) if is_undecided(group) else [group])], True


def is_undecided(group: Group) -> bool:
    """Whether a group leaves it to the marks what is constrained. (Sets have no order, and torch refuses them.)"""
    return "orthogonal" not in group and "view" not in group and not isinstance(group["params"], set)


def parts(group: Group, views: dict[int, Mark]) -> list[Group]:
    """A group divided by the marks of its parameters, None being free; each part has all of its options."""
    options = {key: value for key, value in group.items() if key not in ("params", "param_names")}
    entries = group["params"]
    if "param_names" in group:
        entries = list(zip(group["param_names"], entries, strict=True))
    if not entries:  # some trainers have such groups, and count them
        return [{**group, "orthogonal": False}]
    divided_group: list[Group] = []
    for entry in entries:
        add_to_group(divided_group, entry, views.get(id(tensor_of(entry))), options)
    return divided_group


def tensor_of(entry: Any) -> Any:
    """The parameter of an entry of a group, which may be a pair (name, parameter)."""
    return entry[1] if isinstance(entry, tuple) and len(entry) == 2 else entry


def not_matrices(param: Tensor, line: str) -> str:
    """Why a constrained parameter of other than 2 or 3 dimensions is refused, and what to write, to end a sentence.

    Args:
        param: The parameter.
        line: How to make the optimizer from a model.
    """
    if param.ndim < 2:
        return (
            "is not a matrix, and no parameter given with it is marked as orthonormal. To constrain the weights of a "
            f"model and leave its other parameters free: gs.orthogonalize_(model), then {line}. Otherwise give "
            'the group of this one "orthogonal": False'
        )
    return (
        'is not a matrix or a batch of matrices; give its group view="conv" to constrain it flattened to '
        f"{param.shape[0]} x (rest), another view, or orthogonal=False. For a model: gs.orthogonalize_(model), then "
        f"{line}"
    )
