"""The work: a small transformer that predicts the characters of Python's help topics."""

from __future__ import annotations

import pydoc_data.topics
from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

import glideslope as gs

SYMBOLS = 128  # ASCII


class Block(nn.Module):
    """Causal self-attention, then an MLP; both normalise their input and add to it."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """From and to shape (batch, time, width)."""
        normed = self.before_attention(x)
        projections = (layer(normed) for layer in (self.query, self.key, self.value))
        q, k, v = (each.unflatten(-1, (self.heads, -1)).transpose(1, 2) for each in projections)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        added: Tensor = self.contract(functional.gelu(self.expand(self.before_mlp(x))))
        return x + added


class Transformer(nn.Module):
    """A decoder whose hidden matrices, those of `blocks`, are the ones that Muon steps."""

    def __init__(self, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.enter = nn.Embedding(SYMBOLS, width)
        self.position = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, SYMBOLS)

    def forward(self, symbols: Tensor) -> Tensor:
        """Logits of the next symbol, shape (batch, time, SYMBOLS)."""
        logits: Tensor = self.leave(self.norm(self.blocks(self.enter(symbols) + self.position)))
        return logits


def orthonormal_transformer(seed: int, width: int, layers: int, context: int) -> Transformer:
    """A transformer whose hidden matrices are orthonormal and marked; the seed alone decides its weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Transformer(width, layers, context)
    gs.orthogonalize_(model.blocks)
    return model


def characters() -> tuple[Tensor, Tensor]:
    """The help topics as symbols: the first nine tenths to train on, the rest held out."""
    text = "".join(pydoc_data.topics.topics.values()).encode("ascii", "replace")
    symbols = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    split = len(symbols) * 9 // 10
    return symbols[:split], symbols[split:]


def batches(text: Tensor, context: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Endless random windows of context + 1 symbols."""
    while True:
        start = torch.randint(len(text) - context, (size, 1), generator=generator)
        yield text[start + torch.arange(context + 1)]


def windows(text: Tensor, context: int, count: int) -> Tensor:
    """`count` windows at equal distances: the same for every run."""
    start = torch.linspace(0, len(text) - context - 1, count).long().unsqueeze(1)
    return text[start + torch.arange(context + 1)]


def loss_of(model: nn.Module, sequences: Tensor) -> Tensor:
    """Cross-entropy of every next symbol, in nats."""
    return functional.cross_entropy(model(sequences[:, :-1]).flatten(0, 1), sequences[:, 1:].flatten())
