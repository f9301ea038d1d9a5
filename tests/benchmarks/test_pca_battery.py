"""`python -m benchmarks.estimators.pca_battery` on tiny data: what is recorded and resumed; and its page."""

import json
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("sklearn")

from benchmarks.estimators import pca_battery as battery

PAGE = Path(__file__).parents[2] / "docs" / "estimators.md"


def test_the_page_has_the_table_of_the_record():
    record = json.loads(battery.RESULTS.read_text(encoding="utf-8"))
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    assert [line for line in battery.table(record) if line not in lines] == []


def test_a_battery_goes_on_where_it_was_and_says_what_is_missed(tmp_path, monkeypatch, capsys):
    output = tmp_path / "battery.json"
    monkeypatch.setattr(battery, "JOBS", [battery.Job("digits", battery.digits, 200, 64, 5, seeds=2)])
    monkeypatch.setattr(battery, "SECONDS", 0.1)
    threads = torch.get_num_threads()
    try:
        for arguments in (["--minutes", "0"], ["--part", "gaps"], []):
            monkeypatch.setattr(sys, "argv", ["battery", "--output", str(output), *arguments])
            battery.main()
        record = json.loads(output.read_text(encoding="utf-8"))
        assert all(list(record[part]["digits, 200 x 64, p = 5"]) == ["0", "1"] for part in ("gaps", "seconds"))
        monkeypatch.setattr(battery, "gaps", None)
        monkeypatch.setattr(battery, "seconds", None)
        battery.main()
    finally:
        torch.set_num_threads(threads)
    printed = capsys.readouterr().out
    assert "4 of 4 data sets left" in printed
    assert "2 of 4 data sets left" in printed
    assert printed.count("gap over randomized's") == 2
    assert record["gaps"]["digits, 200 x 64, p = 5"]["0"]["incremental"] > 1e-4


@pytest.mark.parametrize(
    ("ours", "theirs", "met"), [(1.04e-3, 1e-3, True), (1.06e-3, 1e-3, False), (5e-8, 1e-12, True)]
)
def test_a_gap_is_compared_with_that_of_others_down_to_rounding(ours, theirs, met, monkeypatch):
    job = battery.Job("digits", battery.digits, 200, 64, 5)
    monkeypatch.setattr(battery, "JOBS", [job])
    times = {"ours": 1.0, "randomized": 2.0, "incremental": 4.0}
    gaps = {"ours": ours, "randomized": theirs, "incremental": 1.0, "passes": 1}
    record = {"gaps": {job.name: {"0": gaps}}, "seconds": {job.name: {"0": times}}}
    found = {text: (value, most) for text, value, most, _ in battery.verdicts(record)}
    value, most = found["gap over randomized's"]
    assert (value <= most) is met
    assert found["time over incremental's"] == (pytest.approx(0.25), 0.5)
