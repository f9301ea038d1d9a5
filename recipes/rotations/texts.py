"""Texts that come with Python: its help topics, in two parts that share no paragraph."""

from __future__ import annotations

import pydoc_data.topics
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

EVERY = 5  # one topic in five is for testing


def help_topics() -> tuple[str, str]:
    """Training and test text. Topics repeat each other, so a test paragraph that training has too is left out."""
    topics = [topic for _, topic in sorted(pydoc_data.topics.topics.items())]
    training = [paragraph for i, topic in enumerate(topics) if i % EVERY for paragraph in topic.split("\n\n")]
    seen = {" ".join(paragraph.split()) for paragraph in training}
    held_out = [paragraph for topic in topics[::EVERY] for paragraph in topic.split("\n\n")]
    return "\n\n".join(training), "\n\n".join(p for p in held_out if " ".join(p.split()) not in seen)


def sequences(tokenizer: Any, text: str, length: int) -> Tensor:
    """The text as token ids, shape (number, length); the end that fills no sequence is left out."""
    ids = torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"])
    return ids[: len(ids) // length * length].unflatten(0, (-1, length))


def batches_of(ids: Tensor, size: int, seed: int = 0) -> Callable[[int], Tensor]:
    """Batch of a step, by its number and the seed alone, so that a resumed run sees the same ones."""

    def batch(step: int) -> Tensor:
        generator = torch.Generator().manual_seed(seed * 2**32 + step)
        return ids[torch.randint(len(ids), (size,), generator=generator)]

    return batch
