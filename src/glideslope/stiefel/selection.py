"""Which weights of a model a selection means, how each is read as matrices, and why some cannot be orthonormal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.nn.utils import parametrize

from glideslope.ranks.sums import is_finite
from glideslope.stiefel.marks import Place, matching, places, qualified
from glideslope.stiefel.views import default_view, matrix_shape

Predicate: TypeAlias = Callable[[str, nn.Parameter, nn.Module], "bool | str"]
Select: TypeAlias = "type[nn.Module] | Sequence[type[nn.Module]] | str | Sequence[str] | Predicate | None"

DEFAULT_TYPES = (nn.Linear, nn.modules.conv._ConvNd, nn.MultiheadAttention)
EMBEDDINGS = (nn.Embedding, nn.EmbeddingBag)
ATTENTION_WEIGHTS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
CALLER = "orthogonalize_"
# Classes whose weights are orthonormal, and others that compute weights, with the line that removes them.
ORTHOGONAL = ("torch.nn.utils.parametrizations._Orthogonal", "geotorch.so.SO")
REMOVE_PARAMETRIZATIONS = "torch.nn.utils.parametrize.remove_parametrizations({module}, {name!r})"
REMOVED_BY = {
    "torch.nn.utils.weight_norm.WeightNorm": "torch.nn.utils.remove_weight_norm({module}, {name!r})",
    "torch.nn.utils.spectral_norm.SpectralNorm": "torch.nn.utils.remove_spectral_norm({module}, {name!r})",
    "torch.nn.utils.prune.BasePruningMethod": "torch.nn.utils.prune.remove({module}, {name!r})",
    "torch.nn.utils.parametrizations._WeightNorm": REMOVE_PARAMETRIZATIONS,
    "torch.nn.utils.parametrizations._SpectralNorm": REMOVE_PARAMETRIZATIONS,
}


def select_weights(model: nn.Module, select: Select) -> list[tuple[Place, str]]:
    """The chosen parameters with their views, each once, at its first place in the model.

    A ValueError names those that cannot be orthonormal, each with the reason.
    """
    everywhere = list(places(model))
    first_place: dict[int, Place] = {}
    for place in everywhere:
        first_place.setdefault(id(place.parameter), place)
    chosen: dict[int, str | None] = {}
    for place, view in selected_places(model, everywhere, select):
        chosen.setdefault(id(place.parameter), view)
    if not chosen:
        raise ValueError(
            f"{CALLER}: select={select!r} chooses no parameter of 2 dimensions or more of this {type(model).__name__}"
        )
    refusals = {first_place[key].name: refusal(first_place[key].parameter, view) for key, view in chosen.items()}
    reasons = [f"'{name}' {reason}" for name, reason in refusals.items() if reason]
    if reasons:
        raise ValueError(
            "\n  ".join((f"{CALLER} cannot make these parameters orthonormal, and changed nothing:", *reasons))
        )
    # In the order of the model, whatever the order of the selection.
    return [(place, view) for key, place in first_place.items() if (view := chosen.get(key))]


def selected_places(model: nn.Module, everywhere: list[Place], select: Select) -> Iterator[tuple[Place, str | None]]:
    """Chosen places with their views; the view is None where it would be a guess."""
    if select is None:
        # A weight that is also an embedding, as in tied language models, stays free.
        embeddings = {id(place.parameter) for place in everywhere if isinstance(place.module, EMBEDDINGS)}
        by_default = weights_of_types(model, DEFAULT_TYPES)
        return ((place, view) for place, view in by_default if id(place.parameter) not in embeddings)
    if callable(select) and not isinstance(select, (type, nn.Module)):
        return predicted_places(everywhere, select)
    items = list(select) if isinstance(select, Iterable) and not isinstance(select, str) else [select]
    patterns = [item for item in items if isinstance(item, str)]
    types = tuple(item for item in items if isinstance(item, type) and issubclass(item, nn.Module))
    if patterns and len(patterns) == len(items):
        return named_places(everywhere, patterns)
    if types and len(types) == len(items):
        return weights_of_types(model, types)
    layer = f"a layer, {type(select).__name__}(...): give its name or type" if isinstance(select, nn.Module) else None
    raise ValueError(
        f"{CALLER}: select must be a module type or a tuple of them, a list of names or patterns, or a predicate "
        f"(name, parameter, module); got {layer or repr(select)}"
    )


def named_places(everywhere: list[Place], patterns: Sequence[str]) -> Iterator[tuple[Place, str | None]]:
    """Places whose name equals or matches one of the patterns, each of which must match."""
    names = {name for pattern in patterns for name in matching(pattern, [place.name for place in everywhere], CALLER)}
    return ((place, natural_view(place)) for place in everywhere if place.name in names)


def predicted_places(everywhere: list[Place], predicate: Predicate) -> Iterator[tuple[Place, str | None]]:
    """Places the predicate accepts: with True for the natural view, or with a view."""
    for place in everywhere:
        answer = predicate(place.name, place.parameter, place.module)
        if answer:
            yield place, answer if isinstance(answer, str) else natural_view(place)


def weights_of_types(model: nn.Module, types: tuple[type[nn.Module], ...]) -> Iterator[tuple[Place, str | None]]:
    """The weights of all modules of these types, and the default choice among the modules inside those."""
    modules = list(model.named_modules(remove_duplicate=False))
    roots = [prefix for prefix, module in modules if isinstance(module, types)]
    if types is not DEFAULT_TYPES and not roots:
        present = sorted({type(module).__name__ for _, module in modules})
        wanted = " or ".join(one.__name__ for one in types)
        raise ValueError(f"{CALLER}: no {wanted} in this model, which has {', '.join(present)}")
    for prefix, module in modules:
        inside = any(prefix.startswith(f"{root}." if root else "") for root in roots)
        by_default = isinstance(module, DEFAULT_TYPES) or is_transposed_linear(module)
        if isinstance(module, types) or ((inside or types is DEFAULT_TYPES) and by_default):
            yield from weights_of_module(prefix, module)


def weights_of_module(prefix: str, module: nn.Module) -> Iterator[tuple[Place, str | None]]:
    """The weights of one module, none of its children: of a recurrent one the recurrent weights."""
    own = dict(module.named_parameters(recurse=False, remove_duplicate=False))
    for local_name in weight_names(module, own):
        if local_name in own:
            place = Place(qualified(prefix, local_name), local_name, own[local_name], module)
            yield place, natural_view(place)
        elif getattr(module, local_name, None) is not None:
            line = how_to_remove(prefix, module, local_name)
            raise ValueError(
                f"{CALLER}: '{qualified(prefix, local_name)}' is no parameter of its {type(module).__name__}: weight "
                "norm, pruning or another parametrization computes it. Select other weights, "
                + (f"or remove that first: {line}" if line else "remove that first, or take it over: gs.adopt_(model)")
            )


def weight_names(module: nn.Module, own: dict[str, nn.Parameter]) -> Sequence[str]:
    """Local names of the weights that choosing the module by its type means."""
    if isinstance(module, (nn.Linear, nn.modules.conv._ConvNd)) or is_transposed_linear(module):
        return ("weight",)
    if isinstance(module, nn.MultiheadAttention):
        return ATTENTION_WEIGHTS
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        return [name for name in own if name.startswith(("weight_hh", "weight_hr"))]
    return [name for name, parameter in own.items() if is_lazy(parameter) or parameter.ndim >= 2]


def natural_view(place: Place) -> str | None:
    """View that the kind of module gives to its parameter, or that of its number of dimensions; None if ambiguous."""
    module, local_name = place.module, place.local_name
    if is_lazy(place.parameter):
        return None
    if isinstance(module, nn.modules.conv._ConvNd) and local_name == "weight":
        return "conv" if module.groups == 1 else f"grouped_conv:{module.groups}"
    if isinstance(module, nn.MultiheadAttention) and local_name == "in_proj_weight":
        return "split:3"
    if is_transposed_linear(module) and local_name == "weight" and place.name.endswith("c_attn.weight"):
        inputs, outputs = place.parameter.shape  # q, k and v side by side, or k and v
        return f"split_columns:{outputs // inputs}" if outputs % inputs == 0 else "matrix"
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)) and local_name.startswith(("weight_ih", "weight_hh")):
        gates = (
            4 if isinstance(module, (nn.LSTM, nn.LSTMCell)) else 3 if isinstance(module, (nn.GRU, nn.GRUCell)) else 1
        )
        return "matrix" if gates == 1 else f"split:{gates}"
    return default_view(place.parameter.ndim)


def is_transposed_linear(module: nn.Module) -> bool:
    """Whether a module is the Conv1D of transformers, or a copy of it: a linear layer whose weight is transposed."""
    if not any(cls.__name__ == "Conv1D" for cls in type(module).__mro__) or not hasattr(module, "nf"):
        return False
    weight = getattr(module, "weight", None)
    return isinstance(weight, nn.Parameter) and not is_lazy(weight) and weight.ndim == 2


def refusal(parameter: nn.Parameter, view: str | None) -> str | None:
    """Why a parameter cannot be orthonormal, as the end of a sentence that its name begins; None if it can."""
    if is_lazy(parameter):
        return "is not initialized yet: run a batch through the model first"
    if not (parameter.is_floating_point() or parameter.is_complex()):
        return f"has the type {parameter.dtype}; it must be floating point or complex"
    if parameter.layout is not torch.strided:
        return f"is stored as {parameter.layout}; it must be dense"
    if parameter.is_meta:
        return "is on the meta device and has no values: materialize the model first"
    if parameter.ndim < 2:
        return f"has shape {tuple(parameter.shape)}; a matrix has 2 dimensions or more"
    if view is None:
        return (
            f"has shape {tuple(parameter.shape)}, which can be read in several ways: select it with a predicate that "
            "returns its view, e.g. 'conv'"
        )
    try:
        matrix_shape(parameter.shape, view)
    except ValueError as error:
        return f"does not fit: {error}"
    return None if is_finite(parameter) else "has infinite or NaN entries"


def how_to_remove(prefix: str, module: nn.Module, local_name: str) -> str | None:
    """The line that removes weight norm, spectral norm or pruning from a weight; None if it has none of them."""
    own = [hook for hook in module._forward_pre_hooks.values() if weight_of_hook(hook) == local_name]
    computing = [*own, *parametrizations_of(module).get(local_name, ())]
    for known, line in REMOVED_BY.items():
        if any(known in class_names(one) for one in computing):
            where = f"model.get_submodule({prefix!r})" if prefix else "model"
            return line.format(module=where, name=local_name)
    return None


def parametrizations_of(module: nn.Module) -> dict[str, parametrize.ParametrizationList]:
    """{weight: its parametrizations} of the module itself."""
    if not parametrize.is_parametrized(module):
        return {}
    return dict(module.parametrizations.items())  # type: ignore[union-attr, operator]


def weight_of_hook(hook: object) -> object:
    """Name of the weight that a forward pre-hook of torch's weight norm, spectral norm or pruning computes."""
    return getattr(hook, "name", getattr(hook, "_tensor_name", None))


def class_names(instance: object) -> set[str]:
    """Full names of the class of an instance and those it inherits from: to know classes without importing them."""
    return {f"{cls.__module__}.{cls.__qualname__}" for cls in type(instance).__mro__}


def is_lazy(parameter: nn.Parameter) -> bool:
    """Whether the parameter waits for its shape."""
    return isinstance(parameter, UninitializedParameter)
