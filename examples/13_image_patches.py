"""What photographs are made of: independent components of image patches are oriented edges and bars.

Patches of 12 x 12 pixels are cut at random out of scikit-learn's two photographs (read by Pillow), and OnlineICA looks
for the filters whose answers are the least Gaussian. The principal components of the same patches, the rows of
`whitening_` up to their length, are waves over the whole patch. How oriented a filter is, is measured by the coherence
of its gradients: 1 if all of them have the same direction, 0 if they have all directions alike.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_images
from sklearn.feature_extraction.image import extract_patches_2d

from glideslope.estimators import OnlineICA

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--output", type=Path, default="output/image_patches.png", help="where the picture goes")
output = parser.parse_args().output

SIDE, ROWS, PATCHES = 12, 8, 25_000  # patches of each photograph
photographs = [image.mean(2, dtype="float32") for image in load_sample_images().images]
cut = [extract_patches_2d(image, (SIDE, SIDE), max_patches=PATCHES, random_state=0) for image in photographs]
patches = np.concatenate(cut).reshape(-1, SIDE**2)
patches -= patches.mean(1, keepdims=True)

ica = OnlineICA(ROWS**2, random_state=0).fit(patches)
print(f"passes over {len(patches)} patches: {ica.n_iter_}")


def oriented(filters):
    down, right = np.gradient(filters.reshape(-1, SIDE, SIDE), axis=(1, 2))
    doubled = (right + 1j * down) ** 2  # opposite gradients have the same orientation
    return np.mean(np.abs(doubled.sum((1, 2))) / np.abs(doubled).sum((1, 2)) > 0.5)


def kurtosis(filters):
    answers = (patches - ica.mean_) @ filters.T
    return np.median(np.mean((answers / answers.std(0)) ** 4, axis=0) - 3)  # 0 for a Gaussian


figure, halves = plt.subplots(1, 2, figsize=(9, 4.8), layout="constrained")
for panel, name, filters in zip(halves, ("principal", "independent"), (ica.whitening_, ica.components_), strict=True):
    print(f"share of {name} components that are oriented {oriented(filters):.2f}")
    print(f"median kurtosis of {name} components {kurtosis(filters):.1f}")
    tiles = (filters / np.abs(filters).max(1, keepdims=True)).reshape(ROWS, ROWS, SIDE, SIDE)
    tiles = np.pad(tiles, ((0, 0), (0, 0), (0, 1), (0, 1)), constant_values=1)
    panel.imshow(tiles.swapaxes(1, 2).reshape(ROWS * (SIDE + 1), -1), cmap="gray", vmin=-1, vmax=1)
    panel.set(title=f"{name} components", xticks=[], yticks=[])
output.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(output, dpi=110)
print(f"The picture is in {output}")
