"""The model of the text."""

import functools
from typing import ClassVar

from benchmark_utils.pca import text_samples
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "text"
    parameters: ClassVar = {"n_samples": [15_000], "n": [5000], "p": [100, 200, 500, 1000], "seed": [0]}
    test_parameters: ClassVar = {"n_samples": [200], "n": [40], "p": [5]}

    def get_data(self):
        load = functools.partial(text_samples, self.n_samples, self.n, self.p, self.seed)
        return {"load": load, "n_components": self.p}
