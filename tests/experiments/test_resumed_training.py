"""A training that is killed inside a run goes on from its last epoch, to the curve of one without a stop."""

import math

import pandas as pd
import pytest
import torch
from benchmark_modules import BENCHMARKS, load

from experiments.settings import CNN_METHODS

images, training = load("orthogonal_cnn", "images", "training")


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def solvers():
    from benchopt.benchmark import Benchmark

    load("orthogonal_cnn", "training")
    return {cls.name: cls for cls in Benchmark(BENCHMARKS / "orthogonal_cnn").get_solvers()}


def task(**changes):
    return training.Task(images.digits(64), "resnet18", 8, 32, 2, (1,), 5e-4, None, 0)._replace(**changes)


def curve(solver, task, *, killed_after=math.inf):
    """The records of a run, without its seconds; the run dies when it has handed over some of them."""
    solver = solver.get_instance(step_size=1e-4 if solver.name == "penalty-1000" else 0.1)
    solver.set_objective(task)
    found = []

    def callback():
        found.append({name: value for name, value in solver.get_result()["record"].items() if name != "seconds"})
        if len(found) > killed_after:
            raise Killed
        return True

    solver.run(callback)
    return found


COMPILING = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # of torch's compiler
SLOW = {"trivialization": pytest.mark.slow}  # a matrix exponential of every kernel in every step


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        *(pytest.param(method, {}, marks=SLOW.get(method, ())) for method in CNN_METHODS),
        ("landing-defaults", {"precision": "bfloat16"}),
        pytest.param("landing-defaults", {"compiled": True}, marks=[pytest.mark.slow, COMPILING]),
    ],
    ids=str,
)
def test_a_killed_run_goes_on_to_the_same_curve_bit_by_bit(solvers, method, changes, monkeypatch, tmp_path):
    monkeypatch.setenv("GLIDESLOPE_RUN_CHECKPOINTS", str(tmp_path / "whole"))
    whole = curve(solvers[method], task(**changes))
    assert [record["epoch"] for record in whole] == [0, 1, 2]
    monkeypatch.setenv("GLIDESLOPE_RUN_CHECKPOINTS", str(tmp_path / "cut"))
    with pytest.raises(Killed):
        curve(solvers[method], task(**changes), killed_after=1)
    resumed = curve(solvers[method], task(**changes))
    pd.testing.assert_frame_equal(pd.DataFrame(resumed), pd.DataFrame(whole), check_exact=True)


@pytest.mark.slow
@COMPILING
def test_a_compiled_network_has_the_same_first_epoch_up_to_rounding(solvers):
    from torch._dynamo.utils import counters

    torch.compiler.reset()  # what another test compiled would be taken as it is
    counters.clear()
    plain = curve(solvers["landing-defaults"], task(epochs=1))[-1]
    assert not counters["stats"]["unique_graphs"]
    compiled = curve(solvers["landing-defaults"], task(epochs=1, compiled=True))[-1]
    assert counters["stats"]["unique_graphs"]
    # After more steps a change in the last digit of the start has grown to as much.
    assert compiled["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-5)
    assert compiled["distance"] == pytest.approx(plain["distance"], rel=1e-2)


def epochs_trained(monkeypatch, solver):
    """The calls of `train_epoch` from here on, in the module that the solver derives from."""
    names, done = solver.run.__globals__, []
    original = names["train_epoch"]
    monkeypatch.setitem(names, "train_epoch", lambda *given: done.append(given) or original(*given))
    return done


def test_a_killed_run_loses_no_epoch_but_the_one_it_was_in_and_a_finished_one_trains_nothing(
    solvers, monkeypatch, tmp_path
):
    monkeypatch.setenv("GLIDESLOPE_RUN_CHECKPOINTS", str(tmp_path))
    trained = epochs_trained(monkeypatch, solvers["landing-defaults"])
    for killed_after in (1, 2, 3):
        with pytest.raises(Killed):
            curve(solvers["landing-defaults"], task(epochs=4), killed_after=killed_after)
    assert len(curve(solvers["landing-defaults"], task(epochs=4))) == 5
    assert len(trained) == 4
    assert len(curve(solvers["landing-defaults"], task(epochs=4))) == 5
    assert len(trained) == 4


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"width": 16}, {"milestones": ()}, {"images": images.digits(96)}, {"precision": "bfloat16"}],
)
def test_a_checkpoint_belongs_to_one_run(solvers, monkeypatch, tmp_path, change):
    monkeypatch.setenv("GLIDESLOPE_RUN_CHECKPOINTS", str(tmp_path))
    curve(solvers["unconstrained"], task(epochs=1))
    trained = epochs_trained(monkeypatch, solvers["unconstrained"])
    curve(solvers["unconstrained"], task(epochs=1, **change))
    assert len(trained) == 1
    assert len(list(tmp_path.glob("*.pt"))) == 2


def test_without_a_folder_nothing_is_written(solvers, monkeypatch, tmp_path):
    monkeypatch.delenv("GLIDESLOPE_RUN_CHECKPOINTS", raising=False)
    monkeypatch.chdir(tmp_path)
    curve(solvers["unconstrained"], task(epochs=1))
    assert not list(tmp_path.iterdir())
