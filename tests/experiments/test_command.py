"""`python -m experiments`: a smoke run of everything, its records, its report, and a run that was killed."""

import os
import re
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from experiments import records
from experiments.claims import HOLDS, NOT_TESTED, verdicts
from experiments.command import main
from experiments.execute import Setup, run_experiments, run_studies
from experiments.provenance import COLUMNS, commit, digest_of_code, provenance
from experiments.report import write_report
from experiments.scales import SCALES

ROOT = Path(__file__).parents[2]


# One worker makes the run for all tests that look at it.
one_worker = pytest.mark.xdist_group("smoke")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """The folder of one smoke run of all experiments."""
    output = tmp_path_factory.mktemp("smoke")
    setup = Setup(experiments=("penalty", "pca", "ica", "cnn"), scale="smoke", output=output)
    failures = run_experiments(setup, Console(quiet=True))
    assert failures == {}, (output / "log.txt").read_text()
    return output


@one_worker
def test_a_smoke_run_records_every_method_and_seed_of_every_study(smoke):
    found = records.read(smoke / "records")
    assert set(found) == {"penalty", "pca-text-n60-p10", "ica-text", "cnn-digits-resnet18-width8"}
    for setting in (SCALES["smoke"].pca, SCALES["smoke"].ica, SCALES["smoke"].cnn):
        study = setting.studies()[0]
        rows = found[study.name]
        for phase, seeds in (("search", {0}), ("run", set(study.seeds))):
            wanted = set(study.methods) - (set(study.without_step_size) if phase == "search" else set())
            own = rows[rows["phase"] == phase]
            assert set(own["method"]) == wanted
            assert {seed for seed, _ in own.groupby("seed")} == seeds
        assert set(rows[rows["phase"] == "search"]["step_size"]) == set(study.grid)
        ends = records.last(rows)
        ends = ends[~ends["status"].isin(["diverged", "out of time"]) & ~ends["method"].isin(study.without_step_size)]
        assert (ends["epoch"] >= study.parameters["epochs"]).all(), ends


@one_worker
def test_records_have_their_provenance_and_epochs_and_seconds_that_grow(smoke):
    for rows in records.read(smoke / "records").values():
        assert rows[list(COLUMNS)].notna().all().all()
        if "method" not in rows:
            continue
        for _, run in rows.groupby(["phase", "method", "step_size", "seed"], dropna=False):
            assert run["epoch"].is_monotonic_increasing
            assert (run["seconds"] >= 0).all()


@one_worker
def test_every_method_runs_with_the_step_size_its_search_found_best(smoke):
    rows = records.read(smoke / "records")["pca-text-n60-p10"]
    for method, own in rows.groupby("method"):
        ends = own[own["phase"] == "search"].groupby("step_size").tail(1)
        best = ends[ends["status"] != "diverged"].sort_values("value").iloc[0]
        assert set(own[own["phase"] == "run"]["step_size"]) == {best["step_size"]}, method


@one_worker
def test_the_report_holds_everything_it_shows_and_fetches_nothing(smoke):
    page = (smoke / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"(?:src|href)\s*=\s*['\"](?!data:)", page) == []
    assert "http" not in re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    assert "@import" not in page
    assert "url(" not in page
    assert page.count("<img") == 4
    for words in ("Claims", "Step sizes", "Where the records come from", "not tested at this scale", "no EEG given"):
        assert words in page


@one_worker
def test_smoke_sizes_judge_the_proposition_and_nothing_else(smoke):
    found = verdicts(records.read(smoke / "records"))
    assert [row.outcome for row in found] == [HOLDS, HOLDS] + [NOT_TESTED] * 17


def study_pca(output, jobs=1, **given):
    """What `python -m experiments pca` does, without the report."""
    setup = Setup(experiments=("pca",), scale="smoke", output=output, jobs=jobs)
    assert run_studies(setup, SCALES["smoke"].with_options(("pca",), given), Console(quiet=True)) == {}


