"""Counts what a piece of code asks of the hardware: multiplications in matrix products, and calls."""

from torch.utils._python_dispatch import TorchDispatchMode

PRODUCTS = {"mm": 0, "bmm": 0, "addmm": 1, "addmm_": 1, "baddbmm": 1, "baddbmm_": 1}


class ProductCounter(TorchDispatchMode):
    """Adds up n k m over all (batches of) products of an n x k with a k x m matrix, in place or not."""

    def __init__(self):
        super().__init__()
        self.multiplications = self.calls = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in PRODUCTS:
            left, right = args[PRODUCTS[name] : PRODUCTS[name] + 2]
            self.multiplications += left.numel() * right.shape[-1]
            self.calls += 1
        return function(*args, **(kwargs or {}))
