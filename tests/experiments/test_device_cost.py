"""Memory and time on a GPU, from operation counts: those of the networks by hand, and what the page says."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments import device_cost
from experiments.scales import SCALES

PAPER = SCALES["paper"].cnn
PAGE = (Path(__file__).parents[2] / "docs" / "experiments.md").read_text(encoding="utf-8")
# Channels of VGG16 at width 64, and the side of the images that each convolution sees.
CHANNELS = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
SIDES = (32, 32, 16, 16, 8, 8, 8, 4, 4, 4, 2, 2, 2)


def test_a_step_is_three_times_the_convolutions_and_little_else():
    forward = sum(2 * 9 * a * b * s * s for a, b, s in zip(CHANNELS, CHANNELS[1:], SIDES, strict=False))
    first = 2 * 9 * 3 * 64 * 32 * 32  # no gradient of the images
    found = device_cost.cost("vgg16", PAPER)
    assert found.step_operations == pytest.approx(128 * (3 * forward - first), rel=0.25)
    assert found.step_operations > 128 * (3 * forward - first)
    assert found.epoch_seconds == pytest.approx(391 * found.step_operations / device_cost.SUSTAINED)


def test_half_the_batch_keeps_half_the_activations():
    whole, half = (device_cost.cost("vgg16", replace(PAPER, batch_size=size)).bytes for size in (128, 64))
    fixed = 60_000 * 3072 * 4
    assert fixed < half < whole
    # The first convolution keeps 128 x 64 x 32 x 32 numbers for its norm, and so does each of the next two layers.
    assert whole - half > 3 * 64 * 64 * 32 * 32 * 4


def test_the_page_has_these_numbers():
    for line in device_cost.table():
        assert line in PAGE
