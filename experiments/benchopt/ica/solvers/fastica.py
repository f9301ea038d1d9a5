import time
import warnings

import numpy as np
import torch
from benchmark_utils.ica import Solver as SharedSolver
from sklearn.decomposition import fastica
from sklearn.exceptions import ConvergenceWarning


class Solver(SharedSolver):
    """FastICA of scikit-learn, parallel, log cosh, on data that are white already, with growing iterations."""

    name = "fastica"
    requirements = ["scikit-learn"]  # noqa: RUF012

    def run(self, callback):
        data = self.task.mixture.data.numpy()
        n = data.shape[1]
        self.observe(callback, torch.eye(n, dtype=torch.float64), 0.0, 0.0)
        options = {"whiten": False, "fun": "logcosh", "w_init": np.eye(n), "tol": 1e-10}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            fastica(data, **options, max_iter=1)  # the first call of all is slower, and not counted
            for iterations in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144):
                started = time.perf_counter()
                _, W, _ = fastica(data, **options, max_iter=iterations)
                seconds = time.perf_counter() - started
                if not self.observe(callback, torch.from_numpy(W).mT.contiguous(), float(iterations), seconds):
                    return
                if iterations >= self.task.epochs:
                    return
