"""A training that is killed inside a run goes on from its last epoch, to the curve of one without a stop."""

import math

import pandas as pd
import pytest
from benchmark_modules import BENCHMARKS, load

from experiments.settings import CNN_METHODS

networks, images, training = load("orthogonal_cnn", "networks", "images", "training")


class Killed(Exception):
    """Stands for the end of the process."""


@pytest.fixture(scope="module")
def solvers():
    from benchopt.benchmark import Benchmark

    load("orthogonal_cnn", "training")
    return {cls.name: cls for cls in Benchmark(BENCHMARKS / "orthogonal_cnn").get_solvers()}


def task(**changes):
    return training.Task(images.digits(100), "vgg16", 8, 32, 3, (1, 2), 5e-4, None, 0)._replace(**changes)


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


def count_epochs(monkeypatch, solver):
    """The arguments of every epoch that is trained from here on."""
    module = __import__("sys").modules[solver.__mro__[1].__module__]
    done, original = [], module.train_epoch
    monkeypatch.setattr(module, "train_epoch", lambda *given: done.append(given) or original(*given))
    return done


@pytest.mark.parametrize("method", CNN_METHODS)
def test_a_killed_run_goes_on_to_the_same_curve_bit_by_bit(solvers, method, monkeypatch, tmp_path):
    monkeypatch.setenv("GLIDESLOPE_RUN_CHECKPOINTS", str(tmp_path / "whole"))
    whole = curve(solvers[method], task())
    assert [record["epoch"] for record in whole] == [0, 1, 2, 3]
    monkeypatch.setenv("GLIDESLOPE_RUN_CHECKPOINTS", str(tmp_path / "cut"))
    for epochs in (1, 2):
        with pytest.raises(Killed):
            curve(solvers[method], task(), killed_after=epochs)
    resumed = curve(solvers[method], task())
    pd.testing.assert_frame_equal(pd.DataFrame(resumed), pd.DataFrame(whole), check_exact=True)
