"""Seconds of an epoch: measured in turn for all methods, and put in place of those of runs that shared a machine."""

import itertools

import pandas as pd
import pytest

from experiments import epoch_seconds, records
from experiments.execute import BENCHMARKS, Setup, run_experiments
from experiments.scales import SCALES


def test_all_methods_take_their_steps_in_turn_and_an_epoch_is_its_steps_at_the_median(monkeypatch):
    order = []

    def source(name, seconds):
        for step in itertools.count():
            order.append(name)
            yield 100.0 if step < epoch_seconds.WARM_UP else seconds[step % len(seconds)]

    sources = {"landing": source("landing", [1.0, 2.0, 6.0]), "trivialization": source("trivialization", [70.0])}
    monkeypatch.setattr(epoch_seconds, "LONGEST", 1e6)
    monkeypatch.setattr(epoch_seconds, "step_seconds", lambda *_: (sources, 391))
    study = SCALES["smoke"].cnn.studies()[0]
    table = epoch_seconds.measure(study, BENCHMARKS).set_index("method")
    assert order == ["landing", "trivialization"] * (epoch_seconds.WARM_UP + epoch_seconds.STEPS)
    assert table["steps"].tolist() == [epoch_seconds.STEPS] * 2
    assert table["epoch_seconds"].tolist() == [2.0 * 391, 70.0 * 391]
    assert table.loc["landing", ["step_seconds_lowest", "step_seconds_highest"]].tolist() == [1.0, 6.0]


def test_a_slow_method_takes_no_more_steps_when_its_time_is_over(monkeypatch):
    sources = {"landing": itertools.repeat(0.1), "trivialization": itertools.repeat(25.0)}
    monkeypatch.setattr(epoch_seconds, "step_seconds", lambda *_: (sources, 10))
    table = epoch_seconds.measure(SCALES["smoke"].cnn.studies()[0], BENCHMARKS).set_index("method")
    assert table["steps"].to_dict() == {"landing": epoch_seconds.STEPS, "trivialization": 1}


def test_the_command_measures_every_method_and_writes_where_it_did(tmp_path, monkeypatch):
    from rich.console import Console

    monkeypatch.setattr(epoch_seconds, "STEPS", 1)
    given = {"methods": ("landing-defaults", "unconstrained")}
    setup = Setup(experiments=("cnn",), scale="smoke", output=tmp_path, given=given, seconds=True, threads=1)
    assert run_experiments(setup, Console(quiet=True)) == {}
    table = pd.read_parquet(tmp_path / "seconds" / "cnn-digits-resnet18-width8.parquet")
    assert table["method"].tolist() == ["landing-defaults", "unconstrained"]
    assert (table["epoch_seconds"] > 0).all()
    assert table["threads"].tolist() == [1, 1]
    assert not (tmp_path / "report.html").exists()


@pytest.fixture
def folder(tmp_path):
    rows = [(name, float(epoch), 1000.0) for name in ("landing", "riemannian-qr") for epoch in range(3)]
    (tmp_path / "records").mkdir()
    (tmp_path / "seconds").mkdir()
    pd.DataFrame(rows, columns=["method", "epoch", "seconds"]).to_parquet(tmp_path / "records" / "net.parquet")
    return tmp_path


def test_records_are_read_with_the_measured_seconds_of_their_epochs(folder):
    assert set(records.read(folder / "records")["net"]["seconds"]) == {1000.0}
    measured = pd.DataFrame({"method": ["landing"], "epoch_seconds": [20.0]})
    measured.to_parquet(folder / "seconds" / "net.parquet")
    found = records.read(folder / "records")["net"].set_index("method")["seconds"]
    assert found["landing"].tolist() == [0, 20, 40]
    assert found["riemannian-qr"].isna().all()
