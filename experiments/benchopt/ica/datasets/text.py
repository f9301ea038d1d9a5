"""The model of the text; the seed of the objective draws it."""

import functools
from typing import ClassVar

from benchmark_utils.ica import text_mixture
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "text"
    parameters: ClassVar = {"n_samples": [10_000], "n": [10]}
    test_parameters: ClassVar = {"n_samples": [500], "n": [3]}

    def get_data(self):
        return {"load": functools.partial(text_mixture, self.n_samples, self.n), "missing": None}
