"""The loop of minimize: interruptions, reasons to stop, the clock, the counts and the history."""

import copy
import pickle
import re
import sys
import time

import numpy as np
import pytest
import torch
from solve.sums import draw, linear, pca, procrustes, stiefel

import glideslope as gs
from glideslope.solve import interruption
from glideslope.solve.solution import Record

WAYS = [
    {},
    {"step_size": 0.1},
    *({"step_size": 0.1, "gradient": g, "batch_size": 20} for g in ("minibatch", "saga", "svrg")),
    {"gradient": "saga", "batch_size": 20},
]
ids = ["auto", "full", "minibatch", "saga", "svrg", "auto saga"]


@pytest.fixture(autouse=True)
def a_pause_between_runs(monkeypatch):
    """As if nobody had pressed Ctrl-C in the test before."""
    monkeypatch.setattr(interruption, "PAUSE", 0.0)


def interrupted_at(problem, call, *names):
    """The problem, with a Ctrl-C at the given call of any of the methods named."""
    calls = []

    def wrapped(original):
        def method(*given):
            calls.append(1)
            if len(calls) == call:
                raise KeyboardInterrupt
            return original(*given)

        return method

    for name in names:
        setattr(problem, name, wrapped(getattr(problem, name)))
    return problem


@pytest.mark.parametrize("options", WAYS, ids=ids)
def test_ctrl_c_in_a_callback_returns_the_best_point(options):
    def stop(record):
        if record.step >= 3:
            raise KeyboardInterrupt

    solution = gs.minimize(pca(), callback=stop, record_every=1, **options)
    assert (solution.stop_reason, solution.converged, solution.n_steps) == ("interrupted", False, 3)
    assert solution.history.step.tolist() == [0, 1, 2, 3]
    assert solution.value < solution.history.value[0]
    assert solution.value == pytest.approx(float(pca().value(solution.X)))
    assert "X0" in solution.advice


@pytest.mark.parametrize("options", WAYS, ids=ids)
def test_ctrl_c_at_any_call_of_the_problem_returns_the_best_point(options):
    for call in range(2, 14):
        problem = interrupted_at(pca(), call, "value_and_gradient", "batch_scores", "scores")
        solution = gs.minimize(problem, record_every=2, tolerance=0, **options)
        assert solution.stop_reason == "interrupted", call
        assert torch.isfinite(solution.X).all(), call
        assert solution.value == pytest.approx(float(pca().value(solution.X))), call
        assert solution.distance <= 0.5, call


def test_ctrl_c_between_records_loses_no_step():
    for options in WAYS:
        problem = interrupted_at(pca(), 30, "value_and_gradient", "batch_scores")
        solution = gs.minimize(problem, record_every=10**6, tolerance=0, **options)
        assert solution.stop_reason == "interrupted"
        assert solution.n_steps == solution.history[-1].step > 3
        assert solution.value < solution.history.value[0]


def test_ctrl_c_before_anything_is_known_is_a_ctrl_c_and_so_is_a_second_one_while_the_run_stops():
    def always(X):
        raise KeyboardInterrupt

    for options in ({}, {"step_size": 0.1}):
        with pytest.raises(KeyboardInterrupt):
            gs.minimize(always, stiefel(6, 2), **options)
    problem, calls = pca(), []
    original = problem.value_and_gradient

    def once(X):
        calls.append(1)
        if len(calls) > 1:
            raise KeyboardInterrupt
        return original(X)

    problem.value_and_gradient = once
    with pytest.raises(KeyboardInterrupt):
        gs.minimize(problem, gradient="minibatch", step_size=0.1, batch_size=20)
    assert len(calls) == 3


@pytest.mark.parametrize("options", WAYS, ids=ids)
def test_a_callback_sees_every_record_and_a_true_result_stops(options):
    seen = []

    def callback(record):
        seen.append(record)
        return record.step >= 2

    solution = gs.minimize(pca(), callback=callback, record_every=1, **options)
    assert (solution.stop_reason, solution.n_steps) == ("callback", 2)
    assert seen == solution.history.records


@pytest.mark.parametrize("options", WAYS[1:], ids=ids[1:])
def test_a_penalty_step_that_runs_away_ends_diverged_with_a_finite_point(options):
    options = {**options, "step_size": 3.0}
    solution = gs.minimize(procrustes(), method="penalty", penalty_weight=10.0, **options)
    assert (solution.stop_reason, solution.converged) == ("diverged", False)
    assert torch.isfinite(solution.X).all()
    assert np.isfinite(solution.value)
    assert "smaller step_size" in solution.advice


