"""Where rotations enter a decoder of the Llama kind, and how they are folded into its weights.

R1 turns the residual stream, one R2 per layer the value heads. RMS norms without weights do not see R1, so the folded
model computes what it did. A row vector x of the stream becomes x R1; weights are out x in, as in torch.nn.Linear.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Role(NamedTuple):
    """How a linear meets the rotations: it reads the residual stream or writes to it; on which side its heads are."""

    reads: bool
    heads: str | None = None


ROLES = {
    "self_attn.q_proj": Role(reads=True),
    "self_attn.k_proj": Role(reads=True),
    "self_attn.v_proj": Role(reads=True, heads="out"),
    "self_attn.o_proj": Role(reads=False, heads="in"),
    "mlp.gate_proj": Role(reads=True),
    "mlp.up_proj": Role(reads=True),
    "mlp.down_proj": Role(reads=False),
}
# Norm -> the linears that read what it returns.
NORMS = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}
# Parts of a layer that rotations pass by: they act on queries and keys, or entry by entry.
UNTOUCHED = {"self_attn.q_norm", "self_attn.k_norm", "self_attn.rotary_emb", "mlp.act_fn"}


def check_architecture(model: Any) -> None:
    """A ValueError that names what is missing, superfluous or of another kind, unless `model` can be folded."""
    name = type(model).__name__
    linears = ["lm_head", *(f"model.layers.{i}.{place}" for i in layer_numbers(model) for place in ROLES)]
    norms = ["model.norm", *(f"model.layers.{i}.{norm}" for i in layer_numbers(model) for norm in NORMS)]
    for kind, places in {nn.Embedding: ["model.embed_tokens"], nn.Linear: linears, nn.Module: norms}.items():
        for place in places:
            found = part(model, place)
            if found is None:
                raise ValueError(
                    f"{name} has no {place}: only decoders laid out like Llama, Qwen or Mistral can be folded"
                )
            if not isinstance(found, kind):
                raise ValueError(f"{place} of {name} must be a torch.nn.{kind.__name__}; got {type(found).__name__}")
    known = {*ROLES, *NORMS, *UNTOUCHED}
    for i, layer in enumerate(model.model.layers):
        for place, module in layer.named_modules():
            if not any(module.children()) and not any(place == each or place.startswith(each + ".") for each in known):
                raise ValueError(f"model.layers.{i}.{place} of {name} ({type(module).__name__}) has no known rotation")
    for place in norms:
        check_norm(part(model, place), f"{place} of {name}")


def layer_numbers(model: Any) -> range:
    """The numbers of the decoder's layers; at least one, so that a model without any is refused by its parts."""
    layers = part(model, "model.layers")
    return range(max(1, len(layers)) if isinstance(layers, nn.ModuleList) else 1)


def part(model: nn.Module, place: str) -> nn.Module | None:
    """The submodule at a dotted name, None if there is none."""
    found: Any = model
    for name in place.split("."):
        found = found._modules.get(name) if isinstance(found, nn.Module) else None
    return found


def check_norm(norm: Any, place: str) -> None:
    """A ValueError unless the norm is x / rms(x) times its weight; judged by what it computes."""
    weight = getattr(norm, "weight", None)
    if isinstance(weight, Tensor) and getattr(norm, "bias", None) is None:
        size = weight.shape[0]
        x = torch.linspace(-3, 5, size, dtype=weight.dtype, device=weight.device)
        expected = weight * x / x.square().mean().sqrt()
        with torch.no_grad():
            if torch.allclose(norm(x), expected, rtol=2e-2, atol=1e-3):
                return
    raise ValueError(f"{place} ({type(norm).__name__}) must be an RMS norm, weight * x / rms(x), without a bias")


def places(model: Any) -> Iterator[tuple[int, str, nn.Linear]]:
    """Layer, place and module of every linear between the embedding and the head."""
    for i, layer in enumerate(model.model.layers):
        for place in ROLES:
            yield i, place, layer.get_submodule(place)


