"""CIFAR-10 from a folder or archive of the user's."""

import functools
from typing import ClassVar

from benchmark_utils.images import cifar
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "cifar10"
    parameters: ClassVar = {"path": ["data/cifar10"], "limit": [None]}

    def get_data(self):
        return {"load": functools.partial(cifar, self.path, self.limit)}
