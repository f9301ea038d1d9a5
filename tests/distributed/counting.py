"""Counts what ranks send each other: calls and bytes of every collective operation."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Traffic(TorchDispatchMode):
    """Records (operation, bytes of its input) of every collective inside."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.namespace in ("c10d", "_c10d_functional"):
            name = function._schema.name.split("::")[1]
            if not name.startswith(("wait", "barrier")):
                self.calls.append((name, bytes_of(args[0])))
        return function(*args, **(kwargs or {}))

    @property
    def total(self):
        return sum(size for _, size in self.calls)


def bytes_of(value):
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    return sum(map(bytes_of, value)) if isinstance(value, (list, tuple)) else 0
