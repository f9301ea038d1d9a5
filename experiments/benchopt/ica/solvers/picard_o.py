import time

import torch
from benchmark_utils.ica import Solver as SharedSolver
from picard import picard


class Solver(SharedSolver):
    """Picard-O, preconditioned L-BFGS on the orthogonal group, run anew with growing numbers of iterations."""

    name = "picard-o"
    requirements = ["pip::python-picard"]  # noqa: RUF012

    def run(self, callback):
        data = self.task.mixture.data.numpy()
        self.observe(callback, torch.eye(data.shape[1], dtype=torch.float64), 0.0, 0.0)
        options = {"ortho": True, "extended": False, "whiten": False, "centering": False, "tol": 1e-10}
        picard(data.T, **options, w_init=None, max_iter=1, random_state=0)  # the first call of all is slower
        for iterations in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144):
            started = time.perf_counter()
            _, W, _ = picard(data.T, **options, w_init=None, max_iter=iterations, random_state=0)
            seconds = time.perf_counter() - started
            # Each iteration needs the gradient at least once; its line search may need it more often.
            if not self.observe(callback, torch.from_numpy(W).mT.contiguous(), float(iterations), seconds):
                return
            if iterations >= self.task.epochs:
                return
