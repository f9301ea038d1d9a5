import torch
from benchmark_utils.training import Trainer


class Solver(Trainer):
    """SGD of torch without any constraint."""

    name = "unconstrained"

    def optimizer(self, model, step_size, weight_decay):
        return torch.optim.SGD(model.parameters(), lr=step_size, weight_decay=weight_decay)