@torch.no_grad()
def fuse_norms_(model: Any) -> Any:
    """Untie the embeddings and move the weights of all norms into the linears after them, in place.

    The logits stay what they were; the norms' weights become one.
    """
    check_architecture(model)
    if model.lm_head.weight is model.model.embed_tokens.weight:
        model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone())
    model.config.tie_word_embeddings = False
    readers = [(model.model.norm, [model.lm_head])]
    for layer in model.model.layers:
        readers += [(getattr(layer, norm), [layer.get_submodule(p) for p in after]) for norm, after in NORMS.items()]
    for norm, linears in readers:
        for linear in linears:
            linear.weight.copy_(linear.weight.double() * norm.weight.double())
        norm.weight.fill_(1)
    return model


def rotated(W: Tensor, bias: Tensor | None, role: Role, R1: Tensor, R2: Tensor) -> tuple[Tensor, Tensor | None]:
    """Weight and bias of a linear after the rotations: W R1 for a reader, R1ᵀ W for a writer, R2 on each head.

    Differentiable in R1 (hidden x hidden) and R2 (head_dim x head_dim).
    """
    size = R2.shape[0]
    if role.heads == "out":
        W = (R2.mT @ W.unflatten(0, (-1, size))).flatten(0, 1)
        bias = None if bias is None else (bias.unflatten(0, (-1, size)) @ R2).flatten()
    elif role.heads == "in":
        W = (W.unflatten(1, (-1, size)) @ R2).flatten(1)
    if role.reads:
        return W @ R1, bias
    return R1.mT @ W, None if bias is None else bias @ R1


@torch.no_grad()
def fold_(model: Any, R1: Tensor, R2: Tensor) -> Any:
    """Fold the rotations into a model whose norms are fused, in place and in float64, one weight at a time.

    Args:
        model: As `fuse_norms_` returns it.
        R1: Orthogonal, hidden x hidden.
        R2: Orthogonal, layers x head_dim x head_dim.
    """
    check_rotations(model, R1, R2)
    R1, R2 = R1.double(), R2.double()
    for table in (model.model.embed_tokens.weight, model.lm_head.weight):
        table.copy_(table.double() @ R1)
    for i, place, linear in places(model):
        bias = None if linear.bias is None else linear.bias.double()
        weight, bias = rotated(linear.weight.double(), bias, ROLES[place], R1, R2[i])
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
    return model


def sizes(model: Any) -> tuple[int, int, int]:
    """Hidden size, number of layers, size of a head: config.head_dim where there is one, else hidden / heads."""
    config = model.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.hidden_size, config.num_hidden_layers, head


def off_orthogonal(R: Tensor) -> float:
    """The largest entry of |RᵀR - I| of a matrix or a batch, in float64."""
    R = R.detach().double()
    return (R.mT @ R - torch.eye(R.shape[-1], dtype=R.dtype, device=R.device)).abs().max().item()


def check_rotations(model: Any, R1: Tensor, R2: Tensor) -> None:
    """A ValueError unless the shapes fit, the matrices are orthogonal and the norms' weights are fused."""
    hidden, layers, head = sizes(model)
    for name, R, shape in (("R1", R1, (hidden, hidden)), ("R2", R2, (layers, head, head))):
        if R.shape != shape:
            raise ValueError(f"{name} must have shape {shape} for this model; got {tuple(R.shape)}")
        if (off := off_orthogonal(R)) > 1e-3:
            raise ValueError(f"{name} must be orthogonal; max |RᵀR - I| is {off:.1e}: gs.project mends it")
    norms = [norm for layer in model.model.layers for norm in (getattr(layer, name) for name in NORMS)]
    if any((norm.weight != 1).any() for norm in [model.model.norm, *norms]):
        raise ValueError("norms still have weights, which do not commute with rotations; call fuse_norms_(model) first")
