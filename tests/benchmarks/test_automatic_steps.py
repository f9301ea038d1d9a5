"""`python -m benchmarks.automatic_steps.run` on tiny problems: what is searched, recorded, resumed and shown."""

import json
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks.automatic_steps import problems, run

ROOT = Path(__file__).parents[2]
TINY = (
    problems.Work("PCA", partial(problems.pca, (60, 12, 3)), 10, 2, (0.01, 0.1), 6),
    problems.Work("ICA", partial(problems.ica, (100, 3, 3)), 20, 2, (0.01, 0.1), 5),
)


@pytest.mark.parametrize("work", TINY, ids=lambda work: work.name)
def test_the_gap_is_zero_at_the_solution_also_off_the_manifold(work):
    problem, X0, gap = work.start(0)
    best = problem.optimum().X if work.name == "PCA" else run.gs.minimize(problem, X0, tolerance=1e-10).X
    assert gap(X0) > 0.01
    assert gap(best) == pytest.approx(0, abs=1e-5)
    assert gap(1.01 * best) == pytest.approx(gap(best), abs=1e-5)
    assert not torch.equal(work.start(1)[1], X0) or work.name == "ICA"


@pytest.mark.parametrize("gradient", run.GRADIENTS)
def test_a_record_has_gap_passes_and_seconds_of_every_pass(gradient):
    record = run.measure(TINY[0], gradient, {"step_size": "auto"}, 0, 2)
    assert record["gap"][0] == 1
    assert record["gap"][-1] < 1
    lengths = {len(record[key]) for key in ("gap", "passes", "seconds", "step_size")}
    assert len(lengths) == 1
    assert record["passes"] == sorted(record["passes"])


def test_a_recorded_run_is_not_repeated(tmp_path, monkeypatch, capsys):
    output = tmp_path / "steps.json"
    monkeypatch.setattr(run, "WORKS", TINY)
    monkeypatch.setattr(sys, "argv", ["run", "--seeds", "2", "--output", str(output)])
    run.main()
    recorded = run.read(output)
    # Two problems, three gradients: two searched steps, one of them with another seed, and two automatic runs.
    assert len(recorded) == 2 * 3 * (2 + 1 + 2)
    assert capsys.readouterr().out.count("\n| ") == 2 + 6
    monkeypatch.setattr(run, "measure", None)
    run.main()
    assert json.loads(output.read_text(encoding="utf-8"))["runs"] == recorded


def test_the_table_compares_at_what_the_searched_step_reaches():
    def record(gaps, seconds):
        return {"gap": gaps, "passes": list(range(len(gaps))), "seconds": [seconds * i for i in range(len(gaps))]}

    runs = {}
    for name, gap in (("0.01", 0.5), ("0.1", 1e-3)):
        runs[f"PCA | saga | {name} | 0"] = record([1.0, 0.6, gap], 1.0)
    runs["PCA | saga | 0.1 | 1"] = record([1.0, 1e-4, None], 1.0)
    runs["PCA | saga | 0.1 | 1"]["gap"][-1] = 1e-4
    runs["PCA | saga | auto | 0"] = record([1.0, 0.1, 0.1, 1e-3], 0.5)
    runs["PCA | saga | auto | 1"] = record([1.0, 0.1, 1e-5], 1.0)
    rows = run.summary(TINY, 2, runs).splitlines()
    assert rows[2:] == ["| PCA | saga | 0.1 | 6e-04 | 2 | 2 | 1.38 | 2.00 |"]
    del runs["PCA | saga | auto | 1"]
    assert len(run.summary(TINY, 2, runs).splitlines()) == 2, "a row with a run missing"


def test_the_page_shows_the_table_of_the_recorded_runs():
    page = (ROOT / "docs" / "explanation" / "automatic-steps.md").read_text(encoding="utf-8")
    table = run.summary(problems.WORKS, 5, run.read(run.RESULTS))
    assert len(table.splitlines()) == 2 + 6
    assert table in page


def test_automatic_steps_take_at_most_half_as_long_again_as_searched_ones_on_the_record():
    rows = run.summary(problems.WORKS, 5, run.read(run.RESULTS)).splitlines()[2:]
    assert max(float(row.split("|")[-3]) for row in rows) <= 1.5
