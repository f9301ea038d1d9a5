"""VGG16 and ResNet18 for small images, at a chosen width, and their convolutions as matrices."""

import torch
from torch import nn

VGG16 = (1, 1, "pool", 2, 2, "pool", 4, 4, 4, "pool", 8, 8, 8, "pool", 8, 8, 8, "pool")


def convolution(n_in, n_out, kernel=3, stride=1):
    return nn.Conv2d(n_in, n_out, kernel, stride, padding=kernel // 2, bias=False)


def vgg16(channels, side, width):
    """13 convolutions with batch normalisation and a linear layer; pools as long as there is something to pool."""
    layers, n_in = [], channels
    for item in VGG16:
        if item == "pool":
            layers += [nn.MaxPool2d(2)] if side > 1 else []
            side = max(1, side // 2)
        else:
            n_out = item * width
            layers += [convolution(n_in, n_out), nn.BatchNorm2d(n_out), nn.ReLU()]
            n_in = n_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, 10))


class Block(nn.Module):
    """Two 3 x 3 convolutions and a short cut."""

    def __init__(self, n_in, n_out, stride):
        super().__init__()
        self.first, self.first_norm = convolution(n_in, n_out, stride=stride), nn.BatchNorm2d(n_out)
        self.second, self.second_norm = convolution(n_out, n_out), nn.BatchNorm2d(n_out)
        self.short = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.short = nn.Sequential(convolution(n_in, n_out, kernel=1, stride=stride), nn.BatchNorm2d(n_out))

    def forward(self, x):
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(y)) + self.short(x))


def resnet18(channels, side, width):
    """The form for small images: a 3 x 3 stem without pooling, then eight blocks."""
    layers, n_in = [convolution(channels, width), nn.BatchNorm2d(width), nn.ReLU()], width
    for stage in range(4):
        n_out = width * 2**stage
        layers += [Block(n_in, n_out, stride=2 if stage else 1), Block(n_out, n_out, stride=1)]
        n_in = n_out
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n_in, 10))


NETWORKS = {"vgg16": vgg16, "resnet18": resnet18}


def build(name, channels, side, width, seed):
    """A network with weights that the seed alone decides; the global random state is left as it was."""
    if name not in NETWORKS:
        raise ValueError(f"network must be one of {', '.join(NETWORKS)}; got {name!r}")
    if width % 8:
        # Seen with torch 2.13: the backward pass of oneDNN's convolutions of 4, 5 or 6 channels corrupts memory.
        raise ValueError(f"width must be a multiple of 8; got {width}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return NETWORKS[name](channels, side, width)


def tall(weight):
    """A kernel as n_out x (n_in k²), transposed if that is wide: the matrix whose columns are to be orthonormal."""
    matrix = weight.flatten(1)
    return matrix if matrix.shape[0] >= matrix.shape[1] else matrix.mT


def kernels(model):
    """The weights of all convolutions, those of a parametrization as they are computed."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            yield module.weight
        elif hasattr(module, "flat_kernel"):
            yield module.flat_kernel()
