"""Does OnlineICA meet its targets on every kind of sources? `python -m benchmarks.estimators.battery`.

OnlineICA against FastICA on twelve kinds of sources, four sizes and ten data sets each, and its stream against its fit.
All with defaults, float32, fits that take turns in one process. Every kind and size is added to
benchmarks/results/estimator_battery.json as it ends and is not repeated; a table says which targets are met, and
`--table` prints that of docs/estimators.md. Takes about 20 minutes on two threads; `--minutes 7` stops after that time,
to be started again. Of PCA: `benchmarks.estimators.pca_battery`.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import subprocess
import time
import warnings
from pathlib import Path

import numpy as np
import sklearn
import torch
from sklearn.decomposition import FastICA
from threadpoolctl import threadpool_limits

import glideslope as gs
from benchmarks.estimators.sources import KINDS, SIZES, amari, mixed
from glideslope.estimators import OnlineICA

RESULTS = Path(__file__).parents[1] / "results" / "estimator_battery.json"
# Threads of one library spin for a while after its work, and slow down the other.
PAUSE = 0.02
MEANING = "medians over data sets, and ratios of ours to FastICA's"


def timed(makers, X, rounds=1):
    """The fitted estimators and the least seconds of each, in turns."""
    fitted, seconds = {}, dict.fromkeys(makers, math.inf)
    for _ in range(rounds):
        for name, make in makers.items():
            estimator = make()
            time.sleep(PAUSE)
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted[name] = estimator.fit(X)
            seconds[name] = min(seconds[name], time.perf_counter() - started)
    return fitted, seconds


def separate(kind, n, N, seed):
    """Amari distances and seconds on one data set."""
    X, mixing = mixed(kind, n, N, seed)
    options = {"whiten": "unit-variance", "whiten_solver": "eigh", "random_state": 0}
    makers = {"ours": lambda: OnlineICA(random_state=0), "FastICA": lambda: FastICA(tol=1e-4, **options)}
    fitted, seconds = timed(makers, X, rounds=5 if N <= 10_000 else 2)
    found = {"seconds": seconds, "passes": fitted["ours"].n_iter_}
    found["amari"] = {name: amari(one.components_ @ mixing) for name, one in fitted.items()}
    if N <= 50_000:  # FastICA at its best: converged
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tight = FastICA(tol=1e-7, max_iter=400, **options).fit(X)
        found["amari"]["FastICA"] = min(found["amari"]["FastICA"], amari(tight.components_ @ mixing))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stream = OnlineICA(random_state=0).fit_stream(np.array_split(X, max(1, len(X) // 500)))
    found["amari"]["stream"] = amari(stream.components_ @ mixing)
    return found


def ratio(values):
    """Geometric mean."""
    return math.exp(statistics.fmean(math.log(value) for value in values))


def of_size(kind, n, N, seeds):
    """Medians over data sets, and ratios: of medians for distances, geometric means for times."""
    found = [separate(kind, n, N, seed) for seed in range(seeds)]
    middle = {
        what: {name: statistics.median(one[what][name] for one in found) for name in found[0][what]}
        for what in ("amari", "seconds")
    }
    amaris = middle["amari"]
    return middle | {
        "amari_ratio": amaris["ours"] / amaris["FastICA"],
        "stream_ratio": amaris["stream"] / amaris["ours"],
        "time_ratio": ratio(one["seconds"]["ours"] / one["seconds"]["FastICA"] for one in found),
        "passes": statistics.median(one["passes"] for one in found),
        "data_sets": len(found),
    }


def of_kind(sizes):
    """Geometric means over sizes."""
    return {name: ratio(one[name] for one in sizes.values()) for name in ("amari_ratio", "stream_ratio", "time_ratio")}


def verdicts(ica):
    """Every target with what was found."""
    ica = {kind: of_kind(sizes) for kind, sizes in ica.items()}
    names = ("amari_ratio", "stream_ratio", "time_ratio")
    worst = {name: max(ica, key=lambda kind, name=name: ica[kind][name]) for name in names}
    mean = ratio(one["time_ratio"] for one in ica.values())
    targets = [
        (f"ICA: {text} at most {most} on every kind", ica[worst[name]][name], most, worst[name])
        for text, name, most in (
            ("Amari distance of fit over FastICA's", "amari_ratio", 1.05),
            ("time of fit over FastICA's", "time_ratio", 1.0),
            ("Amari distance of the stream over fit's", "stream_ratio", 1.5),
        )
    ]
    targets.append(("ICA: time over FastICA's at most half in the mean", mean, 0.5, "all kinds"))
    return targets


def table(ica):
    """Of docs/estimators.md."""
    sizes = [f"{n} x {N}" for n, N in SIZES]
    yield "| sources | Amari distance, ours over FastICA's | stream over fit | time, ours over FastICA's | at " + (
        ", ".join(sizes) + " |"
    )
    yield "|---|---|---|---|---|"
    for kind, found in ica.items():
        if not found:
            continue
        mean = of_kind(found)
        each = ", ".join(f"{one['time_ratio']:.2f}" for one in found.values())
        yield f"| {kind} | " + " | ".join(f"{mean[name]:.2f}" for name in mean) + f" | {each} |"


def main():
    """Run what is not recorded, record and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=10, help="data sets of each kind and size of sources")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start nothing more after this time")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="print the table of what is recorded, and run nothing")
    options = parser.parse_args()
    record = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    ica = record.get("ica", {})
    if options.table:
        print("\n".join(table(ica)))
        return
    torch.set_num_threads(options.threads)
    started = time.perf_counter()
    jobs = []
    for n, N in SIZES:
        for kind in KINDS:
            found = lambda kind=kind, n=n, N=N: of_size(kind, n, N, options.seeds)  # noqa: E731
            jobs.append((ica.setdefault(kind, {}), f"{n} x {N}", found))
    with threadpool_limits(options.threads):
        for place, name, run in jobs:
            if name not in place and time.perf_counter() - started < 60 * options.minutes:
                place[name] = run()
                text = json.dumps({"about": about(options, MEANING), "ica": ica}, indent=1)
                options.output.write_text(text + "\n", encoding="utf-8")
    missing = sum(name not in place for place, name, _ in jobs)
    if missing:
        print(f"{missing} of {len(jobs)} left: start it again")
        return
    for text, found, most, where in verdicts(ica):
        print(f"{'met   ' if found <= most else 'MISSED'} {text:66} {found:8.3f}   {where}")


def about(options, meaning):
    """Where the last of the records came from, and what its numbers are."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "commit": commit.stdout.strip(),
        "versions": {"torch": torch.__version__, "numpy": np.__version__, "scikit-learn": sklearn.__version__}
        | {"python": platform.python_version(), "glideslope": gs.__version__},
        "threads": options.threads,
        "machine": platform.machine(),
        "dtype": "float32",
        "meaning": f"{meaning}; the commit is that of the last run",
    }


if __name__ == "__main__":
    main()
