"""The models that are trained: each built from torch's layers, with the weights to constrain still free."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


def small_vgg(channels: int, width: int) -> nn.Sequential:
    """Six 3 x 3 convolutions with batch normalisation, of three widths, and a linear layer."""
    layers: list[nn.Module] = []
    before = channels
    for factor in (1, 2, 4):
        for _ in range(2):
            after = factor * width
            layers += [nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
            before = after
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


class RecurrentNet(nn.Module):
    """h <- modReLU(W h + U x), with logits from every state; W is `recurrent.weight`."""

    def __init__(self, symbols: int, hidden: int) -> None:
        super().__init__()
        self.enter = nn.Embedding(symbols, hidden)
        self.recurrent = nn.Linear(hidden, hidden, bias=False)
        self.threshold = nn.Parameter(torch.zeros(hidden))
        self.leave = nn.Linear(hidden, symbols)

    def forward(self, sequence: Tensor) -> Tensor:
        """Logits of shape (batch, time, symbols) from symbols of shape (batch, time)."""
        inputs = self.enter(sequence)
        state = torch.zeros_like(inputs[:, 0])
        states = []
        for entering in inputs.unbind(1):
            before = self.recurrent(state) + entering
            state = torch.sign(before) * functional.relu(before.abs() + self.threshold)
            states.append(state)
        logits: Tensor = self.leave(torch.stack(states, 1))
        return logits


class Block(nn.Module):
    """Causal self-attention and an MLP, each after a layer norm and with a residual connection."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.expand, self.contract = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """From and to shape (batch, time, width)."""
        normed = self.attention_norm(x)
        q, k, v = (
            layer(normed).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        attended: Tensor = x + self.out(mixed.transpose(1, 2).flatten(2))
        added: Tensor = self.contract(functional.gelu(self.expand(self.mlp_norm(attended))))
        return attended + added


class Transformer(nn.Module):
    """A decoder with learned positions; the weights to constrain are those of `blocks`."""

    def __init__(self, symbols: int, context: int, width: int, layers: int) -> None:
        super().__init__()
        self.enter = nn.Embedding(symbols, width)
        self.position = nn.Parameter(0.02 * torch.randn(context, width))
        self.blocks = nn.Sequential(*(Block(width, heads=4) for _ in range(layers)))
        self.norm, self.leave = nn.LayerNorm(width), nn.Linear(width, symbols)

    def forward(self, sequence: Tensor) -> Tensor:
        """Logits of the next symbol, shape (batch, time, symbols)."""
        logits: Tensor = self.leave(self.norm(self.blocks(self.enter(sequence) + self.position[: sequence.shape[1]])))
        return logits


class Subspace(nn.Module):
    """One n x p matrix."""

    def __init__(self, n: int, p: int) -> None:
        super().__init__()
        self.basis = nn.Parameter(torch.randn(n, p))
