"""Problems whose columns are spread over ranks, or, with `spread` the identity, in one place."""

import torch

import glideslope as gs


def drawn(*shape, seed):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


DATA = drawn(40, 23, seed=1) * torch.linspace(1.5, 0.3, 23, dtype=torch.float64)
TARGETS = drawn(40, 3, seed=2)

PROBLEMS = {
    "pca": lambda spread: gs.problems.PCA(spread(DATA), 3),
    "ica": lambda spread: gs.problems.ICA(spread(DATA), 3, score="adaptive"),
    "procrustes": lambda spread: gs.problems.Procrustes(spread(DATA), TARGETS),
}

WAYS = {
    "auto": {"max_epochs": 30},
    "auto saga": {"gradient": "saga", "batch_size": 10, "max_epochs": 4},
    "auto minibatch": {"gradient": "minibatch", "batch_size": 7, "max_epochs": 4},
    "full": {"step_size": 0.05, "max_epochs": 20},
    "minibatch": {"step_size": 0.05, "gradient": "minibatch", "batch_size": 7, "max_epochs": 4, "sampling": "shuffle"},
    "saga": {"step_size": 0.05, "gradient": "saga", "batch_size": 10, "max_epochs": 4},
    "svrg": {"step_size": 0.05, "gradient": "svrg", "batch_size": 10, "max_epochs": 4, "normal_step": "newton-schulz"},
}
