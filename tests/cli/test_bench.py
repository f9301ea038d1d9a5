"""`glideslope bench` on tiny workloads: what it prints, what it refuses, and how it takes its samples."""

import gc
import re
import sys

import pytest
import torch

pytest.importorskip("typer")

from glideslope import cli
from glideslope.cli import bench
from glideslope.cli.workloads import OPTIMIZERS, Case, Workload, bare_products
from glideslope.formulas import distance
from glideslope.stiefel.views import as_matrices

TINY = (
    Workload("40 x 8", ((40, 8),)),
    Workload("3 of 6 x 6", ((6, 6),) * 3),
    Workload("batch of 2 x 12 x 4", ((2, 12, 4),)),
    Workload("net", ((4, 2, 3, 3), (16, 4, 1, 1)), view="conv"),
)


def tall_matrices(case):
    return [
        (as_matrices(X, case.view), as_matrices(G, case.view)) for X, G in zip(case.points, case.gradients, strict=True)
    ]


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command on tiny workloads; gives exit code, what it printed, and what it complained of."""
    monkeypatch.setattr(bench, "WORKLOADS", TINY)
    monkeypatch.setattr(bench, "SECONDS", 0.0)

    def execute(*arguments):
        monkeypatch.setattr(sys, "argv", ["glideslope", "bench", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return execute


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_every_method_is_shown_on_every_workload_in_milliseconds_and_in_bare_products(run, dtype):
    code, out, err = run("--dtype", dtype)
    assert (code, err) == (0, "")
    head, *sections = out.strip().split("\n\n")
    assert f"cpu, {dtype}, torch {torch.__version__}" in head
    assert [section.splitlines()[0].split("  ")[0] for section in sections] == [one.name for one in TINY]
    for section, workload in zip(sections, TINY, strict=True):
        rows = [re.split(r"\s{2,}", line.strip()) for line in section.splitlines()[1:]]
        products = "three bare products" if workload.square else "four bare products"
        assert [name for name, *_ in rows] == [products, *OPTIMIZERS]
        floor = float(rows[0][1])
        assert rows[0][2] == "1"
        for _, milliseconds, ratio in rows:
            assert float(ratio) == pytest.approx(float(milliseconds) / floor, rel=0.01)


def test_every_name_is_the_optimizer_that_is_built():
    options = {
        "LandingSGD": ("LandingSGD", {"momentum": 0}),
        "LandingSGD momentum": ("LandingSGD", {"momentum": 0.9}),
        "LandingSGD newton-schulz": ("LandingSGD", {"normal_step": "newton-schulz"}),
        "LandingAdam": ("LandingAdam", {}),
        "attach_landing(AdamW)": ("AdamW", {}),
        "RiemannianSGD qr": ("RiemannianSGD", {"retraction": "qr"}),
        "torch SGD": ("SGD", {}),
        "torch AdamW": ("AdamW", {}),
    }
    assert list(OPTIMIZERS) == list(options)
    case = Case(TINY[0], dtype=torch.float64, device="cpu")
    distances = {}
    for name, make in OPTIMIZERS.items():
        (param,) = params = case.parameters()
        optimizer = make(params, "matrix", 0.1)
        optimizer.step()
        kind, expected = options[name]
        assert type(optimizer).__name__ == kind
        assert {key: optimizer.param_groups[0][key] for key in expected} == expected
        distances[name] = distance(param.detach()).item()
    assert distances["attach_landing(AdamW)"] < 0.5 < distances["torch AdamW"]  # the one that is pulled back


@pytest.mark.parametrize("workload", TINY, ids=lambda workload: workload.name)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_the_bare_products_are_those_of_the_landing_field(workload, dtype):
    case = Case(workload, dtype=dtype, device="cpu")
    matrices = tall_matrices(case)
    for square in (False, True) if workload.square else (False,):
        step, results = bare_products(case, square=square)
        step()
        found = torch.cat([F.flatten() for F in results])
        expected = [(G @ X.mH) @ X if square else X @ (X.mH @ G) + G @ (X.mH @ X) for X, G in matrices]
        torch.testing.assert_close(found, torch.cat([F.flatten() for F in expected]))


@pytest.mark.parametrize("workload", TINY, ids=lambda workload: workload.name)
def test_points_are_orthonormal_gradients_have_norm_one_and_no_optimizer_moves_far(workload):
    case = Case(workload, dtype=torch.float64, device="cpu")
    for X, G in tall_matrices(case):
        torch.testing.assert_close(X.mH @ X, torch.eye(X.shape[-1], dtype=X.dtype).expand(*X.shape[:-2], -1, -1))
        torch.testing.assert_close(torch.linalg.matrix_norm(G), torch.ones(G.shape[:-2], dtype=G.dtype))
    for make in OPTIMIZERS.values():
        params = case.parameters()
        optimizer = make(params, workload.view, bench.LEARNING_RATE)
        for _ in range(20):
            optimizer.step()
        for param, X in zip(params, case.points, strict=True):
            assert 0 < (param - X).abs().max().item() < 1e-3


def test_in_a_round_every_step_takes_one_sample_in_an_order_that_changes():
    taken = []
    steps = {name: lambda name=name: taken.append(name) for name in "abc"}
    orders = []
    for number in range(4):
        taken.clear()
        seconds = bench.take_round(steps, {"a": 1, "b": 2, "c": 1}, number, torch.device("cpu"))
        assert set(seconds) == set("abc")
        orders.append("".join(taken))
    assert orders == ["abbc", "acbb", "cabb", "cbba"]


def test_short_steps_are_repeated_in_a_sample_and_long_ones_are_not(monkeypatch):
    clock = iter([0.0, 5.0, 0.0, 1e-4])  # a cold step, then a warm one
    monkeypatch.setattr(bench.time, "perf_counter", lambda: next(clock))
    assert bench.repetitions_of(lambda: None, torch.device("cpu")) == 20
    clock = iter([0.0, 5.0, 0.0, 1.0])
    assert bench.repetitions_of(lambda: None, torch.device("cpu")) == 1


def test_a_sample_on_a_gpu_waits_for_it_before_the_clock_starts_and_before_it_stops(monkeypatch):
    events = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: events.append(f"wait for {device}"))
    monkeypatch.setattr(bench.time, "perf_counter", lambda: events.append("clock") or 0.0)
    bench.timed(lambda: events.append("step"), 2, torch.device("cuda:1"))
    assert events == ["wait for cuda:1", "clock", "step", "step", "wait for cuda:1", "clock"]


def test_no_garbage_is_collected_while_a_sample_is_taken():
    collecting = []
    bench.timed(lambda: collecting.append(gc.isenabled()), 2, torch.device("cpu"))
    assert collecting == [False, False]
    assert gc.isenabled()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dtype", "int8"], "--dtype must be one of float32, float64, bfloat16; got 'int8'"),
        (["--device", "tpu"], "--device must be cpu, cuda or cuda:NUMBER; got 'tpu'"),
        (["--device", "cuda:x"], "--device must be cpu, cuda or cuda:NUMBER; got 'cuda:x'"),
        (["--device", "cuda:99"], "--device cuda:99: torch finds "),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"glideslope bench: {message}")
