"""OnlineICA on recordings: `python -m benchmarks.estimators.recordings --eeg FILE.npz`.

Their sources depend on each other. An EEG (`eeg_uV`, channels x samples, `eog_uV`, `sfreq`) with all its channels, the
same between 1 and 40 Hz with 15 components, one of which is the blink, and patches of scikit-learn's photographs.
Against FastICA with its faster whitening, both with defaults, float32, from five seeds, in turns in one process. Nobody
knows the true sources: J is the sum over components of (E log cosh y - that of a Gaussian)², larger is less Gaussian,
and a component counts as found again by another fit if one of its components correlates with it by more than 0.95.
Prints a table and writes benchmarks/results/recordings.json.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path

import numpy as np
import torch
from scipy.signal import butter, sosfiltfilt
from sklearn.datasets import load_sample_images
from sklearn.decomposition import FastICA
from sklearn.feature_extraction.image import extract_patches_2d
from threadpoolctl import threadpool_limits

from benchmarks.estimators.battery import about, timed
from glideslope.estimators import OnlineICA

RESULTS = Path(__file__).parents[1] / "results" / "recordings.json"
SEEDS = range(5)
GAUSSIAN = 0.3745672074914594  # E log cosh of a standard Gaussian
SAME = 0.95
MEANING = "medians over seeds; J and shares as defined in benchmarks/estimators/recordings.py"


def patches(side, each):
    """Patches of both photographs, less their mean."""
    photographs = [image.mean(2, dtype="float32") for image in load_sample_images().images]
    cut = [extract_patches_2d(image, (side, side), max_patches=each, random_state=0) for image in photographs]
    found = np.concatenate(cut).reshape(-1, side**2)
    return found - found.mean(1, keepdims=True)


def recordings(eeg):
    """Name -> samples, number of components, and the signal that one of them should be, if there is one."""
    found = {
        "patches, 12 x 12, 64 components": (patches(12, 25_000), 64, None),
        "patches, 8 x 8, 63 components": (patches(8, 50_000), 63, None),
    }
    if eeg is not None:
        file = np.load(eeg)
        band = butter(4, (1, 40), "bandpass", fs=float(file["sfreq"]), output="sos")
        filtered, eye = (sosfiltfilt(band, file[name]).T.astype("float32") for name in ("eeg_uV", "eog_uV"))
        found["EEG, all channels"] = (file["eeg_uV"].T.astype("float32"), None, None)
        found["EEG, 1 to 40 Hz, 15 components"] = (filtered, 15, eye[:, 0])
    return found


def negentropy(Y):
    """J of sources of unit variance."""
    size = np.abs(Y.astype(np.float64))
    contrast = (size + np.log1p(np.exp(-2 * size)) - np.log(2)).mean(0)
    return float(np.square(contrast - GAUSSIAN).sum())


def found_again(Y, others):
    """Share of the components of Y that each of the others has too: the mean over the others."""
    p = Y.shape[1]
    return statistics.fmean(float((np.abs(np.corrcoef(Y.T, Z.T)[:p, p:]).max(1) > SAME).mean()) for Z in others)


def compare(X, p, signal):
    """Medians over seeds of both estimators."""
    fast = {"whiten": "unit-variance", "whiten_solver": "eigh"}
    seconds, sources, passes = {"ours": [], "FastICA": []}, {"ours": [], "FastICA": []}, []
    for seed in SEEDS:
        makers = {
            "ours": lambda seed=seed: OnlineICA(p, random_state=seed),
            "FastICA": lambda seed=seed: FastICA(p, random_state=seed, **fast),
        }
        fitted, took = timed(makers, X, rounds=2)
        passes.append(fitted["ours"].n_iter_)
        for name, one in fitted.items():
            Y = one.transform(X)
            sources[name].append(Y / Y.std(0))
            seconds[name].append(took[name])
    ours, theirs = sources["ours"], sources["FastICA"]
    found = {
        "seconds": {name: statistics.median(times) for name, times in seconds.items()},
        "time_ratio": statistics.geometric_mean(a / b for a, b in zip(*seconds.values(), strict=True)),
        "passes": statistics.median(passes),
        "J": {name: statistics.median(map(negentropy, each)) for name, each in sources.items()},
        "found again": {
            "ours, other seeds": statistics.fmean(found_again(Y, ours[:k] + ours[k + 1 :]) for k, Y in enumerate(ours)),
            "FastICA, other seeds": statistics.fmean(
                found_again(Y, theirs[:k] + theirs[k + 1 :]) for k, Y in enumerate(theirs)
            ),
            "FastICA's by ours": statistics.fmean(found_again(Y, ours) for Y in theirs),
        },
    }
    if signal is not None:
        found["correlation"] = {
            name: min(float(np.abs(np.corrcoef(signal, Y.T)[0, 1:]).max()) for Y in each)
            for name, each in sources.items()
        }
    return found


def table(recordings):
    """Of docs/estimators.md."""
    titles = ("recording", "seconds, ours and FastICA's", "J, ours and FastICA's", "ours found again")
    yield "| " + " | ".join((*titles, "FastICA's", "FastICA's by ours")) + " |"
    yield "|---|---|---|---|---|---|"
    for name, one in recordings.items():
        seconds, J = (", ".join(f"{value:.3g}" for value in one[what].values()) for what in ("seconds", "J"))
        again = " | ".join(f"{100 * share:.0f} %" for share in one["found again"].values())
        yield f"| {name} | {seconds} | {J} | {again} |"


def main():
    """Run, record and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--eeg", type=Path, help="an .npz file; left out without it")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="print the table of what is recorded, and run nothing")
    options = parser.parse_args()
    if options.table:
        print("\n".join(table(json.loads(options.output.read_text(encoding="utf-8"))["recordings"])))
        return
    torch.set_num_threads(options.threads)
    jobs = {}
    with threadpool_limits(options.threads):
        for name, (X, p, signal) in recordings(options.eeg).items():
            jobs[name] = one = compare(X, p, signal)
            print(f"{name:34}", json.dumps(one), flush=True)
    text = json.dumps({"about": about(options, MEANING), "recordings": jobs}, indent=1)
    options.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
