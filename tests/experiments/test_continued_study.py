"""A long study in pieces: every finished run is a record, and --continue runs what is missing, on any machine."""

import math
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from rich.console import Console

from experiments import records
from experiments.execute import Setup, run_studies
from experiments.scales import SCALES
from experiments.settings import Cnn
from experiments.sweep import Engine, at_once, best_steps, in_the_time_of_others

ROOT = Path(__file__).parents[2]
NAME = "cnn-digits-resnet18-width8"
SETTING = Cnn(
    limit=64,
    network=("resnet18",),
    width=8,
    batch_size=32,
    epochs=2,
    milestones=(1,),
    seeds=2,
    methods=("landing-defaults", "riemannian-qr"),
    grid=(0.03, 0.1),
    search_epochs=1,
    search_images=32,
    long=True,
)


def run_cnn(output, *, go_on=True, jobs=1, **changes):
    """Run the study; the outcomes of this call that were not taken from Benchopt's cache."""
    log = output / "log.txt"
    before = len(log.read_text()) if log.exists() else 0
    scale = replace(SCALES["smoke"], cnn=replace(SETTING, **changes))
    setup = Setup(experiments=("cnn",), scale="smoke", output=output, threads=1, go_on=go_on, jobs=jobs)
    assert run_studies(setup, scale, Console(quiet=True)) == {}
    new = log.read_text()[before:] if log.exists() else ""
    return [line.strip() for line in new.splitlines() if re.search(r": (done|diverged)", line) and "cached" not in line]


