"""The digits of scikit-learn, the default: no file is needed."""

import functools
from typing import ClassVar

from benchmark_utils.images import digits
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "digits"
    parameters: ClassVar = {"limit": [None]}
    test_parameters: ClassVar = {"limit": [64]}

    def get_data(self):
        return {"load": functools.partial(digits, self.limit)}
