"""Marks: which parameters of a model are constrained, kept on the modules that own them.

A mark is the attribute `_glideslope_views` of a module, {parameter name: view}, and where the scale is not 1 also
`_glideslope_scales`, {parameter name: scale in words}. It is no attribute of the parameter, because deepcopy and pickle
drop those; on the module it also survives torch.jit.script. Optimizers are often given bare
parameters: `views_of` finds their marks through the modules that are alive, and keeps none of them alive.
"""

from __future__ import annotations

import difflib
import fnmatch
import gc
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from glideslope.stiefel.scales import Scale

MARK = "_glideslope_views"
SCALE_MARK = "_glideslope_scales"
# Marked modules by id. Modules, not parameters: FSDP2 and some conversions replace the parameters of a module.
_seen: weakref.WeakValueDictionary[int, nn.Module] = weakref.WeakValueDictionary()


class Marks(dict[str, str]):
    """{parameter name: view or scale} of a module. Remembers that there may be copies, which were never seen here.

    Pickled as an OrderedDict, so that a model can be loaded without this package and by torch's restricted unpickler.
    """

    copied = False
    """Whether a module with marks was copied or pickled since all live modules were last looked through."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Marks:
        Marks.copied = True
        return Marks(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        Marks.copied = True
        return OrderedDict, (), None, None, iter(self.items())


class Mark(NamedTuple):
    """How a constrained parameter is read as matrices, and of which multiple of orthonormal ones."""

    view: str
    scale: Scale = 1.0


class Place(NamedTuple):
    """One place of a model where a parameter is registered; a tied parameter has several."""

    name: str
    local_name: str
    parameter: nn.Parameter
    module: nn.Module


class NamedParameter(NamedTuple):
    """A parameter under its first name, with all the names it is tied under, and its mark if there is one."""

    name: str
    parameter: nn.Parameter
    mark: Mark | None
    all_names: tuple[str, ...]

    @property
    def view(self) -> str | None:
        """The view of its mark."""
        return None if self.mark is None else self.mark.view


def places(model: nn.Module) -> Iterator[Place]:
    """Every place of every parameter, in the order of named_parameters."""
    for prefix, module in model.named_modules(remove_duplicate=False):
        for local_name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            yield Place(qualified(prefix, local_name), local_name, parameter, module)


def named(model: nn.Module) -> list[NamedParameter]:
    """Every parameter once, with its marks."""
    found: dict[int, Mark] = {}
    names: dict[int, list[str]] = {}
    parameters: dict[int, nn.Parameter] = {}
    for place in places(model):
        key = id(place.parameter)
        parameters[key] = place.parameter
        names.setdefault(key, []).append(place.name)
        if place.local_name in marks_of(place.module):
            _seen[id(place.module)] = place.module
            found.setdefault(key, mark_of(place.module, place.local_name))
    refuse_lost_marks(model)
    return [
        NamedParameter(all_names[0], parameters[k], found.get(k), tuple(all_names)) for k, all_names in names.items()
    ]


def marked(model: nn.Module, caller: str) -> list[tuple[str, nn.Parameter, Mark]]:
    """(name, parameter, mark) of every marked parameter; a ValueError if there is none."""
    found = [(one.name, one.parameter, one.mark) for one in named(model) if one.mark is not None]
    if not found:
        raise ValueError(
            f"{caller}: no parameter of this {type(model).__name__} is marked as orthonormal; "
            "call orthogonalize_(model) first"
        )
    return found


def mark_(module: nn.Module, local_name: str, view: str, scale: Scale = 1.0) -> None:
    """Mark one parameter of a module."""
    unmark_(module, local_name)
    # A new dict: a shallow copy of the module, if there is one, keeps its own marks.
    setattr(module, MARK, Marks({**marks_of(module), local_name: view}))
    if scale != 1:
        setattr(module, SCALE_MARK, Marks({**marks_of(module, SCALE_MARK), local_name: str(scale)}))
    _seen[id(module)] = module


def unmark_(module: nn.Module, local_name: str) -> None:
    """Take the mark of one parameter of a module away, if it has one."""
    for attribute in (MARK, SCALE_MARK):
        left = {name: text for name, text in marks_of(module, attribute).items() if name != local_name}
        if left:
            setattr(module, attribute, Marks(left))
        elif marks_of(module, attribute):
            delattr(module, attribute)


def marks_of(module: nn.Module, attribute: str = MARK) -> Mapping[str, str]:
    """{parameter name: view} of the module itself, none of what it wraps; of `SCALE_MARK` the scales that are not 1."""
    if isinstance(module, torch.jit.ScriptModule):
        marks: Mapping[str, str] = getattr(module, attribute, {})
    else:  # not getattr: torch.compile's wrapper answers with the attributes of the module inside
        marks = vars(module).get(attribute, {})
    return marks


def mark_of(module: nn.Module, local_name: str) -> Mark:
    """The mark of a parameter of the module that has one."""
    scale = marks_of(module, SCALE_MARK).get(local_name, "1")
    return Mark(marks_of(module)[local_name], scale if scale in ("modular", "free") else float(scale))


def views_of(parameters: Iterable[Tensor]) -> dict[int, Mark]:
    """{id: mark} of those among bare parameters that a marked module owns.

    A copy of a model, by deepcopy or pickle, was never seen here. Where one could be missed, all live objects are
    looked through, which takes a fraction of a second: after a marked module was copied, if some parameters have marks
    and other matrices have none, or if there are no marks but parameters that are no matrices. A pickle of another
    process whose parameters are all matrices is missed.
    """
    given = [parameter for parameter in parameters if isinstance(parameter, Tensor)]
    views = views_of_seen(given)
    unknown = [parameter for parameter in given if id(parameter) not in views]
    possible = any(one.ndim >= 2 if views or Marks.copied else one.ndim not in (2, 3) for one in unknown)
    if possible:
        Marks.copied = False
        for one in gc.get_objects():
            if issubclass(type(one), nn.Module) and marks_of(one):
                _seen[id(one)] = one
        views = views_of_seen(given)
    return views


def views_of_seen(given: Sequence[Tensor]) -> dict[int, Mark]:
    """The same from the modules that were marked or walked through."""
    wanted = {id(parameter) for parameter in given}
    views: dict[int, Mark] = {}
    for module in list(_seen.values()):
        known = marks_of(module)
        for local_name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            if local_name in known and id(parameter) in wanted:
                views.setdefault(id(parameter), mark_of(module, local_name))
    return views


def refuse_lost_marks(model: nn.Module) -> None:
    """Raise a ValueError if a marked name is no parameter any more, e.g. since a parametrization computes it."""
    for prefix, module in model.named_modules():
        present = {local_name for local_name, _ in module.named_parameters(recurse=False, remove_duplicate=False)}
        for local_name in marks_of(module):
            if local_name not in present:
                raise ValueError(
                    f"'{qualified(prefix, local_name)}' was marked by orthogonalize_ but is no parameter of its "
                    f"{type(module).__name__} any more; remove the parametrization or pruning that replaced it"
                )


def qualified(prefix: str, local_name: str) -> str:
    """Name of a parameter in the model: 'layer.0' and 'weight' -> 'layer.0.weight'."""
    return f"{prefix}.{local_name}" if prefix else local_name


def matching(pattern: str, names: Iterable[str], caller: str) -> list[str]:
    """Names equal to the pattern or matched by it as by fnmatch; a ValueError with near names if there is none."""
    known = list(names)
    found = [name for name in known if name == pattern or fnmatch.fnmatchcase(name, pattern)]
    if not found:
        inside = [name for name in known if name.startswith(f"{pattern}.")]
        near = inside[:5] or difflib.get_close_matches(pattern, known, n=5, cutoff=0.4) or known[:5]
        raise ValueError(f"{caller}: {pattern!r} matches no parameter; near it are {', '.join(map(repr, near))}")
    return found