@pytest.mark.parametrize("retraction", ["qr", "polar", "cayley", "exponential"])
def test_gradients_that_stop_being_finite_end_diverged_under_every_retraction(retraction):
    calls = []

    def function(X):
        calls.append(1)
        return X[0].sum() * (1.0 if len(calls) < 4 else float("nan"))

    solution = gs.minimize(function, stiefel(6, 2), method="riemannian", retraction=retraction, step_size=0.1,
                           record_every=7)  # fmt: skip
    assert solution.stop_reason == "diverged"
    assert torch.isfinite(solution.X).all()


def test_the_best_point_is_feasible_and_not_merely_low():
    """Far inside f + h + μN a low f bought by a distance counts nothing."""
    problem = linear()
    X0 = problem.optimum().X * 1.1  # f is lower here than anywhere on the manifold, and the tangent part is zero
    solution = gs.minimize(problem, X0, step_size=0.1)
    assert solution.history.value[0] < problem.optimum().value
    assert solution.converged
    assert solution.distance < 1e-6
    assert gs.minimize(problem, X0, step_size=0.1, max_epochs=3).distance < gs.formulas.distance(X0)


def test_the_point_that_converged_is_the_one_returned():
    calls = []

    def function(X):
        calls.append(1)
        return 0.5 * X[0].square().sum() + len(calls)  # whose values rise, whatever X

    solution = gs.minimize(function, stiefel(6, 2), step_size=0.5)
    assert solution.converged
    assert solution.gradient_norm <= 1e-6
    assert solution.value == solution.history.value[-1]


def test_a_run_that_converged_since_its_last_record_says_so():
    options = {"step_size": 0.25, "max_epochs": 400, "record_every": 10**6}
    solution = gs.minimize(pca(), **options)
    assert (solution.stop_reason, solution.converged) == ("converged", True)
    problem = interrupted_at(pca(), 300, "value_and_gradient")
    assert gs.minimize(problem, **options).stop_reason == "interrupted"


class Slow(gs.problems.PCA):
    """A value takes 30 ms, a gradient of a batch nothing."""

    def value_and_gradient(self, X):
        time.sleep(0.03)
        return super().value_and_gradient(X)


class Clocked(gs.problems.PCA):
    """A value takes a second of a clock of its own, a gradient of a batch a hundredth."""

    now = 0.0

    def value_and_gradient(self, X):
        self.now += 1
        return super().value_and_gradient(X)

    def batch_gradient(self, X, index):
        self.now += 0.01
        return super().batch_gradient(X, index)


def test_the_clock_does_not_run_while_records_are_evaluated(monkeypatch):
    problem = Clocked(draw(60, 8), 3)
    monkeypatch.setattr(time, "perf_counter", lambda: problem.now)
    solution = gs.minimize(problem, gradient="minibatch", step_size=0.1, batch_size=20, max_epochs=4, record_every=1)
    assert problem.now > 12
    assert solution.seconds == pytest.approx(12 * 0.01)
    np.testing.assert_allclose(np.diff(solution.history.seconds), 0.01)
    for options in ({"step_size": 0.1}, {}):  # here it is the gradient that takes the time
        assert gs.minimize(problem, max_epochs=6, tolerance=0, **options).seconds >= 5


def test_the_time_limit_stops_a_run():
    for options in ({}, {"step_size": 1e-3}):
        solution = gs.minimize(Slow(draw(60, 8), 3), max_seconds=0.1, tolerance=0, **options)
        assert solution.stop_reason == "max_seconds"
        assert 0.1 <= solution.seconds < 2


@pytest.mark.parametrize(
    ("options", "steps", "gradients"),
    [
        ({"step_size": 0.1, "max_epochs": 5}, 4, 5 * 60),
        ({"step_size": 0.1, "max_epochs": 5, "gradient": "minibatch", "batch_size": 20}, 15, 5 * 60),
        ({"step_size": 0.1, "max_epochs": 5, "gradient": "saga", "batch_size": 20}, 12, 5 * 60),
        ({"step_size": 0.1, "max_epochs": 2, "gradient": "minibatch", "batch_size": 25}, 5, 125),
    ],
)
def test_steps_gradients_and_passes_are_counted(options, steps, gradients):
    solution = gs.minimize(pca(), tolerance=0, **options)
    assert (solution.stop_reason, solution.n_steps, solution.n_gradients) == ("max_epochs", steps, gradients)
    assert solution.n_passes == gradients / 60
    assert solution.history[-1].step == steps
    assert solution.history[-1].passes == gradients / 60


def test_an_automatic_search_counts_every_evaluation():
    problem, calls = pca(), []
    original = problem.value_and_gradient
    problem.value_and_gradient = lambda X: calls.append(1) or original(X)
    solution = gs.minimize(problem)
    assert solution.n_passes == len(calls) >= solution.n_steps + 1
    assert solution.history[-1].step == solution.n_steps