@one_worker
def test_the_same_command_again_takes_all_runs_from_the_cache(smoke):
    log = smoke / "log.txt"
    before = len(log.read_text().splitlines())
    old = records.read(smoke / "records")["pca-text-n60-p10"]
    study_pca(smoke)
    lines = log.read_text().splitlines()[before:]
    outcomes = [line for line in lines if re.search(r": (done|diverged|error)", line)]
    assert len(outcomes) == 25
    assert all(line.endswith("(cached)") for line in outcomes)
    new = records.read(smoke / "records")["pca-text-n60-p10"]
    pd.testing.assert_frame_equal(old.drop(columns="recorded"), new.drop(columns="recorded"))


@one_worker
def test_runs_of_some_methods_leave_the_records_of_the_others(smoke):
    study_pca(smoke, methods=("landing",), epochs=2.0, milestones=(1.0,))
    rows = records.read(smoke / "records")["pca-text-n60-p10"]
    own = records.runs(rows)
    assert own[own["method"] == "landing"]["epoch"].max() == 2
    assert own[own["method"] == "riemannian-qr"]["epoch"].max() == 6


@pytest.mark.slow
def test_a_killed_run_continues_where_it_was(tmp_path):
    """Killed without warning after some runs; the second time those come from the cache and the rest is run."""
    options = ["--methods", "landing,riemannian-qr", "--seeds", "2", "--epochs", "200", "--milestones", "100"]
    command = [sys.executable, "-m", "experiments", "pca", "--scale", "smoke", "--output", str(tmp_path), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    log = tmp_path / "log.txt"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, **quiet)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not (log.exists() and log.read_text().count(": done") >= 3):
            assert process.poll() is None
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    done_before = log.read_text().count(": done")
    assert 3 <= done_before < 10
    assert not (tmp_path / "report.html").exists()
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=240, **quiet)
    again = log.read_text().splitlines()
    cached = sum(line.endswith("(cached)") for line in again)
    assert done_before <= cached < 10
    assert sum(": done" in line for line in again) - done_before == 10
    ends = records.last(records.read(tmp_path / "records")["pca-text-n60-p10"])
    assert len(ends) == 4
    assert (ends["epoch"] == 200).all()
    assert (tmp_path / "report.html").exists()


