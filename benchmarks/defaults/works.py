"""The kinds of work: what is trained on what, with which optimizer and schedule, and what counts as the result."""

from __future__ import annotations

import copy
import functools
import importlib
import itertools
import math
import pydoc_data.topics
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

import glideslope as gs
from benchmarks.defaults.networks import RecurrentNet, Subspace, Transformer, small_vgg

Model = TypeVar("Model", bound=nn.Module)
CNN_BENCHMARK = Path(__file__).parents[2] / "experiments" / "benchopt" / "orthogonal_cnn"


class Job(NamedTuple):
    """One training: a model with marked weights, the loss of a step, and the result at the end."""

    model: nn.Module
    loss: Callable[[int], Tensor]
    result: Callable[[], float]


# Of every kind of work.
SEEDS = 3


@dataclass(frozen=True)
class Work:
    """A kind of work. `start` makes its job from a seed, which decides data, start and order."""

    name: str
    start: Callable[[int], Job]
    steps: int
    optimizer: str
    rates: tuple[float, ...]
    schedule: Callable[[float], float]
    measure: str
    more_is_better: bool = False
    shared: tuple[tuple[str, Any], ...] = ()


def cosine(share: float) -> float:
    """Half a cosine from one to zero."""
    return 0.5 * (1 + math.cos(math.pi * share))


def constant(share: float) -> float:
    """One throughout."""
    return 1.0


def inverse_root(share: float) -> float:
    """1 / √(1 + 24 t): one fifth at the end."""
    return 1 / math.sqrt(1 + 24 * share)


@functools.lru_cache(maxsize=1)
def images(data: Path | None) -> Any:
    """CIFAR-10 from a folder, at half of its resolution; the digits of scikit-learn without one."""
    reader = images_of_cnn_benchmark()
    if data is None:
        return reader.digits(None)
    found = reader.cifar(data, None)
    train, test = (functional.avg_pool2d(part, 2) for part in (found.train, found.test))
    return found._replace(train=train, test=test, padding=2)


def images_of_cnn_benchmark() -> Any:
    """The module `images` of the CNN experiment; every Benchopt benchmark has a package of the name it is in."""
    package = "benchmark_utils"
    others = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == package}
    sys.path.insert(0, str(CNN_BENCHMARK))
    try:
        return importlib.import_module(f"{package}.images")
    finally:
        sys.path.pop(0)
        sys.modules.update(others)


