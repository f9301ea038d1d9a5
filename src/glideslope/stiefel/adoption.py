"""Taking over models: weights under an orthogonal parametrization become plain marked ones; marks are taken away."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from glideslope.formulas.orthogonality import distance
from glideslope.stiefel.marks import Place, mark_, marks_of, places, qualified, unmark_
from glideslope.stiefel.selection import (
    ORTHOGONAL,
    Select,
    class_names,
    how_to_remove,
    natural_view,
    parametrizations_of,
    selected_places,
    weight_of_hook,
)
from glideslope.stiefel.views import as_matrices, matrix_shape


class Computed(NamedTuple):
    """A weight that a parametrization computes: where it is, its value and view, and what it is computed from."""

    place: Place
    value: Tensor
    view: str
    originals: tuple[int, ...]


def adopt_(model: nn.Module) -> list[str]:
    """Make weights under an orthogonal parametrization plain marked parameters of the same values; return their names.

    For `torch.nn.utils.parametrizations.orthogonal`, GeoTorch's `orthogonal` and `grassmannian`, and any other
    `parametrize` whose weight is orthonormal to rounding. Parametrizations of other kinds stay as they are. Weight
    norm, spectral norm and pruning are a ValueError with the line that removes them, and nothing is changed. The names
    in the state_dict are those of the plain model. The state of an optimizer is not taken over, because it belongs to
    other coordinates: make a new optimizer.

    Args:
        model: Any module.

    Examples:
        >>> model = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(8, 4))
        >>> gs.adopt_(model)
        ['weight']
    """
    refusals = [refusal for prefix, module in model.named_modules() for refusal in refused(prefix, module)]
    if refusals:
        raise ValueError("\n  ".join(("adopt_ cannot take these over, and changed nothing:", *refusals)))
    found = [one for prefix, module in model.named_modules() for one in computed_weights(prefix, module)]
    if not found:
        raise ValueError(
            f"adopt_: no weight of this {type(model).__name__} is computed by an orthogonal parametrization; "
            "gs.orthogonalize_(model) makes plain weights orthonormal"
        )
    first: dict[tuple[int, ...], Computed] = {}
    for one in found:
        tied = first.setdefault(one.originals, one)
        if not torch.equal(tied.value, one.value):
            raise ValueError(
                f"adopt_: '{tied.place.name}' and '{one.place.name}' are computed from one parameter, and are not "
                "equal; nothing was changed"
            )
    # All values are known by now: removing one of two tied parametrizations changes what the other computes.
    for one in found:
        make_plain_(one.place.module, one.place.local_name)
    for one in found:
        tied = first[one.originals]
        parameter = getattr(tied.place.module, tied.place.local_name)
        parameter.data, parameter.grad = tied.value, None
        setattr(one.place.module, one.place.local_name, parameter)
        mark_(one.place.module, one.place.local_name, one.view)
    return [one.place.name for one in found if first[one.originals] is one]


def release_(model: nn.Module, select: Select = None) -> list[str]:
    """Take marks away, so that the weights are trained without a constraint; return their names.

    Values stay as they are. An optimizer made before goes on as it was made.

    Args:
        model: A model after `orthogonalize_` or `adopt_`.
        select: None for all marks; otherwise as for `orthogonalize_`: module types, names or patterns, or a predicate.

    Examples:
        >>> model = torch.nn.Linear(8, 4)
        >>> names = gs.orthogonalize_(model)
        >>> gs.release_(model)
        ['weight']
    """
    everywhere = list(places(model))
    marked = {id(place.parameter) for place in everywhere if place.local_name in marks_of(place.module)}
    chosen = everywhere if select is None else [place for place, _ in selected_places(model, everywhere, select)]
    released = {id(place.parameter) for place in chosen} & marked
    if not released:
        which = "no parameter" if select is None else f"no parameter that select={select!r} chooses"
        raise ValueError(f"release_: {which} of this {type(model).__name__} is marked as orthonormal")
    names: dict[int, str] = {}
    for place in everywhere:
        if id(place.parameter) in released:
            names.setdefault(id(place.parameter), place.name)
            unmark_(place.module, place.local_name)
    return list(names.values())


def refused(prefix: str, module: nn.Module) -> list[str]:
    """Weights of a module that weight norm, spectral norm or pruning computes, each with the line that removes it."""
    hooked = [weight_of_hook(hook) for hook in module._forward_pre_hooks.values()]
    names = dict.fromkeys([*(name for name in hooked if isinstance(name, str)), *parametrizations_of(module)])
    lines = {name: how_to_remove(prefix, module, name) for name in names}
    return [f"'{qualified(prefix, name)}': {line} first" for name, line in lines.items() if line]


@torch.no_grad()
def computed_weights(prefix: str, module: nn.Module) -> list[Computed]:
    """The weights of a module itself that an orthogonal parametrization computes."""
    found = []
    for local_name, chain in parametrizations_of(module).items():
        originals = list(chain.parameters(recurse=False))
        if not originals:  # a parametrized buffer
            continue
        value = getattr(module, local_name).detach().clone(memory_format=torch.contiguous_format)
        place = Place(qualified(prefix, local_name), local_name, nn.Parameter(value, requires_grad=False), module)
        known = not class_names(chain[-1]).isdisjoint(ORTHOGONAL)
        view = view_of_value(place, value, known)
        if view is not None:
            found.append(Computed(place, value, view, tuple(map(id, originals))))
        elif known:
            raise ValueError(f"adopt_: '{place.name}' is not orthonormal under its {type(chain[-1]).__name__}")
    return found


def view_of_value(place: Place, value: Tensor, known: bool) -> str | None:
    """The first view in which a value is orthonormal: that of its layer, a batch of matrices, or a flattened kernel."""
    if not (value.is_floating_point() or value.is_complex()):
        return None
    exact = value.to(device="cpu", dtype=torch.complex128 if value.is_complex() else torch.float64)
    for view in dict.fromkeys((natural_view(place), "matrix", "conv")):
        try:
            shape = matrix_shape(value.shape, view or "matrix")
        except ValueError:
            continue
        rounding = 100 * torch.finfo(value.dtype).eps * shape[-1] ** 0.5
        # The maps of a known kind lose more digits, the exponential of a large matrix for one.
        if view and bool(distance(as_matrices(exact, view)).max() <= (max(rounding, 0.1) if known else rounding)):
            return view
    return None


def make_plain_(module: nn.Module, local_name: str) -> None:
    """Remove a parametrization, with the computed value in the parameter."""
    # Copies of the module have its class, and torch deletes the weight there: from here on it has one of its own.
    own = {name: value for name, value in vars(type(module)).items() if name not in ("__dict__", "__weakref__")}
    module.__class__ = type(type(module).__name__, type(module).__bases__, own)
    parametrize.remove_parametrizations(module, local_name)