@pytest.mark.parametrize("options", WAYS, ids=ids)
@pytest.mark.parametrize("record_every", [1, 4])
def test_no_step_is_recorded_twice_and_the_last_is_recorded(options, record_every):
    solution = gs.minimize(pca(), max_epochs=5, tolerance=0, record_every=record_every, **options)
    steps = solution.history.step
    assert (np.diff(steps) > 0).all()
    assert (steps[:-1] % record_every == 0).all()
    assert steps[-1] == solution.n_steps


def test_the_history_has_a_column_for_every_field_and_can_be_copied():
    solution = gs.minimize(pca(), step_size=0.1, max_epochs=5, tolerance=0)
    for name in Record._fields:
        assert getattr(solution.history, name).tolist() == [getattr(record, name) for record in solution.history]
    assert len(solution.history) == 5
    with pytest.raises(AttributeError, match=r"a history has step, passes, .*; not 'loss'"):
        _ = solution.history.loss
    for twin in (copy.deepcopy(solution.history), pickle.loads(pickle.dumps(solution.history))):
        assert twin.records == solution.history.records


def test_a_solution_prints_in_five_lines_and_has_a_short_repr():
    solution = gs.minimize(pca(), step_size=0.1, max_epochs=5, tolerance=0)
    value, norm, far, stopped, advice = str(solution).splitlines()
    assert value.split() == ["value", f"{solution.value:.10g}"]
    assert norm.split() == ["gradient", "norm", f"{solution.gradient_norm:.2e}"]
    assert far.split() == ["distance", f"{solution.distance:.2e}"]
    assert stopped.startswith("stopped        max_epochs after 4 steps, 5 passes")
    assert advice.endswith(solution.advice)
    assert "larger max_epochs" in advice
    assert repr(solution).startswith("Solution(max_epochs: value=")
    assert repr(solution).endswith("n_steps=4, X of shape (8, 3))")


@pytest.mark.parametrize("against", ["seconds", "passes"])
def test_a_solution_draws_value_gradient_norm_and_distance(against):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    solution = gs.minimize(pca())
    figure = solution.plot(against)
    value, norm, far = figure.axes
    assert [axis.get_xlabel() for axis in figure.axes] == [against] * 3
    assert norm.get_yscale() == "log"
    history = solution.history
    for axis, numbers in ((value, history.value - history.value.min()), (norm, history.gradient_norm)):
        (line,) = axis.get_lines()
        assert np.array_equal(line.get_xdata(), getattr(history, against))
        assert np.array_equal(line.get_ydata(), np.where(numbers > 0, numbers, np.nan), equal_nan=True)
    assert far.get_title() == "distance"
    with pytest.raises(ValueError, match="against must be one of 'seconds', 'passes'; got 'steps'"):
        solution.plot("steps")
    matplotlib.pyplot.close(figure)


@pytest.mark.parametrize(
    ("module", "call", "message"),
    [
        ("matplotlib", lambda solution: solution.plot(), "needs matplotlib (extra 'plot'): pip install matplotlib"),
        ("pandas", lambda solution: solution.history.to_pandas(), "needs pandas (extra 'pandas'): pip install pandas"),
    ],
)
def test_what_is_not_installed_is_named(module, call, message, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=re.escape(message)):
        call(gs.minimize(pca(), max_epochs=3))


def test_a_history_becomes_a_data_frame():
    pytest.importorskip("pandas")
    history = gs.minimize(pca()).history
    frame = history.to_pandas()
    assert list(frame.columns) == list(Record._fields)
    assert frame.value.tolist() == history.value.tolist()


def test_progress_goes_to_stderr(capsys):
    gs.minimize(pca(), progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "gradient" in captured.err
    assert captured.err.endswith("\n")


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"gradient": "minibatch", "step_size": 1e4}, "smaller step_size"),
        ({"gradient": "minibatch", "step_size": 0.01}, "gradient='saga', or schedule='1/sqrt'"),
        ({"gradient": "minibatch", "step_size": 0.01, "schedule": "1/sqrt"}, "larger max_epochs"),
        ({"gradient": "saga", "step_size": 0.01}, "larger max_epochs"),
    ],
)
def test_the_advice_after_the_last_pass_names_what_held_the_run_up(options, hint, generator):
    problem = gs.problems.PCA(torch.randn(60, 8, dtype=torch.float64, generator=generator), 3)
    solution = gs.minimize(problem, **options, batch_size=10, max_epochs=4, tolerance=0)
    assert solution.stop_reason == "max_epochs"
    assert hint in solution.advice
