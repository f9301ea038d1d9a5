"""Images ready for training: normalised, with the augmentation of their kind."""

import functools
from typing import NamedTuple

import torch

from benchmark_utils.cifar import read_cifar

CIFAR_MEAN, CIFAR_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
TEST_DIGITS = 360
EVERY_TENTH = 10


class Images(NamedTuple):
    """Training and test images with labels, the padding of random crops, and whether to mirror."""

    train: torch.Tensor
    train_labels: torch.Tensor
    test: torch.Tensor
    test_labels: torch.Tensor
    padding: int
    mirror: bool
    note: str

    def held_out(self):
        """Every tenth training image in place of the test images, for the choice of a step size."""
        index = torch.arange(len(self.train))
        kept, out = index % EVERY_TENTH != 0, index % EVERY_TENTH == 0
        return self._replace(
            train=self.train[kept],
            train_labels=self.train_labels[kept],
            test=self.train[out],
            test_labels=self.train_labels[out],
        )

    def first(self, count):
        """With at most `count` training images."""
        return self._replace(train=self.train[:count], train_labels=self.train_labels[:count])

    def to(self, device):
        """All images and labels on a device."""
        return self._replace(**{name: getattr(self, name).to(device) for name in self._fields[:4]})

    def draw(self, generator):
        """The order of an epoch and its random crops and mirror images: drawn on the CPU, moved where the images are.

        All at once, so that no step of the epoch copies from the host.
        """
        count, device = len(self.train), self.train.device
        order = torch.randperm(count, generator=generator)
        shift = torch.randint(2 * self.padding + 1, (2, count, 1), generator=generator)
        mirrored = torch.rand(count, 1, generator=generator) < (0.5 if self.mirror else 0.0)
        return Draws(order.to(device), shift.to(device), mirrored.to(device))

    def batches(self, draws, batch_size):
        """Augmented training images and their labels, batch by batch."""
        order, mirrored = draws.order.split(batch_size), draws.mirrored.split(batch_size)
        for index, shift, mirror in zip(order, draws.shift.split(batch_size, dim=1), mirrored, strict=True):
            yield self.augmented(index, shift, mirror), self.train_labels[index]

    def augmented(self, index, shift, mirrored):
        """Training images of an index, cropped from their padding and mirrored; channels last in memory."""
        batch = self.train[index]
        b, _, height, width = batch.shape
        padded = torch.nn.functional.pad(batch, (self.padding,) * 4)
        rows = shift[0] + torch.arange(height, device=batch.device)
        columns = shift[1] + torch.arange(width, device=batch.device)
        columns = torch.where(mirrored, columns.flip(1), columns)
        # One gather for all: image, channel, row, column.
        image = torch.arange(b, device=batch.device)[:, None, None]
        return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


class Draws(NamedTuple):
    """The random choices of an epoch: order, shift of every crop in both directions, and which are mirrored."""

    order: torch.Tensor
    shift: torch.Tensor
    mirrored: torch.Tensor


@functools.lru_cache(maxsize=1)
def digits(limit):
    """The 1797 digits of 8 x 8 pixels that come with scikit-learn."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = (torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16 - 0.305) / 0.376
    labels = torch.tensor(found.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    test, train = order[:TEST_DIGITS], order[TEST_DIGITS:][:limit]
    note = f"digits of scikit-learn: {len(train)} training and {len(test)} test images of 8 x 8"
    return Images(images[train], labels[train], images[test], labels[test], 1, False, note)


@functools.lru_cache(maxsize=1)
def cifar(path, limit):
    """CIFAR-10 with the crops and mirror images of the paper's runs."""
    found = read_cifar(path)
    mean, std = (torch.tensor(values).view(1, 3, 1, 1) for values in (CIFAR_MEAN, CIFAR_STD))
    parts = (torch.from_numpy(part.astype("float32")) for part in (found.train[:limit], found.test))
    train, test = (part.div_(255).sub_(mean).div_(std) for part in parts)
    train_labels, test_labels = (torch.from_numpy(labels) for labels in (found.train_labels[:limit], found.test_labels))
    note = found.note if limit is None else f"{found.note}; the first {limit} for training"
    return Images(train, train_labels, test.contiguous(memory_format=torch.channels_last), test_labels, 4, True, note)
