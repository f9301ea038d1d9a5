"""Memory and time of the networks on a GPU, from operation counts: `python -m experiments.device_cost`.

Nothing is computed: one step of landing is run on tensors of torch's device "meta", which have shapes and no values.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import torch

from experiments.scales import SCALES
from experiments.settings import NETWORKS, Cnn

SUSTAINED = 10e12
"""Floating-point operations per second that a GPU is assumed to sustain: half of an A100's peak in float32."""
CIFAR = 50_000, 10_000


class Cost(NamedTuple):
    """What the training of one network needs."""

    step_operations: int
    """Floating-point operations of a step: network, backward pass and the products of landing."""
    bytes: int
    """All images, parameters, gradients, and what the backward pass keeps."""
    epoch_seconds: float
    """At SUSTAINED."""


def cost(network: str, setting: Cnn) -> Cost:
    """Of one step of landing with the library's defaults, and of an epoch of such steps."""
    from torch.utils.flop_counter import FlopCounterMode

    training = benchmark_module("training")
    pixels = torch.empty(setting.batch_size, 3, 32, 32, device="meta").contiguous(memory_format=torch.channels_last)
    labels = torch.empty(setting.batch_size, dtype=torch.long, device="meta")
    model = training.Task(NoImages(), network, setting.width, 0, 0, (), 0.0, None, 0).model().to("meta").train()
    optimizer = training.Orthogonal().optimizer(model, 0.1, setting.weight_decay)
    kept: dict[Any, int] = {}

    def keep(tensor: Any) -> Any:
        kept[tensor.untyped_storage()._cdata] = tensor.untyped_storage().nbytes()
        return tensor

    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda found: found):
        training.train_step(model, optimizer, pixels, labels)
    weights = sum(param.numel() * param.element_size() for param in model.parameters())
    images = sum(CIFAR) * 3 * 32 * 32 * 4
    steps = -(-CIFAR[0] // setting.batch_size)
    operations = counter.get_total_flops()
    return Cost(operations, images + 2 * weights + sum(kept.values()), steps * operations / SUSTAINED)


class NoImages:
    """Only the shape of the images."""

    train = torch.empty(0, 3, 32, 32)


def benchmark_module(name: str) -> Any:
    """A module of the benchmark of networks, which Benchopt alone has on its path."""
    import importlib

    folder = str(Path(__file__).parent / "benchopt" / "orthogonal_cnn")
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(f"benchmark_utils.{name}")
    finally:
        sys.path.remove(folder)


def table() -> list[str]:
    """One line per network at the paper's size."""
    setting = SCALES["paper"].cnn
    lines = []
    for network, title in NETWORKS.items():
        found = cost(network, setting)
        run = setting.epochs * found.epoch_seconds
        lines.append(
            f"| {title} | {found.step_operations / 1e12:.2f} Tflop | {found.bytes / 1e9:.1f} GB | "
            f"{found.epoch_seconds:.0f} s | {run / 60:.0f} min |"
        )
    return lines


if __name__ == "__main__":
    print("\n".join(table()))
