"""Mixed signals taken apart: a sine, a square wave, a sawtooth and noise, from four mixtures of them.

Waves are flatter than a Gaussian and Laplace noise is more peaked; OnlineICA finds out which is which. Mixtures tell
neither the order nor the sign of the sources: the picture has the recovered signals in the order of the true ones.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from glideslope.estimators import OnlineICA

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--output", type=Path, default="output/separated_signals.png", help="where the picture goes")
output = parser.parse_args().output

rng = np.random.default_rng(0)
seconds = np.arange(0, 20, 1 / 500)
sources = {
    "sine": np.sin(2 * np.pi * 1.1 * seconds),
    "square wave": np.sign(np.sin(2 * np.pi * 0.7 * seconds + 0.5)),
    "sawtooth": 2 * (1.7 * seconds % 1) - 1,
    "Laplace noise": rng.laplace(size=len(seconds)),
}
S = np.stack([source / source.std() for source in sources.values()], axis=1)
mixing = rng.normal(size=(4, 4))
mixtures = S @ mixing.T  # one sample per row, one mixture per column

ica = OnlineICA(random_state=0)
recovered = ica.fit_transform(mixtures)

correlation = np.corrcoef(S.T, recovered.T)[:4, 4:]
match = np.abs(correlation).argmax(1)
recovered = recovered[:, match] * np.sign(correlation[range(4), match])
print(f"passes over {len(mixtures)} samples: {ica.n_iter_}")
for name, source, found in zip(sources, S.T, recovered.T, strict=True):
    print(f"correlation of the {name} {np.corrcoef(source, found)[0, 1]:.4f}")

figure, panels = plt.subplots(4, 2, figsize=(9, 5), sharex=True, layout="constrained")
shown = seconds < 5
for row, name in zip(range(4), sources, strict=True):
    panels[row, 0].plot(seconds[shown], mixtures[shown, row], color="#555555", linewidth=1)
    panels[row, 0].set(ylabel=f"mixture {row + 1}", yticks=[])
    panels[row, 1].plot(seconds[shown], recovered[shown, row], color="#0072b2", linewidth=1)
    panels[row, 1].set(ylabel=name, yticks=[])
panels[0, 0].set_title("what is measured")
panels[0, 1].set_title("what OnlineICA finds")
for panel in panels[-1]:
    panel.set_xlabel("seconds")
output.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(output, dpi=110)
print(f"The picture is in {output}")
