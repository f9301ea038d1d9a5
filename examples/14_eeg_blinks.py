"""Blinks of the eye in an EEG: the channels are mixtures, and one of 15 independent components is the blink.

Run it as `python examples/14_eeg_blinks.py eeg.npz`. The file has `eeg_uV` (channels x samples), `eog_uV` (1 x samples,
the electrode by the eye, which is only compared with) and `sfreq` (samples per second). Taking what the component adds
to every channel away from the recording leaves an EEG without blinks.
"""

import argparse
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.signal import butter, sosfiltfilt

from glideslope.estimators import OnlineICA

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("file", type=Path, nargs="?", help="an .npz file with eeg_uV, eog_uV and sfreq")
parser.add_argument("--output", type=Path, default="output/eeg_blink.png", help="where the picture goes")
arguments = parser.parse_args()
if arguments.file is None:
    print("Give a recording: an .npz file with eeg_uV (channels x samples), eog_uV (1 x samples) and sfreq (in Hz)")
    sys.exit()

recording = np.load(arguments.file)
band = butter(4, (1, 40), "bandpass", fs=float(recording["sfreq"]), output="sos")
eeg, eog = (sosfiltfilt(band, recording[name]).T for name in ("eeg_uV", "eog_uV"))  # one sample per row

ica = OnlineICA(15, random_state=0).fit(eeg)
sources = ica.transform(eeg)
correlation = np.corrcoef(eog[:, 0], sources.T)[0, 1:]
second, blink = np.abs(correlation).argsort()[-2:]
print(f"passes over {len(eeg)} samples: {ica.n_iter_}")
print(f"correlation of the best component with the EOG {abs(correlation[blink]):.3f}")
print(f"correlation of the second best {abs(correlation[second]):.3f}")

component, weights = sources[:, blink], ica.mixing_[:, blink]
cleaned = eeg - np.outer(component, weights)
channel = weights.argmax()

figure, panels = plt.subplots(3, 1, figsize=(9, 6.4), layout="constrained")
shown = slice(0, int(12 * recording["sfreq"]))
seconds = np.arange(len(eeg))[shown] / recording["sfreq"]
scale = np.sign(correlation[blink]) / eog.std()
panels[0].plot(seconds, eog[shown, 0] * scale, color="#d55e00", label="EOG, scaled", linewidth=2.5)
panels[0].plot(seconds, component[shown], color="#0072b2", label="component", linewidth=1)
panels[1].plot(seconds, eeg[shown, channel], color="#999999", label=f"channel {channel}, µV", linewidth=1)
panels[1].plot(seconds, cleaned[shown, channel], color="#009e73", label="without the component", linewidth=1)
panels[2].bar(range(len(weights)), weights, color="#0072b2", label="mixing weight, µV")
for panel, label in zip(panels, ("seconds", "seconds", "channel"), strict=True):
    panel.set_xlabel(label)
    panel.legend(frameon=False, loc="upper right", ncols=2)
arguments.output.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(arguments.output, dpi=110)
print(f"The picture is in {arguments.output}")