def found_in(output):
    return pd.read_parquet(output / "records" / f"{NAME}.parquet")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a study that was run without a stop."""
    output = tmp_path_factory.mktemp("whole")
    assert len(run_cnn(output)) == 2 * 2 + 2 * 2
    return output


def assert_same_runs(first, second):
    keys = ["phase", "method", "step_size", "seed", "epoch"]
    first, second = (table.sort_values(keys).reset_index(drop=True) for table in (first, second))
    own = [name for name in first if name not in ("seconds", "recorded", "command")]
    pd.testing.assert_frame_equal(first[own], second[own], check_exact=True)


together = pytest.mark.xdist_group("continued")


@together
def test_a_study_in_pieces_on_two_machines_has_the_records_of_one_without_a_stop(whole, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    assert len(run_cnn(here, methods=("landing-defaults",), seeds=1)) == 3
    shutil.copytree(here / "records", there / "records")  # the records alone: no cache, no checkpoints
    done = run_cnn(there)
    assert len(done) == 5
    assert sum("landing-defaults" in line for line in done) == 1
    assert_same_runs(found_in(there), found_in(whole))
    assert run_cnn(there) == []


@together
def test_every_finished_run_is_a_record_before_the_next_one_starts(whole, tmp_path, monkeypatch):
    written = []
    merge = records.merge
    monkeypatch.setattr(records, "merge", lambda table, path: written.append(table) or merge(table, path))
    shutil.copytree(whole / "cache", tmp_path / "cache")
    run_cnn(tmp_path)
    runs = [{tuple(run) for run in records.last(table)[["method", "seed"]].values} for table in written]
    assert [len(found) for found in runs] == [0, 0, 1, 2, 3, 4]
    assert {seed for _, seed in runs[3]} == {0}  # seed 0 of all methods comes first


@together
def test_other_settings_are_refused_before_they_replace_anything_and_taken_without_continue(whole, tmp_path):
    shutil.copytree(whole / "records", tmp_path / "records")
    change = {"epochs": 3, "methods": ("landing-defaults",), "seeds": 1}
    with pytest.raises(ValueError, match="whose run has other settings: epochs 2 there and 3 here"):
        run_cnn(tmp_path, **change)
    with pytest.raises(ValueError, match="whose search has other settings: n_train 32 there and 48 here"):
        run_cnn(tmp_path, search_images=48)
    assert_same_runs(found_in(tmp_path), found_in(whole))
    assert len(run_cnn(tmp_path, go_on=False, **change)) == 3
    assert records.last(found_in(tmp_path)).query("method == 'landing-defaults'")["epoch"].tolist() == [3]
    assert records.last(found_in(tmp_path)).query("method == 'riemannian-qr'")["epoch"].tolist() == [2, 2]
    assert len(run_cnn(tmp_path, methods=("riemannian-qr",))) == 0  # records of other methods do not matter


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs signals of POSIX")
def test_a_process_killed_inside_a_run_goes_on_inside_it_to_the_same_records(tmp_path):
    """Killed without warning between two epochs of a run, in the command as a user gives it."""
    options = (
        "--methods landing-defaults --seeds 1 --epochs 12 --milestones 4,8 --grid 0.1 --max-seconds 1000 --threads 1"
    )
    command = [sys.executable, "-m", "experiments", "cnn", "--scale", "smoke", *options.split(), "--output"]
    quiet = {"cwd": ROOT, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*command, str(tmp_path / "whole")], check=True, timeout=240, **quiet)
    process = subprocess.Popen([*command, str(tmp_path / "cut")], **quiet)
    try:
        while not epochs_kept(tmp_path / "cut") >= 3:
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert 3 <= epochs_kept(tmp_path / "cut") < 12
    subprocess.run([*command, str(tmp_path / "cut")], check=True, timeout=240, **quiet)
    assert_same_runs(found_in(tmp_path / "cut"), found_in(tmp_path / "whole"))


def epochs_kept(output):
    """Of the run whose checkpoint has the most records and is not finished."""
    kept = [torch.load(path, weights_only=True) for path in output.glob("cache/*/checkpoints/*.pt")]
    return max((len(one["records"]) - 1 for one in kept if not one["finished"]), default=0)


@together
@pytest.mark.slow
def test_two_jobs_give_the_same_records(whole, tmp_path):
    run_cnn(tmp_path, jobs=2)
    assert_same_runs(found_in(tmp_path), found_in(whole))


@together
@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({}, 4),
        ({"epochs": 3}, 0),
        ({"max_seconds": 1e-9}, 4),
        ({"methods": ("riemannian-qr",)}, 2),
        ({"width": 16}, 0),
    ],
)
def test_a_run_is_finished_if_it_has_the_settings_and_all_its_epochs(whole, change, kept):
    study = replace(SETTING, **change).studies()[0]
    assert len(records.last(records.finished(found_in(whole), study))) == kept


@together
@pytest.mark.parametrize(
    ("limit", "status", "kept"), [(2.0, "out of time", 1), (4.0, "out of time", 0), (None, "out of time", 0),
                                  (None, "diverged", 1), (None, "running", 0)],
)  # fmt: skip
def test_a_run_that_was_cut_is_finished_if_it_used_its_seconds(whole, limit, status, kept):
    study = replace(SETTING, max_seconds=limit, methods=("landing-defaults",), seeds=1).studies()[0]
    cut = found_in(whole)
    cut = cut[(cut["phase"] == "run") & (cut["epoch"] < 2) & (cut["seed"] == 0)]
    cut = cut.assign(seconds=3.0 * cut["epoch"], status=status)
    assert len(records.last(records.finished(cut, study))) == kept
    patient = replace(study, in_the_time_of_others=("landing-defaults",))
    assert len(records.last(records.finished(cut, patient))) == (status != "running")


def test_methods_without_a_step_size_are_continued_too(tmp_path):
    given = {"seeds": 1, "epochs": 4.0, "search_epochs": 2.0, "methods": ("landing-sgd", "picard-o")}
    for methods in (("picard-o",), ("landing-sgd", "picard-o")):
        setup = Setup(experiments=("ica",), scale="smoke", output=tmp_path, threads=1, go_on=True)
        scale = SCALES["smoke"].with_options(("ica",), {**given, "methods": methods})
        run_studies(setup, scale, Console(quiet=True))
        found = pd.read_parquet(tmp_path / "records" / "ica-text.parquet")
        assert set(records.runs(found)["method"]) == set(methods)


@together
def test_runs_at_a_step_size_that_is_no_longer_the_choice_are_made_again_and_dropped(whole, tmp_path):
    study = found_in(whole)
    ours = study["method"] == "landing-defaults"
    before = set(study[ours & (study["phase"] == "run")]["step_size"])
    other = ours & (study["phase"] == "search") & ~study["step_size"].isin(before)
    study.loc[other, "criterion"] = 0.0
    (tmp_path / "records").mkdir()
    study.to_parquet(tmp_path / "records" / f"{NAME}.parquet")
    assert len(run_cnn(tmp_path)) == 2
    runs = records.runs(found_in(tmp_path))
    new = runs[runs["method"] == "landing-defaults"]
    assert set(new["step_size"]) == {0.03, 0.1} - before
    assert set(runs["method"]) == {"landing-defaults", "riemannian-qr"}
    mixed = pd.concat([found_in(whole), new], ignore_index=True)  # as it was written before
    mixed.to_parquet(tmp_path / "records" / f"{NAME}.parquet")
    assert run_cnn(tmp_path) == []
    assert_same_runs(found_in(tmp_path), found_in(whole))


def test_of_step_sizes_that_are_equally_good_the_smallest_is_chosen_whatever_their_order():
    def chosen(steps, criterion, status="running"):
        facts = {"method": "landing", "epoch": 1.0, "status": status}
        return best_steps(pd.DataFrame({**facts, "step_size": steps, "criterion": criterion}))

    assert chosen([0.3, 0.1, 1.0], [0.5, 0.5, 0.6]) == {"landing": 0.1}
    assert chosen([0.3, 0.1, 1.0], [0.5, math.nan, 0.6]) == {"landing": 0.3}
    assert chosen([0.3, 0.1], [0.5, 0.6], "diverged") == {"landing": 0.1}


@together
def test_records_without_settings_are_of_no_study(whole):
    old, study = found_in(whole).drop(columns="settings"), SETTING.studies()[0]
    assert not len(records.finished(old, study))
    with pytest.raises(ValueError, match="has other settings: batch_size None there and 32 here, "):
        records.refuse_other_settings(old, study)


def test_trivialization_is_not_searched_takes_the_step_size_of_qr_and_runs_after_all_seeds_of_the_others(
    tmp_path, monkeypatch
):
    asked = []

    def run(self, study, solvers, phase, seeds, *rest):
        asked.append((phase, dict(solvers), seeds, study.parameters["max_seconds"]))
        rows = [
            (
                name,
                step,
                phase,
                0.5 if name == "riemannian-qr" and step == 0.1 else 1.0,
                "running",
                2.0,
                seed,
                1.0 + seed,
            )
            for name, steps in solvers.items()
            for step in steps
            for seed in seeds
        ]
        names = ["method", "step_size", "phase", "criterion", "status", "epoch", "seed", "seconds"]
        return pd.DataFrame(rows, columns=names), {}

    monkeypatch.setattr(Engine, "run", run)
    methods = ("riemannian-qr", "trivialization", "landing", "penalty-1")
    run_cnn(tmp_path, methods=methods, seeds=3, jobs=2)
    assert [(phase, list(solvers), seeds) for phase, solvers, seeds, _ in asked if phase == "search"] == [
        ("search", [name], (0,)) for name in ("riemannian-qr", "landing", "penalty-1")
    ]
    assert [(list(solvers), seeds) for phase, solvers, seeds, _ in asked if phase == "run"] == [
        (["riemannian-qr"], (0, 1)),
        (["landing"], (0, 1)),
        (["penalty-1"], (0, 1)),
        (["riemannian-qr", "landing"], (2,)),
        (["penalty-1"], (2,)),
        (["trivialization"], (0, 1)),
        (["trivialization"], (2,)),
    ]
    steps = {(name, step) for phase, solvers, *_ in asked if phase == "run" for name, (step,) in solvers.items()}
    assert steps == {("riemannian-qr", 0.1), ("trivialization", 0.1), ("landing", 0.03), ("penalty-1", 0.03)}
    assert [limit for *_, limit in asked] == [None] * 8 + [2.0] * 2  # seconds of the others' median run
    with pytest.raises(ValueError, match="trivialization takes the step size of riemannian-qr: name both"):
        replace(SETTING, methods=("landing", "trivialization")).studies()


@pytest.mark.parametrize(
    ("names", "jobs", "done", "expected"),
    [
        ("abc", 1, [], ["a0", "b0", "c0", "a1", "b1", "c1", "a2", "b2", "c2"]),
        ("abc", 2, [], ["a01", "b01", "c01", "ab2", "c2"]),
        ("abc", 2, ["a0", "b0", "c0"], ["a12", "b12", "c12"]),
        ("abc", 2, ["a0", "b0", "c1"], ["c02", "a12", "b12"]),
        ("abc", 2, ["a0", "a1", "a2"], ["b01", "c01", "bc2"]),
        ("abc", 3, [], ["a012", "b012", "c012"]),
        ("abc", 4, [], ["ab01", "c01", "abc2"]),
        ("a", 2, [], ["a01", "a2"]),
        ("a", 2, ["a0"], ["a12"]),
        ("a", 4, [], ["a012"]),
        ("", 2, [], []),
    ],
)
def test_a_long_study_runs_what_lasts_equally_long_at_the_same_time(names, jobs, done, expected):
    found = at_once(list(names), (0, 1, 2), lambda name, seed: f"{name}{seed}" not in done, jobs)
    assert ["".join(names) + "".join(map(str, seeds)) for names, seeds in found] == expected


@together
def test_trivialization_gets_the_seconds_of_the_longest_other_method(whole):
    study = replace(SETTING, methods=(*SETTING.methods, "trivialization")).studies()[0]
    found = found_in(whole)
    ends = records.last(found)
    pauses = ends.head(1).assign(method="trivialization", seconds=1e6), ends.head(1).assign(seed=2, seconds=1e6)
    limited = in_the_time_of_others(study, pd.concat([found, *pauses]))
    own = ends[ends["method"] == ends.iloc[0]["method"]]["seconds"].max()  # the median, with the pause
    other = ends[ends["method"] != ends.iloc[0]["method"]]["seconds"].median()
    assert limited.parameters["max_seconds"] == max(own, other)
    assert in_the_time_of_others(study, found.iloc[:0]) is study
