"""The recorded runs in the repository, and what the documentation says of them."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

from experiments import records
from experiments.claims import verdicts

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "experiments" / "results" / "records"
PAGE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")


def test_the_page_says_what_the_records_say():
    found = {row.claim: row.outcome for row in verdicts(records.read(RECORDED))}
    said = dict(re.findall(r"^\| (.+?) \| (?:§ [^|]*) \| \**(holds|does not hold|not tested[^|*]*)\** \|", PAGE, re.M))
    assert said == found


def test_records_say_where_they_come_from_without_the_folders_of_a_machine():
    for name, study in records.read(RECORDED).items():
        for column in ("commit", "machine", "threads", "torch", "command"):
            assert study[column].notna().all(), (name, column)
        assert not study["command"].str.contains("/").any(), name
        assert (study["scale"] == "paper").all(), name


def test_the_runs_have_the_seeds_that_the_page_says():
    seeds = {name: study["seed"].nunique() for name, study in records.read(RECORDED).items()}
    assert seeds.pop("penalty") == 1
    assert seeds == {
        "pca-text-n5000-p100": 2,
        "pca-text-n5000-p200": 1,
        "pca-text-n5000-p500": 1,
        "pca-text-n5000-p1000": 1,
        "ica-text": 10,
        "ica-eeg": 10,
        "cnn-cifar10-resnet18-width8": 3,
        "cnn-cifar10-vgg16-width8": 3,
    }
