"""The recorded runs in the repository, and what the documentation says of them."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

import pandas as pd

from experiments import records
from experiments.appearance import METHODS, in_order
from experiments.claims import verdicts

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "experiments" / "results" / "records"
PAGE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")


def test_the_page_says_what_the_records_say():
    found = {row.claim: (row.outcome, row.evidence) for row in verdicts(records.read(RECORDED))}
    rows = re.findall(r"^\| (.+?) \| (?:§ [^|]*) \| \*\*(.+?)\*\* \| (.+) \|$", PAGE, re.M)
    assert {claim: (outcome, evidence) for claim, outcome, evidence in rows} == found


def lines_of_the_networks():
    """Of the study on all of CIFAR-10, one line per method as the page has it."""
    study = records.read(RECORDED)["cnn-cifar10-vgg16-width16"]
    seconds = pd.read_parquet(RECORDED.parent / "seconds" / "cnn-cifar10-vgg16-width16.parquet").set_index("method")
    ends = records.last(study)
    for name in in_order(set(seconds.index)):
        own, an_epoch = ends[ends["method"] == name], f"{seconds.loc[name, 'epoch_seconds']:.4g} s"
        if len(own):
            accuracy = " to ".join(sorted({f"{100 * value:.2f} %" for value in own["accuracy"]}))
            found = f"{len(own)} | {own['step_size'].iloc[0]:g} | {accuracy} | {own['penalty'].max():.0e}"
        else:
            found = "0 | – | – | –"
        yield f"| {METHODS[name].label} | {found} | {an_epoch} |"


def test_the_page_has_every_method_of_the_networks_with_its_finished_seeds():
    for line in lines_of_the_networks():
        assert line in PAGE


def test_no_step_size_on_all_of_cifar_is_at_the_edge_of_its_grid():
    study = records.read(RECORDED)["cnn-cifar10-vgg16-width16"]
    grid = study[study["phase"] == "search"]["step_size"]
    chosen = records.runs(study)["step_size"]
    assert grid.min() < chosen.min()
    assert chosen.max() < grid.max()


def test_records_say_where_they_come_from_without_the_folders_of_a_machine():
    for name, study in records.read(RECORDED).items():
        for column in ("commit", "machine", "threads", "torch", "command"):
            assert study[column].notna().all(), (name, column)
        assert not study["command"].str.contains("/").any(), name
        assert study["scale"].isin(["paper", "nights"]).all(), name


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
        "cnn-cifar10-vgg16-width16": 1,
    }
