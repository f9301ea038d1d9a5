"""A real EEG, given by path; skipped with its reason when absent."""

from typing import ClassVar

from benchmark_utils.ica import eeg_mixture, missing
from benchopt import BaseDataset


class Dataset(BaseDataset):
    name = "eeg"
    parameters: ClassVar = {"path": [""], "n": [15]}

    def get_data(self):
        return {"load": lambda seed: eeg_mixture(self.path, self.n), "missing": missing(self.path)}
