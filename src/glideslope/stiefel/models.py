"""Models: choose weights, make them orthonormal and mark them, hand them to an optimizer, make them exact again."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from glideslope.ranks.dtensors import is_sharded
from glideslope.stiefel.marks import Mark, mark_, marked, matching, named
from glideslope.stiefel.scales import Scale, check_scale, fixed_scale
from glideslope.stiefel.selection import Select, select_weights
from glideslope.stiefel.sharding import project_sharded_, projected
from glideslope.stiefel.views import as_matrices, copy_matrices_

RESERVED = ("params", "orthogonal", "view")


def orthogonalize_(model: nn.Module, select: Select = None, *, scale: Scale = 1.0) -> list[str]:
    """Make weights of the model orthonormal in place, mark them as constrained, and return their names.

    Each becomes the nearest orthonormal one, computed in float64 and rounded once. Parameters stay plain ones in their
    own storage. A tied weight is taken once, under its first name. If any chosen weight cannot be orthonormal, a
    ValueError says which and why, and nothing is changed.

    Args:
        model: Any module.
        select: None for the weights of all linear, convolution and attention layers. Module types: the weights of the
            modules of these types and of the linear, convolution and attention layers in them; of recurrent modules
            the recurrent weights. Names or patterns ("layer*.weight") of parameters. A predicate
            (name, parameter, module) that returns True, or the view to read the parameter with.
        scale: The weights become σ times orthonormal ones: σ a number; "modular", sqrt(out/in) of each matrix; or
            "free", ‖X‖_F/√p as it is. The mark keeps it, for `param_groups`, `project_` and `orthogonality`.

    Examples:
        >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 2))
        >>> gs.orthogonalize_(model, ["0.weight"])
        ['0.weight']
    """
    check_scale(scale)
    chosen = select_weights(model, select)
    for place, view in chosen:
        project_parameter_(place.parameter, Mark(view, scale))
        mark_(place.module, place.local_name, view, scale)
    return [place.name for place, _ in chosen]


def project_(model: nn.Module) -> list[str]:
    """Replace every marked weight by the nearest orthonormal one, computed in float64 and rounded once.

    With a scale in its mark, by σ times that one. In place; returns the names. For the end of training, before
    evaluation or export.

    Examples:
        >>> model = torch.nn.Linear(8, 4)
        >>> names = gs.orthogonalize_(model)
        >>> gs.project_(model)
        ['weight']
        >>> gs.orthogonality(model).largest_distance < 1e-5
        True
    """
    found = marked(model, "project_")
    for name, parameter, mark in found:
        try:
            project_parameter_(parameter, mark)
        except ValueError as error:
            raise ValueError(f"project_: '{name}': {error}") from error
    return [name for name, _, _ in found]


@torch.no_grad()
def project_parameter_(parameter: Tensor, mark: Mark) -> None:
    """Replace one parameter by the nearest orthonormal one times its scale, in its own storage."""
    view, scale = mark
    sigma = fixed_scale(scale, tuple(parameter.shape), view)
    if is_sharded(parameter):
        project_sharded_(parameter, view, sigma)
    else:
        copy_matrices_(parameter, projected(as_matrices(parameter, view), sigma), view)


def param_groups(
    model: nn.Module, patterns: Mapping[str, Mapping[str, Any]] | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer: the marked parameters, one group per view and scale, and the free ones.

    A group is {"params": [(name, parameter), ...], "orthogonal": True, "view": view, **options}, with a "scale" where
    the marks have one; that of the free parameters has "orthogonal": False and no view. Parameters that need no
    gradient are left out.

    Args:
        model: Any module. Without marks all its parameters are free, and a UserWarning says so.
        patterns: {pattern: {option: value}} for the parameters whose name the pattern matches; later ones win.
        **options: Options of all groups, e.g. lr.

    Examples:
        >>> model = torch.nn.Linear(8, 4)
        >>> names = gs.orthogonalize_(model)
        >>> [group["orthogonal"] for group in gs.param_groups(model)]
        [True, False]
    """
    parameters = named(model)
    names = [name for one in parameters for name in one.all_names]
    overrides = [(set(matching(key, names, "param_groups")), values) for key, values in (patterns or {}).items()]
    groups: list[dict[str, Any]] = []
    for one in parameters:
        if not one.parameter.requires_grad:
            continue
        chosen = dict(options)
        for matched, values in overrides:
            if not matched.isdisjoint(one.all_names):
                chosen.update(values)
        add_to_group(groups, (one.name, one.parameter), one.mark, chosen)
    if groups and not any(one.view for one in parameters):
        warnings.warn(
            f"param_groups: no parameter of this {type(model).__name__} is marked as orthonormal, so that all are "
            "trained without a constraint; call gs.orthogonalize_(model) first, or use model.parameters()",
            UserWarning,
            stacklevel=2,
        )
    return groups


def add_to_group(
    groups: list[dict[str, Any]], entry: tuple[str, nn.Parameter] | Tensor, mark: Mark | None, options: dict[str, Any]
) -> None:
    """Append the entry to the group of this mark and these options, which is made if there is none."""
    reserved = [key for key in RESERVED if key in options]
    if reserved:
        raise ValueError(f"param_groups sets {reserved[0]!r} from the marks of the model; it cannot be an option")
    keys: dict[str, Any] = {"orthogonal": False} if mark is None else {"orthogonal": True, "view": mark.view}
    if mark is not None and mark.scale != 1:
        keys["scale"] = mark.scale
    wanted = {**keys, **options}
    for group in groups:
        if same_options({key: value for key, value in group.items() if key != "params"}, wanted):
            group["params"].append(entry)
            return
    groups.append({"params": [entry], **wanted})


def same_options(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """Whether two groups have the same options; tensors are the same only if they are one object."""
    if first.keys() != second.keys():
        return False
    return all(
        value is second[key]
        or (not isinstance(value, Tensor) and not isinstance(second[key], Tensor) and bool(value == second[key]))
        for key, value in first.items()
    )
