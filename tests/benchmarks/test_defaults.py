"""`python -m benchmarks.defaults.run` on tiny jobs: what is run, recorded, resumed and made of the records."""

import json
import math
import sys
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

pytest.importorskip("sklearn")

import glideslope as gs
from benchmarks.defaults import run, works
from benchmarks.defaults.option_sets import OPTION_SETS, groups_by_rows
from benchmarks.defaults.table import best_rate, summary

TINY = {
    "cnn": partial(works.cnn, data=None, width=8, batch=8),
    "copy memory": partial(works.copy_memory, hidden=12, delay=3, length=2, batch=4),
    "text": partial(works.text, width=8, layers=1, context=8, batch=2),
    "pca, constant lr": partial(works.pca, n=12, p=3, batch=8),
    "pca, decaying lr": partial(works.pca, n=12, p=3, batch=8),
    "mlp 768": partial(works.wide_mlp, width=8, batch=4),
    "square 2048": partial(works.wide_square, width=8, batch=4),
}
WORKS = [replace(work, start=TINY[work.name], steps=3, rates=work.rates[:2]) for work in works.works(None)]


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_every_kind_of_work_trains_with_every_option_set_that_its_optimizer_has(work):
    records = [run.train(work, options, 1e-3, 0) for options in OPTION_SETS if work.optimizer in options.optimizers]
    assert len(records) == 8
    for record in records:
        assert math.isfinite(record["result"])
        assert record["distance"] < 0.1
        assert record["seconds_per_step"] > 0
        assert record["recovered"] == 0
    assert len({record["moved"][0] for record in records}) > 1, "the option sets took the same steps"


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.name)
def test_a_seed_decides_data_start_and_order(work):
    first, again, other = (losses_of(work.start(seed)) for seed in (0, 0, 1))
    assert first == again
    assert first != other


@pytest.mark.parametrize("work", WORKS[3:5], ids=lambda work: work.name)
def test_the_start_of_pca_is_not_its_solution(work):
    job = work.start(0)
    with torch.no_grad():
        assert job.result() > 0.3


def losses_of(job):
    return [job.loss(step).item() for step in range(3)]


@pytest.mark.parametrize("pull", [0.5, 0.25])
@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("lr", [1e-4, 0.5])
def test_a_pull_is_the_same_share_of_the_way_back_at_any_learning_rate(pull, kind, lr):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 7, bias=False), nn.Linear(7, 5, bias=False)).double()
    gs.orthogonalize_(model)
    with torch.no_grad():
        for param in model.parameters():
            param.add_(0.02 * torch.randn_like(param))
            param.grad = torch.zeros_like(param)
    options = next(each for each in OPTION_SETS if each.pull == pull)
    optimizer = options.optimizer(kind, model, lr)
    wanted = [W - pull * W @ (W.mT @ W - torch.eye(W.shape[1])) for W in tall(model)]
    options.follow_learning_rate(kind, optimizer)
    optimizer.step()
    for found, expected in zip(tall(model), wanted, strict=True):
        assert torch.allclose(found, expected, rtol=0, atol=1e-6)


def tall(model):
    weights = [param.detach().clone() for param in model.parameters()]
    return [W if W.shape[0] >= W.shape[1] else W.mT for W in weights]


def test_constrained_groups_are_split_by_rows():
    model = nn.Sequential(nn.Linear(3, 7), nn.Linear(7, 5), nn.Linear(5, 2))
    gs.orthogonalize_(model)
    groups = [(group["orthogonal"], len(group["params"])) for group in groups_by_rows(model)]
    assert sorted(groups) == [(False, 3), (True, 1), (True, 2)]


def test_a_recorded_run_is_not_repeated(tmp_path, monkeypatch, capsys):
    output = tmp_path / "defaults.json"
    monkeypatch.setattr(run, "works", lambda data: WORKS[3:4])
    monkeypatch.setattr(sys, "argv", ["run", "--seeds", "1", "--output", str(output)])
    threads = torch.get_num_threads()
    try:
        run.main()
        recorded = json.loads(output.read_text(encoding="utf-8"))["runs"]
        assert len(recorded) == 16  # eight option sets, two learning rates
        monkeypatch.setattr(run, "train", None)
        run.main()
    finally:
        torch.set_num_threads(threads)
    assert json.loads(output.read_text(encoding="utf-8"))["runs"] == recorded
    printed = capsys.readouterr().out
    assert "16/16, 0 min left" in printed
    assert printed.count("\n| landing canonical |") == 8  # four tables, both times


@pytest.mark.parametrize(("more_is_better", "best"), [(True, 0.3), (False, 0.1)])
def test_a_learning_rate_that_diverged_is_never_the_best(more_is_better, best):
    work = replace(WORKS[0], more_is_better=more_is_better)
    found = {0.1: [{"result": 1.0}], 0.3: [{"result": 2.0}], 1.0: [{"result": None}]}
    assert best_rate(work, found) == best


def test_the_table_has_means_spreads_and_times_relative_to_the_first_option_set():
    work = WORKS[0]
    names = [options.name for options in OPTION_SETS if "sgd" in options.optimizers]
    runs = {
        f"cnn | {name} | {lr:g} | {seed}": {
            "result": 50 + 100 * lr + seed,
            "distance": 0.5,
            "distance_halfway": 0.25,
            "distance_early": 0.125,
            "shortened": 0.1,
            "seconds_per_step": position + 1.0,
        }
        for position, name in enumerate(names)
        for lr in work.rates
        for seed in range(3)
    }
    lines = summary([work], runs).splitlines()
    assert "| landing euclidean | 61 ± 1 |" in lines  # the overview: result, distance, time
    assert "| landing euclidean | 5e-01 |" in lines
    assert "| landing euclidean | 2.00 |" in lines
    assert "| landing euclidean | 54 ± 1 | 61 ± 1 | 0.1 | 1e-01, 2e-01, 5e-01 | 10% | 2.00 |" in lines
