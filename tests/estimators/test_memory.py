"""Data larger than memory: a fit of a huge file stays small."""

import subprocess
import sys

import numpy as np
import pytest

FIT = """
import resource, sys
import numpy as np, torch
from glideslope.estimators import {name}
torch.set_num_threads(2)
data = np.memmap(sys.argv[1], np.float32, "r", shape=({rows}, {width}))
fitted = {name}({arguments}).fit(data)
assert np.isfinite(fitted.components_).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def megabytes_of_a_fit(path, name, rows, width, arguments):
    """Peak resident memory of a process that fits a sparse file with noise in the first rows of every hundredth."""
    with path.open("wb") as file:
        file.truncate(rows * width * 4)
    data = np.memmap(path, np.float32, "r+", shape=(rows, width))
    generator = np.random.default_rng(0)
    for start in np.linspace(0, rows - 64, 100).astype(int):
        data[start : start + 64] = generator.laplace(size=(64, width))
    del data
    code = FIT.format(name=name, rows=rows, width=width, arguments=arguments)
    run = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    path.unlink()
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@pytest.mark.slow
def test_fitting_a_file_of_20_gigabytes_stays_under_one(tmp_path):
    assert (
        megabytes_of_a_fit(tmp_path / "data", "OnlinePCA", 1_000_000, 5_000, "10, n_epochs=2, tol=10, random_state=0")
        < 1000
    )


@pytest.mark.slow
def test_separating_a_file_of_4_gigabytes_stays_under_one(tmp_path):
    arguments = "random_state=0, max_iter=3, tol=10"
    assert megabytes_of_a_fit(tmp_path / "data", "OnlineICA", 50_000_000, 20, arguments) < 1000


@pytest.mark.slow
def test_a_fit_of_a_file_needs_no_more_memory_for_a_longer_file(tmp_path):
    short, long = (
        megabytes_of_a_fit(tmp_path / "data", "OnlinePCA", rows, 500, "5, random_state=0") for rows in (20_000, 120_000)
    )
    assert long < short + 100  # the file is 200 MB longer