def seeded(seed: int, build: Callable[[], Model]) -> Model:
    """A model whose weights the seed alone decides."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def cnn(seed: int, data: Path | None, *, width: int = 16, batch: int = 64) -> Job:
    """A small VGG with orthonormal kernels; test accuracy in percent."""
    found, generator = images(data), torch.Generator().manual_seed(seed)
    model = seeded(seed, lambda: small_vgg(found.train.shape[1], width))
    gs.orthogonalize_(model, nn.Conv2d)
    epochs = (found.batches(found.draw(generator), batch) for _ in itertools.count())
    batches = itertools.chain.from_iterable(epochs)

    def loss(step: int) -> Tensor:
        drawn, labels = next(batches)
        return functional.cross_entropy(model(drawn), labels)

    def result() -> float:
        gs.project_(model)
        model.eval()
        right: Tensor = model(found.test).argmax(1) == found.test_labels
        return 100 * right.float().mean().item()

    return Job(model, loss, result)


def copy_memory(seed: int, *, hidden: int = 128, delay: int = 50, length: int = 5, batch: int = 32) -> Job:
    """Recall `length` of eight symbols after a delay; cross-entropy of the recalled ones, log 8 = 2.08 by chance."""
    model = seeded(seed, lambda: RecurrentNet(10, hidden))
    gs.orthogonalize_(model, ["recurrent.weight"])
    generator = torch.Generator().manual_seed(seed)

    def sample(count: int) -> tuple[Tensor, Tensor]:
        symbols = torch.randint(1, 9, (count, length), generator=generator)
        blank = torch.zeros(count, delay + length, dtype=torch.long)
        inputs = torch.cat([symbols, blank], 1)
        inputs[:, length + delay - 1] = 9
        return inputs, torch.cat([blank, symbols], 1)

    test_inputs, test_outputs = sample(512)

    def loss(step: int) -> Tensor:
        inputs, outputs = sample(batch)
        return functional.cross_entropy(model(inputs).flatten(0, 1), outputs.flatten())

    def result() -> float:
        gs.project_(model)
        logits = model(test_inputs)[:, -length:]
        return functional.cross_entropy(logits.flatten(0, 1), test_outputs[:, -length:].flatten()).item()

    return Job(model, loss, result)


def text(seed: int, *, width: int = 128, layers: int = 2, context: int = 64, batch: int = 8) -> Job:
    """A transformer on the characters of Python's help topics; validation loss on the last tenth of them."""
    characters = "".join(pydoc_data.topics.topics.values()).encode("ascii", "replace")
    symbols = torch.tensor(list(characters))
    held_out = symbols[-len(symbols) // 10 :]
    training = symbols[: -len(held_out)]
    model = seeded(seed, lambda: Transformer(128, context, width, layers))
    gs.orthogonalize_(model, weights_of_blocks)
    generator = torch.Generator().manual_seed(seed)

    def sample(source: Tensor, count: int) -> Tensor:
        start = torch.randint(len(source) - context, (count, 1), generator=generator)
        return source[start + torch.arange(context + 1)]

    validation = sample(held_out, 128)

    def loss_of(sequences: Tensor) -> Tensor:
        return functional.cross_entropy(model(sequences[:, :-1]).flatten(0, 1), sequences[:, 1:].flatten())

    def result() -> float:
        gs.project_(model)
        return loss_of(validation).item()

    return Job(model, lambda step: loss_of(sample(training, batch)), result)


def weights_of_blocks(name: str, parameter: nn.Parameter, module: nn.Module) -> bool:
    """Whether a parameter is the weight of a linear layer in a block."""
    return name.startswith("blocks.") and isinstance(module, nn.Linear) and parameter.dim() == 2


def pca(seed: int, *, n: int = 500, p: int = 30, batch: int = 64) -> Job:
    """Online PCA of N(0, U Uᵀ + 0.1 I), fresh samples in every step; relative gap of the explained variance."""
    model = seeded(seed, lambda: Subspace(n, p))
    gs.orthogonalize_(model, ["basis"])
    generator = torch.Generator().manual_seed(seed + 1000)  # of the start's seed, U would be the start
    U = gs.random_stiefel(n, p, generator=generator)

    def loss(step: int) -> Tensor:
        noise = torch.randn(batch, n, generator=generator)
        data = torch.randn(batch, p, generator=generator) @ U.mT + 0.1**0.5 * noise
        projected: Tensor = data @ model.basis
        return -projected.square().sum() / (2 * batch)

    def result() -> float:
        gs.project_(model)
        share = (U.double().mT @ model.basis.double()).square().sum().item() / p
        return (1 - share) / 1.1

    return Job(model, loss, result)


def wide_mlp(seed: int, *, width: int = 768, batch: int = 128) -> Job:
    """A width → 4 width → width MLP with orthonormal weights fitted to another one; relative loss of the last step."""
    return fit(seed, (width, 4 * width, width), batch)


def wide_square(seed: int, *, width: int = 2048, batch: int = 128) -> Job:
    """A square layer with an orthonormal weight fitted to another one; relative loss of the last step."""
    return fit(seed, (width, width), batch)


@functools.lru_cache(maxsize=2)
def orthonormal_mlp(widths: tuple[int, ...], seed: int) -> nn.Module:
    """Linear layers of these widths, each followed by a GELU but for the last one; to be copied, not trained."""

    def build() -> nn.Module:
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.GELU()]
        return nn.Sequential(*layers[:-1])

    model = seeded(seed, build)
    gs.orthogonalize_(model)
    return model


def fit(seed: int, widths: tuple[int, ...], batch: int) -> Job:
    """Regression on an MLP of the same form, relative to the size of its output."""
    model, target = copy.deepcopy(orthonormal_mlp(widths, seed)), orthonormal_mlp(widths, seed + 1000)
    generator = torch.Generator().manual_seed(seed)
    losses: list[float] = []

    def loss(step: int) -> Tensor:
        inputs = torch.randn(batch, widths[0], generator=generator)
        with torch.no_grad():
            wanted = target(inputs)
        found: Tensor = (model(inputs) - wanted).square().mean() / wanted.square().mean()
        losses.append(found.item())
        return found

    return Job(model, loss, lambda: losses[-1])


def works(data: Path | None) -> list[Work]:
    """All kinds of work; learning rates a factor of three apart, around the best of a short probe."""
    sgd, gap, relative = (("momentum", 0.9),), "relative gap of the explained variance", "relative loss"
    return [
        Work("cnn", lambda seed: cnn(seed, data), 400, "sgd", (0.03, 0.1, 0.3), cosine, "accuracy, %", True, sgd),
        Work("copy memory", copy_memory, 300, "adam", (3e-3, 1e-2, 3e-2), cosine, "recall loss"),
        Work("text", text, 100, "adam", (3e-3, 1e-2, 3e-2), cosine, "validation loss"),
        Work("pca, constant lr", pca, 1500, "sgd", (2e-3, 6e-3, 1.8e-2), constant, gap),
        Work("pca, decaying lr", pca, 1500, "sgd", (5e-3, 1.5e-2, 4.5e-2), inverse_root, gap),
        Work("mlp 768", wide_mlp, 10, "adam", (1e-4, 3e-4, 1e-3), constant, relative),
        Work("square 2048", wide_square, 5, "adam", (1e-4, 3e-4, 1e-3), constant, relative),
    ]
