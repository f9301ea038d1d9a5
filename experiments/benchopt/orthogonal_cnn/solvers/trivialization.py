import geotorch
import torch
from benchmark_utils.training import Trainer
from torch import nn


class OrthogonalConv(nn.Module):
    """A convolution whose flattened kernel is parametrized by GeoTorch, at the given one."""

    def __init__(self, conv):
        super().__init__()
        self.shape, self.stride, self.padding = conv.weight.shape, conv.stride, conv.padding
        start = conv.weight.detach().flatten(1).clone()
        self.kernel_matrix = nn.Parameter(start.clone())
        geotorch.orthogonal(self, "kernel_matrix")
        self.kernel_matrix = start

    def flat_kernel(self):
        """The kernel as a matrix, in its own precision: an exponential of bfloat16 would be far from orthogonal."""
        with torch.autocast(next(self.parameters()).device.type, enabled=False):
            return self.kernel_matrix

    def forward(self, x):
        return nn.functional.conv2d(x, self.flat_kernel().view(self.shape), None, self.stride, self.padding)


class Solver(Trainer):
    """Trivialization: SGD of torch on the parameters of GeoTorch's parametrization, flattened kernels."""

    name = "trivialization"
    requirements = ["pip::geotorch"]  # noqa: RUF012

    def adapt(self, model):
        # GeoTorch completes a kernel to a square matrix at random, by the global state: here the seed decides.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.task.seed)
            for name, module in list(model.named_modules()):
                if isinstance(module, nn.Conv2d):
                    parent, _, last = name.rpartition(".")
                    setattr(model.get_submodule(parent), last, OrthogonalConv(module))
        return model

    def optimizer(self, model, step_size, weight_decay):
        kernels = [param for name, param in model.named_parameters() if "kernel_matrix" in name]
        others = [param for name, param in model.named_parameters() if "kernel_matrix" not in name]
        # Weight decay of the parametrization would pull towards its base point, not do what it does elsewhere.
        groups = [{"params": kernels, "weight_decay": 0.0}, {"params": others, "weight_decay": weight_decay}]
        return torch.optim.SGD(groups, lr=step_size)
