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

    def augmented(self, index, generator):
        """Training images of an index, cropped at random from their padding and mirrored at random."""
        batch = self.train[index]
        b, _, height, width = batch.shape
        padded = torch.nn.functional.pad(batch, (self.padding,) * 4)
        shift = torch.randint(2 * self.padding + 1, (2, b, 1), generator=generator)
        rows = shift[0] + torch.arange(height)
        columns = shift[1] + torch.arange(width)
        if self.mirror:
            mirrored = torch.rand(b, 1, generator=generator) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        # One gather for all: image, channel, row, column.
        return padded[torch.arange(b)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


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
    train, test = ((torch.from_numpy(part / 255).float() - mean) / std for part in (found.train[:limit], found.test))
    train_labels, test_labels = (torch.from_numpy(labels) for labels in (found.train_labels[:limit], found.test_labels))
    note = found.note if limit is None else f"{found.note}; the first {limit} for training"
    return Images(train, train_labels, test, test_labels, 4, True, note)
