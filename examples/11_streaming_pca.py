"""Eigen-digits from a stream: the principal components of scikit-learn's digits, learnt from batches of 16 images.

Every image is seen once, as it would be from a socket or a long file, and a batch has fewer images than there are
components. To compare, the picture shows the components of an exact decomposition, which needs all images at once.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from glideslope.estimators import OnlinePCA

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--output", type=Path, default="output/eigen_digits.png", help="where the picture goes")
output = parser.parse_args().output

COMPONENTS, BATCH = 20, 16
images = np.random.default_rng(0).permutation(load_digits().data)


def batches():
    for start in range(0, len(images), BATCH):
        yield images[start : start + BATCH]


online = OnlinePCA(COMPONENTS, random_state=0).fit_stream(batches())
exact = PCA(COMPONENTS, svd_solver="full").fit(images)


def captured(components):
    centred = images - images.mean(0)
    return np.square(centred @ components.T).sum() / np.square(centred).sum()


print(f"{online.n_samples_seen_} images in batches of {BATCH}, {COMPONENTS} components")
print(f"variance captured by the stream {captured(online.components_):.4f}")
print(f"variance captured by the exact components {captured(exact.components_):.4f}")
print(f"distance {np.linalg.norm(online.components_ @ online.components_.T - np.eye(COMPONENTS)):.1e}")

signs = np.sign((online.components_ * exact.components_).sum(1, keepdims=True))  # either sign is right
figure, panels = plt.subplots(4, 10, figsize=(9, 4.2), layout="constrained")
for row, (name, components) in enumerate((("stream", online.components_), ("exact", exact.components_ * signs))):
    for number, component in enumerate(components):
        panel, largest = panels[2 * (number // 10) + row, number % 10], np.abs(component).max()
        panel.imshow(component.reshape(8, 8), cmap="RdBu_r", vmin=-largest, vmax=largest)
        panel.set(xticks=[], yticks=[], ylabel=name if number % 10 == 0 else "")
output.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(output, dpi=110)
print(f"The picture is in {output}")
