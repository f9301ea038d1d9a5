"""Texts that are at hand, in parts that share no paragraph: Python's help topics, and descriptions of data sets."""

from __future__ import annotations

import pydoc_data.topics
from collections.abc import Callable
from importlib import resources
from typing import Any, NamedTuple

import torch
from torch import Tensor

EVERY = 5  # of five topics one is for testing, one for validation and three are for training


class Texts(NamedTuple):
    """Learn on `training`, choose rates and objectives on `validation`, report `test`."""

    training: str
    validation: str
    test: str


def help_topics() -> Texts:
    """Python's help topics in three parts. Topics repeat each other: a paragraph stays in the first part only."""
    topics = [topic for _, topic in sorted(pydoc_data.topics.topics.items())]
    training = [topic for i, topic in enumerate(topics) if i % EVERY > 1]
    return Texts(*apart([training, topics[::EVERY], topics[1::EVERY]]))


def data_sets() -> str:
    """The descriptions of scikit-learn's data sets: prose and tables, without paragraphs of the help topics."""
    folder = resources.files("sklearn.datasets.descr")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".rst")), key=lambda file: file.name)
    topics = list(pydoc_data.topics.topics.values())
    return apart([topics, [file.read_text(encoding="utf-8") for file in files]])[1]


def apart(parts: list[list[str]]) -> list[str]:
    """Each part as one text, without the paragraphs of the parts before it; spaces and line breaks do not count."""
    seen: set[str] = set()
    texts = []
    for documents in parts:
        paragraphs = [paragraph for document in documents for paragraph in document.split("\n\n")]
        texts.append("\n\n".join(p for p in paragraphs if " ".join(p.split()) not in seen))
        seen |= {" ".join(p.split()) for p in paragraphs}
    return texts


def sequences(tokenizer: Any, text: str, length: int) -> Tensor:
    """The text as token ids, shape (number, length); the end that fills no sequence is left out."""
    ids = torch.tensor(tokenizer(text, add_special_tokens=False)["input_ids"])
    if len(ids) < length:
        raise ValueError(f"the text has {len(ids)} tokens, fewer than a sequence of --length {length}")
    return ids[: len(ids) // length * length].unflatten(0, (-1, length))


def generator_of(seed: int, step: int) -> torch.Generator:
    """Random numbers of a step. A generator on the CPU takes 32 bits of its seed only, so both must fit into them."""
    return torch.Generator().manual_seed(seed * 1_000_003 + step)


def batches_of(ids: Tensor, size: int, seed: int = 0) -> Callable[[int], Tensor]:
    """Batch of a step, by its number and the seed alone, so that a resumed run sees the same ones."""

    def batch(step: int) -> Tensor:
        return ids[torch.randint(len(ids), (size,), generator=generator_of(seed, step))]

    return batch
