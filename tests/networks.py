"""Small versions of the networks users train: ResNet18 and VGG16 for 32 x 32 images, a transformer, an LSTM."""

import torch
from torch import nn


def small_model():
    """Convolutions, one of them grouped, linear layers and norms."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, groups=4),
        nn.Flatten(),
        nn.Linear(8, 6),
        nn.LayerNorm(6),
        nn.Linear(6, 2),
    )


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + self.shortcut(x))


def resnet18(width=8, classes=10):
    stages, inputs = [], width
    for k, outputs in enumerate((width, 2 * width, 4 * width, 8 * width)):
        stages += [Block(inputs, outputs, 1 if k == 0 else 2), Block(outputs, outputs, 1)]
        inputs = outputs
    stem = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def vgg16(width=8, classes=10):
    layers, inputs = [], 3
    for k, count in enumerate((2, 2, 3, 3, 3)):
        outputs = width * min(2**k, 8)
        for _ in range(count):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
            inputs = outputs
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs, classes))


class Transformer(nn.Module):
    def __init__(self, words=20, width=16):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.encoder(self.embed(tokens))).flatten(0, 1)


class Recurrent(nn.Module):
    def __init__(self, words=20, width=16):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0]).flatten(0, 1)
