"""What the benchmark of recordings measures, its record and the page."""

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sklearn")

from benchmarks.estimators import recordings

PAGE = Path(__file__).parents[2] / "docs" / "estimators.md"
RECORD = json.loads(recordings.RESULTS.read_text(encoding="utf-8"))["recordings"]


def test_the_page_has_the_table_of_the_record():
    assert "\n".join(recordings.table(RECORD)) in PAGE.read_text(encoding="utf-8")


def test_recorded_fits_are_faster_than_fastica_and_as_far_from_gaussian():
    assert len(RECORD) == 4
    for one in RECORD.values():
        assert one["time_ratio"] < 0.5
        assert one["J"]["ours"] > 0.99 * one["J"]["FastICA"]
    assert min(RECORD["EEG, 1 to 40 Hz, 15 components"]["correlation"].values()) > 0.95


def test_j_is_zero_for_gaussian_sources_and_the_square_of_the_difference_otherwise():
    generator = np.random.default_rng(0)
    assert recordings.negentropy(generator.standard_normal((400_000, 3))) < 1e-5
    flat = generator.uniform(-np.sqrt(3), np.sqrt(3), (400_000, 1))
    literal = (np.log(np.cosh(flat)).mean() - recordings.GAUSSIAN) ** 2
    assert recordings.negentropy(np.hstack([flat, -flat])) == pytest.approx(2 * literal)


def test_components_are_found_again_in_any_order_with_any_sign():
    Y = np.random.default_rng(0).laplace(size=(5000, 4))
    changed = np.stack([-Y[:, 2], Y[:, 0], Y[:, 1] + Y[:, 3], Y[:, 1] - Y[:, 3]], 1)
    assert recordings.found_again(Y, [Y[:, ::-1], changed]) == pytest.approx(0.75)
