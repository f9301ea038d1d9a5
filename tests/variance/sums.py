"""A small finite sum, and the corrected gradients of all its slots by enumeration."""

import copy
from functools import partial

import torch


class Sum:
    """f = Σ_i s_i f_i of two parameters; f_i is the mean of sizes[i] smooth terms, and s_i their share."""

    def __init__(self, generator, sizes=(1, 1, 1, 1, 1), dtype=torch.float64, shapes=((6, 3), (3,))):
        draw = partial(torch.randn, generator=generator, dtype=dtype)
        self.params = [torch.nn.Parameter(draw(shape)) for shape in shapes]
        self.sizes = list(sizes)
        self.targets = [[draw(size, *shape) for shape in shapes] for size in sizes]
        self.slots = len(self.sizes)

    def loss(self, slot):
        pairs = zip(self.params, self.targets[slot], strict=True)
        return sum(((param * param - target).abs().square().sum() for param, target in pairs)) / self.sizes[slot]

    def full_loss(self):
        return sum(self.sizes[slot] * self.loss(slot) for slot in range(self.slots)) / sum(self.sizes)

    def backward(self, slot):
        self.loss(slot).backward()

    def gradients(self, slot=None):
        return list(torch.autograd.grad(self.full_loss() if slot is None else self.loss(slot), self.params))

    def set_gradients(self, slot):
        for param, grad in zip(self.params, self.gradients(slot), strict=True):
            param.grad = grad

    def move(self, generator, by=0.1):
        with torch.no_grad():
            for param in self.params:
                param += by * torch.randn(param.shape, generator=generator, dtype=param.dtype)


def estimates(problem, method, correct):
    """The corrected gradient of every slot, each from the same state."""
    found = []
    saved = copy.deepcopy(method.state_dict())
    for slot in range(problem.slots):
        method.load_state_dict(saved)
        problem.set_gradients(slot)
        correct(method, slot)
        found.append([param.grad.clone() for param in problem.params])
    method.load_state_dict(saved)
    return found


def mean_over_slots(found):
    return [sum(grads) / len(found) for grads in zip(*found, strict=True)]


def saga_correct(method, slot):
    method.correct_(slot=slot)


def distances(found, expected):
    return max((a - b).abs().max().item() for a, b in zip(found, expected, strict=True))


def svrg_correct(problem):
    return lambda method, slot: method.correct_(lambda: problem.backward(slot))
