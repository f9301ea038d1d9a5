"""`python -m benchmarks.steps` on tiny workloads: what it shows, refuses, and makes of numbers."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

pytest.importorskip("typer")

from benchmarks import environment
from benchmarks.environment import Environment
from benchmarks.steps import measure, peers, workloads
from benchmarks.steps.chart import BARS
from benchmarks.steps.command import main
from benchmarks.steps.measure import METHODS, Report
from benchmarks.steps.methods import FOUR_PRODUCTS, GEOOPT, LANDING, OWN, POGO, THREE_PRODUCTS, floor_of
from benchmarks.steps.timing import Budget, Deadline, Samples, interleave
from benchmarks.steps.workloads import Case, Workload, many, resnet18_kernels, select, single

NETWORK = Workload("net", ((4, 2, 3, 3), (16, 4, 1, 1)), view="conv", family="network")
COMPLEX = Workload("complex 3 of 5 x 5", ((5, 5),) * 3, family="list", is_complex=True)
TINY = (single(40, 8), single(12, 12), *many(3, 6, 6), *many(2, 12, 4), NETWORK, COMPLEX)
ONCE = Budget(rounds=1, fewest=1, seconds=0.0)
ROOT = Path(__file__).parents[2]
METHOD = {method.name: method for method in METHODS}


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command on tiny workloads; gives exit code, what it printed, and what it complained of."""
    monkeypatch.setattr(workloads, "WORKLOADS", TINY)

    def execute(*arguments):
        monkeypatch.setattr(sys, "argv", ["steps", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return execute


@pytest.mark.parametrize(
    ("workload", "dtype"),
    [
        (workload, dtype)
        for workload in TINY
        for dtype in (torch.float32, torch.float64, torch.bfloat16)
        if not (workload.is_complex and dtype == torch.bfloat16)
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_first_step_of_each_of_our_methods_is_its_definition(workload, dtype):
    case = Case(workload, dtype=dtype, device="cpu")
    for method in OWN:
        if method.applies(workload):
            lr = method.checked_lr(case)
            made = method.build(case, lr)
            made.step()
            assert method.complaint(case, made, lr) is None, method.name


def test_the_floor_of_square_matrices_is_three_products_and_of_all_others_four():
    assert [floor_of(workload) for workload in TINY[:3]] == [FOUR_PRODUCTS, THREE_PRODUCTS, THREE_PRODUCTS]
    assert floor_of(NETWORK) == FOUR_PRODUCTS


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (replace(METHOD[LANDING], build=lambda case, lr: METHOD[LANDING].build(case, 1.1 * lr)), "wrong: "),
        (replace(METHOD["LandingSGD polar"], build=METHOD["torch SGD"].build), "wrong: at distance "),
        (replace(METHOD["torch SGD"], build=lambda case, lr: 1 / 0), "error: ZeroDivisionError: division by zero"),
    ],
)
def test_a_method_with_a_wrong_result_is_reported_and_not_timed(broken, complaint):
    report = Report(Environment.now("steps", "cpu", torch.float32))
    measure.measure(report, [single(40, 8)], dtype=torch.float32, budget=ONCE, methods=[METHOD[FOUR_PRODUCTS], broken])
    outcomes = report.results[0].outcomes
    assert outcomes[FOUR_PRODUCTS].timing is not None
    assert outcomes[broken.name].timing is None
    assert outcomes[broken.name].problem.startswith(complaint)


def test_a_method_that_changes_the_gradient_is_wrong():
    def build(case, lr):
        made = METHOD["torch SGD"].build(case, lr)
        step = made.step
        made.step = lambda: (step(), case.gradients[0].mul_(2))
        return made

    case = Case(single(9, 3), dtype=torch.float32, device="cpu")
    before = case.gradients[0].clone()
    assert measure.prepare(replace(METHOD["torch SGD"], build=build), case, ONCE) == "wrong: it changed the gradient"
    assert torch.equal(case.gradients[0], before)


def test_table_json_and_chart_have_every_method_with_its_ratios(run, tmp_path):
    file, chart = tmp_path / "steps.json", tmp_path / "steps.png"
    code, out, _ = run("--rounds", 2, "--threads", 1, "--only", "40 x 8", "--json", file, "--chart", chart)
    assert code == 0
    for text in ("40 x 8: one step, median of 2 rounds", "median ms", "quartiles ms", f"/ {FOUR_PRODUCTS}"):
        assert text in out
    for text in ("1 thread, cpu, float32", f"torch {torch.__version__}", "new bytes in step 2", "bytes of one n x p"):
        assert text in out
    assert chart.read_bytes().startswith(b"\x89PNG")
    written = json.loads(file.read_text())
    assert written["environment"]["threads"] == 1
    assert written["environment"]["command"].startswith("python -m benchmarks.steps --rounds 2")
    (workload,) = written["workloads"]
    assert (workload["name"], workload["rounds"], workload["floor"]) == ("40 x 8", 2, FOUR_PRODUCTS)
    expected = [method.name for method in METHODS if method.applies(single(40, 8))]
    assert list(workload["methods"]) == expected
    landing = workload["methods"][LANDING]
    assert landing["to_landing"] == 1
    assert landing["seconds"]["lower"] <= landing["seconds"]["median"] <= landing["seconds"]["upper"]
    floor = workload["methods"][FOUR_PRODUCTS]["seconds"]["median"]
    assert landing["to_floor"] == pytest.approx(landing["seconds"]["median"] / floor)
    for name, method in METHOD.items():
        if method in OWN and method.applies(single(40, 8)):
            assert "seconds" in workload["methods"][name], workload["methods"][name]


def test_peers_that_are_not_installed_are_reported_as_such(run, monkeypatch):
    monkeypatch.setattr(environment.util, "find_spec", lambda name: None)
    code, out, _ = run("--rounds", 1, "--only", "40 x 8")
    assert code == 0
    assert "geoopt not installed, pogo-torch not installed, geotorch not installed" in out
    rows = [line for line in out.splitlines() if "geoopt Riemannian" in line or "pogo-torch POGO" in line]
    assert len(rows) == 2
    assert all("not installed" in row for row in rows)


@pytest.mark.parametrize("name", [GEOOPT, POGO, peers.GEOTORCH, "torch parametrizations.orthogonal"])
def test_an_installed_peer_starts_at_the_same_point_and_passes_its_check(name):
    method = METHOD[name]
    if method.requires is not None:
        pytest.importorskip(environment.PEERS[method.requires])
    for workload in (single(12, 5), *many(2, 4, 4), NETWORK):
        case = Case(workload, dtype=torch.float32, device="cpu")
        assert not isinstance(measure.prepare(method, case, replace(ONCE, slowest=60.0)), str), workload.name


def test_every_quick_name_is_a_workload_and_every_bar_of_the_chart_a_method():
    assert set(workloads.QUICK) <= {workload.name for workload in workloads.WORKLOADS}
    assert {name for names, _ in BARS.values() for name in names} <= set(METHOD)


def test_the_network_is_all_twenty_kernels_of_resnet18():
    shapes = resnet18_kernels()
    assert len(shapes) == 20
    assert sum(torch.Size(shape).numel() for shape in shapes) == 11_166_912


def test_samples_are_medians_with_quartiles():
    timing = Samples([4.0, 1.0, 2.0, 3.0, 5.0], 7).timing()
    assert (timing.lower, timing.median, timing.upper, timing.samples, timing.repetitions) == (2, 3, 4, 5, 7)
    assert Samples([2.0], 1).timing().median == 2
    assert Samples([], 1).timing() is None


@pytest.mark.parametrize(
    ("budget", "rounds"),
    [
        (Budget(rounds=3, fewest=1, seconds=60.0), 3),  # no more than the most
        (Budget(rounds=9, fewest=2, seconds=0.0), 2),  # the fewest, however long they take
        (Budget(rounds=9, fewest=9, seconds=60.0, whole=-1.0), 1),  # one, when the time is up
    ],
)
def test_every_round_takes_one_sample_of_every_step_until_the_budget_is_spent(budget, rounds):
    taken, samples, seen = set(), {}, []
    steps = {name: lambda name=name: taken.add(name) for name in "abc"}
    how = {"budget": budget, "deadline": Deadline(budget.whole), "device": torch.device("cpu")}
    interleave(steps, samples, **how, on_round=lambda done, of: seen.append(done))
    assert taken == set(samples) == set("abc")
    assert [len(one.seconds) for one in samples.values()] == [rounds] * 3
    assert seen == list(range(1, rounds + 1))


def test_an_interrupt_shows_what_was_measured_so_far(run, monkeypatch):
    calls = []

    def broken(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return interleave(*arguments, **options)

    monkeypatch.setattr(measure, "interleave", broken)
    code, out, _ = run("--rounds", 1, "--only", "40 x 8", "--only", "12 x 12", "--only", "net")
    assert code == 130
    assert "Interrupted" in out
    assert "40 x 8: one step, median of 1 round" in out
    assert "12 x 12: one step, median of 0 rounds" in out
    assert "net: one step" not in out


def test_no_workload_is_begun_when_the_time_is_up():
    report = Report(Environment.now("steps", "cpu", torch.float32))
    measure.measure(report, TINY[:2], dtype=torch.float32, budget=replace(ONCE, whole=-1.0))
    assert report.results == []
    assert report.left_out == ["40 x 8", "12 x 12"]


def test_patterns_select_workloads_and_quick_is_a_subset():
    def names(*patterns, quick):
        return [one.name for one in select(workloads.WORKLOADS, patterns, quick=quick)]

    assert names("5000 x *", quick=True) == [f"5000 x {p}" for p in (100, 200, 500, 1000)]
    assert names(quick=True) == list(workloads.QUICK)
    assert names(quick=False) == [one.name for one in workloads.WORKLOADS]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--dtype", "int8"], "--dtype must be one of float32, float64, bfloat16; got 'int8'"),
        (["--device", "tpu"], "--device must be cpu, cuda or cuda:NUMBER; got 'tpu'"),
        (["--only", "7 x 7"], "--only: '7 x 7' matches no workload; there are '40 x 8', "),
        (["--json", "missing/steps.json"], "cannot write missing/steps.json: give a file in a folder that exists"),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(run, arguments, message):
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"benchmarks.steps: {message}")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said_before_anything_is_measured(run):
    code, _, err = run("--device", "cuda")
    assert code == 2
    assert "torch finds 0 GPUs here" in err


def test_asking_for_help_imports_no_peer_and_no_plotting():
    names = "('geoopt', 'pogo', 'geotorch', 'matplotlib', 'benchmarks.steps.measure')"
    code = (
        "import runpy, sys; sys.argv = ['steps', '--help']\n"
        "try:\n    runpy.run_module('benchmarks.steps', run_name='__main__')\nexcept SystemExit:\n    pass\n"
        f"print('LOADED', [name for name in {names} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "LOADED []" in done.stdout
    assert "python -m benchmarks.steps [OPTIONS]" in done.stdout
