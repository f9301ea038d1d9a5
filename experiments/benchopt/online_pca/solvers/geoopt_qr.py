import time

import geoopt
import torch
from benchmark_utils.pca import Solver as SharedSolver


class Solver(SharedSolver):
    """RiemannianSGD of geoopt on its EuclideanStiefel, a foreign witness: same batches, same gradient by hand."""

    name = "geoopt-qr"
    requirements = ["pip::geoopt"]  # noqa: RUF012

    def run(self, callback):
        task = self.task
        data, step_size_at = task.samples.data, task.step_size_at(self.step_size)
        manifold = geoopt.EuclideanStiefel()
        X = geoopt.ManifoldParameter(task.X0.clone(), manifold=manifold)
        optimizer = geoopt.optim.RiemannianSGD([X], lr=self.step_size)
        generator = torch.Generator().manual_seed(task.seed)
        seconds, step, batches = 0.0, 0, []
        n_steps = round(task.epochs * task.steps_per_epoch)
        while True:
            over = step >= n_steps or (task.max_seconds is not None and seconds >= task.max_seconds)
            due = step % task.record_every == 0 or over
            if due and not self.observe(callback, X, step / task.steps_per_epoch, seconds):
                return
            if over:
                return
            started = time.perf_counter()
            if not batches:  # the order in which `minimize` draws them
                permutation = torch.randperm(len(data), generator=generator)
                batches = list(torch.split(permutation, task.batch_size))[::-1]
            A = data[batches.pop()]
            with torch.no_grad():
                X.grad = A.mT @ (A @ X).div_(-len(A))
            optimizer.param_groups[0]["lr"] = step_size_at(step)
            try:
                optimizer.step()
            except torch.linalg.LinAlgError:
                self.observe(callback, None, step / task.steps_per_epoch, seconds, "diverged")
                return
            seconds += time.perf_counter() - started
            step += 1