@pytest.mark.slow
def test_two_processes_of_joblib_give_the_same_records(tmp_path):
    frames = []
    for jobs in (1, 2):
        output = tmp_path / str(jobs)
        study_pca(output, jobs, methods=("landing", "riemannian-qr"))
        frames.append(records.read(output / "records")["pca-text-n60-p10"].drop(columns=["seconds", "recorded"]))
    pd.testing.assert_frame_equal(*frames)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["everything"], "must be one of penalty, pca, ica, cnn, all, seconds, report"),
        (["pca", "--scale", "huge"], "--scale must be one of smoke, laptop, nights, paper"),
        (["ica", "--scale", "smoke", "--p", "3"], "--p has no meaning for ica"),
        (["cnn", "--scale", "paper"], "needs CIFAR-10"),
        (["cnn", "--scale", "smoke", "--data", "nowhere"], "fetch cifar-10-binary.tar.gz"),
        (["cnn", "--scale", "smoke", "--width", "12"], "--width must be a multiple of 8"),
        (["cnn", "--scale", "smoke", "--precision", "int8"], "--precision must be one of float32, bfloat16"),
        (["cnn", "--scale", "smoke", "--network", "alexnet"], "--network must be of vgg16, resnet18"),
        (["pca", "--scale", "smoke", "--methods", "landng"], "pca has no method landng; it has"),
        (["report"], "no records in"),
        *((["pca", "--p", p], f"--p must be whole numbers >= 1 with commas between; got '{p}'")
          for p in ("nan", "inf", "0", "2.5", "x", ",")),
        (["pca", "--p", "61"], "--p must be at most n = 60; got 61"),
        *((["pca", option, value], f"{option} must be a finite number > 0; got {float(value)}")
          for option in ("--epochs", "--search-epochs", "--max-seconds", "--search-seconds")
          for value in ("inf", "nan", "0", "-1")),
        *((["pca", option, value], f"{option} must be finite numbers > 0 with commas between; got '{value}'")
          for option in ("--grid", "--milestones") for value in ("inf", "nan", "0.1,-1", "x")),
        (["pca", "--grid", ","], "--grid must be finite numbers > 0 with commas between; got ','"),
        (["pca", "--model", "x"], "--model must be of text, published; got 'x'"),
        (["ica", "--model", "x"], "--model must be of text, published; got 'x'"),
        (["pca", "--methods", ","], "--methods must name something; got ','"),
        (["pca", "--parallel-config", "nowhere.yml"], "--parallel-config: there is no file nowhere.yml"),
    ],
)  # fmt: skip
def test_wrong_options_are_errors_before_anything_runs(tmp_path, capsys, monkeypatch, arguments, words):
    scale = [] if "--scale" in arguments else ["--scale", "smoke"]
    monkeypatch.setattr(sys, "argv", ["experiments", *arguments, *scale, "--output", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    shown = capsys.readouterr().err
    assert words in shown
    assert shown.startswith("experiments: ")
    assert shown.count("\n") == 1
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.parametrize("experiment", ["pca", "report"])
@pytest.mark.parametrize("place", ["file", "below a file", "file in place of the lock"])
def test_a_folder_that_cannot_be_written_is_an_error_of_one_line(tmp_path, capsys, monkeypatch, experiment, place):
    output = tmp_path / "taken" / "below" if place == "below a file" else tmp_path / "taken"
    if place == "file in place of the lock":
        (output / ".lock").mkdir(parents=True)
    else:
        (tmp_path / "taken").write_text("")
    command = ["experiments", experiment, "--scale", "smoke", "--output", str(output)]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    shown = capsys.readouterr().err
    wanted = "no records in" if experiment == "report" else f"--output {output} cannot be written: "
    assert shown.startswith(f"experiments: {wanted}")
    assert shown.count("\n") == 1


def test_the_cache_belongs_to_the_code(tmp_path):
    (tmp_path / "a.py").write_text("x = 1")
    first = digest_of_code(tmp_path)
    (tmp_path / "a.py").write_text("x = 2")
    assert digest_of_code(tmp_path) != first
    (tmp_path / "a.py").write_text("x = 1")
    (tmp_path / "notes.txt").write_text("not code")
    assert digest_of_code(tmp_path) == first


@one_worker
def test_a_report_can_be_drawn_from_records_alone(smoke, tmp_path):
    (tmp_path / "records").mkdir()
    source = smoke / "records" / "ica-text.parquet"
    (tmp_path / "records" / source.name).write_bytes(source.read_bytes())
    page = write_report(tmp_path, ["a note"]).read_text(encoding="utf-8")
    assert page.count("<img") == 1
    assert "a note" in page


def test_the_recorded_command_is_the_one_to_give_again_without_folders_of_the_machine(monkeypatch):
    arguments = ["cnn", "--data", "../../data/cifar-10/", "--grid", "1e-3,0.1", "--output", "../there/paper"]
    monkeypatch.setattr(sys, "argv", ["/somewhere/experiments/__main__.py", *arguments])
    expected = "python -m experiments cnn --data cifar-10 --grid 1e-3,0.1 --output paper"
    assert provenance(ROOT)["command"] == expected


def test_the_recorded_commit_is_marked_if_the_library_or_the_experiments_differ_from_it(tmp_path):
    def git(*arguments):
        identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True)

    assert commit(tmp_path) == "unknown"
    for folder in ("src", "experiments", "docs"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("as committed")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    (tmp_path / "docs" / "file").write_text("changed")
    unmarked = commit(tmp_path)
    assert re.fullmatch("[0-9a-f]{12}", unmarked)
    for folder in ("src", "experiments"):
        (tmp_path / folder / "file").write_text("changed")
        assert commit(tmp_path) == f"{unmarked} with changes"
        (tmp_path / folder / "file").write_text("as committed")


def test_without_its_requirements_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "experiments.command")
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("experiments", run_name="__main__")
    assert stopped.value.code == 2
    assert capsys.readouterr().err == (
        "experiments: typer is not installed; in the clone: pip install -e '.[reproduce,peers]'\n"
    )
