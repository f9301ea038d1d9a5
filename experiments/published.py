"""Where the authors' published runs of the networks ended: VGG16 and ResNet18 of width 64, 150 epochs, one GPU.

Test accuracy and minutes of figures 5 and 7; the paper has the curves, these are their ends.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class End(NamedTuple):
    """The end of a published run."""

    accuracy: float
    minutes: float


ENDS: dict[str, dict[str, End]] = {
    "VGG16": {
        "landing": End(0.9139, 41),
        "riemannian-qr": End(0.9207, 80),
        "penalty-1": End(0.9236, 34),
        "penalty-1000": End(0.564, 35),
        "trivialization": End(0.8933, 1192),
    },
    "ResNet18": {
        "landing": End(0.9214, 67),
        "riemannian-qr": End(0.9299, 98),
        "penalty-1": End(0.9326, 60),
        "penalty-1000": End(0.388, 60),
    },
}


def ends_for(records: Any) -> dict[str, End]:
    """The published ends of the network of a study on CIFAR-10; none for other studies."""
    first = records.iloc[0]
    on_cifar = first["experiment"] == "cnn" and "CIFAR-10" in first["title"]
    return ENDS.get(first["title"].partition(" ")[0], {}) if on_cifar else {}
