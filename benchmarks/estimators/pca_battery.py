"""Does OnlinePCA meet its targets on every kind of data? `python -m benchmarks.estimators.pca_battery`.

OnlinePCA with its defaults against IncrementalPCA and `PCA(svd_solver="randomized")` on five kinds of data, in sizes
that include more features than samples; float32. Two parts, each added to benchmarks/results/pca_battery.json as it
ends and not repeated: `--part gaps` (what is missing of the variance of an exact float64 decomposition) may run beside
other work, `--part seconds` (fits that take turns in one process, medians) needs a quiet machine. `--minutes 6` stops
after that time, to be started again. What is there is compared with the targets, and `--table` prints that
of docs/estimators.md.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits, load_sample_images
from sklearn.decomposition import PCA, IncrementalPCA
from threadpoolctl import threadpool_limits

from benchmarks.estimators.battery import about, ratio
from glideslope.estimators import OnlinePCA

RESULTS = Path(__file__).parents[1] / "results" / "pca_battery.json"
# Variances of float32 have no more digits: a smaller gap cannot be told from none.
ROUNDING = float(np.finfo(np.float32).eps) / 2
# Threads of one library spin for a while after its work, and slow down the other.
PAUSE = 0.05
# Rounds of fits that take turns last about this long in total, and are at least three.
SECONDS = 4.0
MEANING = "relative gaps and median seconds of each data set"


def paper_model(generator, N, n, p):
    """Rows from N(0, U Uᵀ + 0.1 I)."""
    U = np.linalg.qr(generator.standard_normal((n, p), dtype=np.float32))[0]
    data = generator.standard_normal((N, p), dtype=np.float32) @ U.T
    return data + math.sqrt(0.1) * generator.standard_normal((N, n), dtype=np.float32)


def with_variances(generator, N, variances):
    """Gaussian rows with these variances and a mean of ones, in the basis of a random reflection."""
    n = len(variances)
    data = generator.standard_normal((N, n), dtype=np.float32) * np.sqrt(variances).astype(np.float32)
    axis = generator.standard_normal(n, dtype=np.float32)
    axis /= np.linalg.norm(axis)
    return data - np.outer(2 * (data @ axis), axis) + 1


def inverse(generator, N, n, p):
    """Variances 1/k."""
    return with_variances(generator, N, 1 / np.arange(1, n + 1))


def flat(generator, N, n, p):
    """Variances from 1.1 down to 1."""
    return with_variances(generator, N, np.linspace(1.1, 1, n))


def patches(generator, N, n, p):
    """Square patches of the two photographs of scikit-learn, in colour."""
    size, found = math.isqrt(n // 3), []
    for image in load_sample_images().images:
        for _ in range(N // 2):
            i, j = generator.integers(image.shape[0] - size), generator.integers(image.shape[1] - size)
            found.append(image[i : i + size, j : j + size].ravel())
    return np.stack(found).astype(np.float32) / 255


def digits(generator, N, n, p):
    """Handwritten digits of scikit-learn, in random order."""
    return generator.permutation(load_digits().data.astype(np.float32))[:N]


@dataclass(frozen=True)
class Job:
    """Data of one kind and size.

    Args:
        kind: Its name.
        make: Makes the data from a generator and the three sizes.
        N: Samples.
        n: Features.
        p: Components.
        seeds: Data sets.
    """

    kind: str
    make: Callable[[np.random.Generator, int, int, int], np.ndarray]
    N: int
    n: int
    p: int
    seeds: int = 10

    @property
    def name(self):
        """Of the job in the record."""
        return f"{self.kind}, {self.N} x {self.n}, p = {self.p}"

    def data(self, seed):
        """Samples of one data set."""
        return self.make(np.random.default_rng(seed), self.N, self.n, self.p)


JOBS = [
    Job("digits", digits, 1_797, 64, 20),
    Job("digits", digits, 1_797, 64, 50),
    Job("digits", digits, 50, 64, 20),
    Job("variances 1/k", inverse, 300, 8_000, 20),
    Job("variances 1/k", inverse, 1_000, 5_000, 50),
    Job("nearly flat", flat, 1_000, 5_000, 50),
    Job("paper's model", paper_model, 1_500, 6_000, 50, seeds=3),
    Job("image patches", patches, 2_000, 3_072, 50, seeds=3),
    Job("variances 1/k", inverse, 3_000, 1_000, 20),
    Job("nearly flat", flat, 3_000, 1_000, 20),
    Job("image patches", patches, 20_000, 192, 30),
    Job("image patches", patches, 20_000, 768, 50, seeds=3),
    Job("paper's model", paper_model, 6_000, 2_000, 50, seeds=3),
    Job("variances 1/k", inverse, 6_000, 2_000, 50, seeds=3),
    Job("nearly flat", flat, 6_000, 2_000, 50, seeds=3),
    Job("paper's model", paper_model, 15_000, 5_000, 100, seeds=1),
]


def makers(job):
    """The methods. IncrementalPCA gets its default of five samples per feature unless that were all samples at once,
    which is an SVD of all data.
    """
    batch = 5 * job.n if 5 * job.n <= job.N / 2 else max(1000, 2 * job.p)
    return {
        "ours": lambda: OnlinePCA(job.p, random_state=0),
        "randomized": lambda: PCA(job.p, svd_solver="randomized", random_state=0),
        "incremental": lambda: IncrementalPCA(job.p, batch_size=min(batch, max(job.p, job.N // 2))),
    }


def fit(make, X):
    """A fitted estimator and its seconds."""
    estimator = make()
    time.sleep(PAUSE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.perf_counter()
        estimator.fit(X)
        return estimator, time.perf_counter() - started


def gaps(job, seed):
    """Relative gap of the captured variance to that of an exact decomposition, for each method, and our passes."""
    X = job.data(seed)
    wide = X.astype(np.float64)
    wide -= wide.mean(0)
    products = wide @ wide.T if job.n > job.N else wide.T @ wide
    best = float(np.linalg.eigvalsh(products)[-job.p :].sum())
    found = {}
    for method, make in makers(job).items():
        estimator, _ = fit(make, X)
        V = np.linalg.qr(estimator.components_.T.astype(np.float64))[0]
        found[method] = 1 - float(np.square(wide @ V).sum()) / best
        if method == "ours":
            found["passes"] = estimator.n_iter_
    return found


def seconds(job, seed):
    """Median seconds of each method; IncrementalPCA once where it takes long."""
    X = job.data(seed)
    each = {method: [fit(make, X)[1]] for method, make in makers(job).items()}
    rounds = min(15, max(3, int(SECONDS / job.seeds / (each["ours"][0] + each["randomized"][0]))))
    if sum(times[0] for times in each.values()) < SECONDS / job.seeds:  # small: the first round warms up
        each = {method: [] for method in each}
    for _ in range(rounds):
        for method, make in makers(job).items():
            if method != "incremental" or not each[method] or each[method][0] < 1:
                each[method].append(fit(make, X)[1])
    return {method: statistics.median(times) for method, times in each.items()}


def verdicts(record):
    """Every target of every job: its text, the worst found, the most allowed, the job."""
    for job in JOBS:
        of_gaps, of_seconds = (list(record[part].get(job.name, {}).values()) for part in ("gaps", "seconds"))
        if not of_gaps or not of_seconds:
            continue
        for other, factor in (("incremental", 1.0), ("randomized", 1.05)):
            mean = {method: statistics.fmean(one[method] for one in of_gaps) for method in ("ours", other)}
            yield f"gap over {other}'s", mean["ours"] / max(mean[other], ROUNDING), factor, job.name
        times = {
            other: ratio(one["ours"] / one[other] for one in of_seconds) for other in ("incremental", "randomized")
        }
        yield "time over incremental's", times["incremental"], 0.5, job.name
        yield "time over randomized's" + (", wide" if job.n > job.N else ""), times["randomized"], 1.0, job.name


def table(record):
    """Of docs/estimators.md."""
    yield "| data | gap, ours | randomized | incremental | time over randomized's | over incremental's | passes |"
    yield "|---|---|---|---|---|---|---|"
    for job in JOBS:
        of_gaps, of_seconds = (list(record[part].get(job.name, {}).values()) for part in ("gaps", "seconds"))
        if of_gaps:
            cells = [job.name]
            for method in ("ours", "randomized", "incremental"):
                mean = statistics.fmean(one[method] for one in of_gaps)
                cells.append("rounding" if mean < ROUNDING else f"{mean:.1e}")
            for other in ("randomized", "incremental"):
                ratios = [one["ours"] / one[other] for one in of_seconds]
                cells.append(f"{ratio(ratios):.2f}" if ratios else "not recorded")
            cells.append(f"{statistics.median(one['passes'] for one in of_gaps):g}")
            yield "| " + " | ".join(cells) + " |"


def main():
    """Run what is not recorded, record and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=["gaps", "seconds"], help="only this part; both by default")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start nothing more after this time")
    parser.add_argument("--only", default="", help="only jobs whose name has this in it")
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="print the table of what is recorded, and run nothing")
    options = parser.parse_args()
    record = json.loads(options.output.read_text(encoding="utf-8")) if options.output.exists() else {}
    parts = {"seconds": seconds, "gaps": gaps}
    record = {"about": about(options, MEANING)} | {part: record.get(part, {}) for part in parts}
    if options.table:
        print("\n".join(table(record)))
        return
    torch.set_num_threads(options.threads)
    started = time.perf_counter()
    with threadpool_limits(options.threads):
        for part in [options.part] if options.part else parts:
            for job in (job for job in JOBS if options.only in job.name):
                place = record[part].setdefault(job.name, {})
                for seed in map(str, range(job.seeds)):
                    if seed not in place and time.perf_counter() - started < 60 * options.minutes:
                        place[seed] = parts[part](job, int(seed))
                        print(part, job.name, seed, {k: float(f"{v:.3g}") for k, v in place[seed].items()}, flush=True)
                        options.output.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    missing = sum(job.seeds - len(record[part].get(job.name, {})) for part in parts for job in JOBS)
    if missing:
        print(f"{missing} of {2 * sum(job.seeds for job in JOBS)} data sets left: start it again")
    for text, found, most, where in verdicts(record):
        print(f"{'met   ' if found <= most else 'MISSED'} {text:30} {found:8.3f} of {most:4}   {where}")


if __name__ == "__main__":
    main()
