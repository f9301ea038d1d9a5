"""Ctrl-C, by real signals to a process of its own: it ends one run, and the second one ends the program."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from solve.sums import pca

import glideslope as gs
from glideslope.solve import interruption

pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs signals")

# What each of its lines is answered by is in the test below.
CHILD = """
import signal, time
import torch
import glideslope as gs
from glideslope.solve import interruption

signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
interruption.PAUSE = 0.3
X0 = gs.random_stiefel(6, 2, dtype=torch.float64)
slow = False

def say(*words):
    print(*words, flush=True)

def function(X):
    if slow:
        say("evaluating")
        time.sleep(20)
    time.sleep(0.002)
    return X[0].square().sum()

def told(record):
    if record.step == 3:
        say("running")

def run(max_epochs=1e9):
    return gs.minimize(function, X0, step_size=1e-3, tolerance=0, max_epochs=max_epochs, callback=told)

solution = run()
say("returned", solution.stop_reason, solution.n_steps >= 3)

time.sleep(0.4)
say("returned", run().stop_reason)

time.sleep(0.4)
try:
    for i in range(100):
        say("run", i, run().stop_reason)
except KeyboardInterrupt:
    say("stopped after", i)

time.sleep(0.4)
try:
    for i in range(10**6):
        try:
            say("short", run(max_epochs=60).stop_reason)
        except KeyboardInterrupt:
            say("from minimize")
            raise
except KeyboardInterrupt:
    say("stopped")

time.sleep(0.4)
try:
    def then_slow(record):
        global slow
        if record.step == 3:
            slow = True

    solution = gs.minimize(function, X0, step_size=1e-3, tolerance=0, record_every=3, callback=then_slow)
    say("returned", solution.stop_reason)
except KeyboardInterrupt:
    say("raised")
"""


class Child:
    """A process that talks by lines."""

    def __init__(self, code):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(gs.__file__).parents[1])}
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        self.watchdog = threading.Timer(60, self.process.kill)
        self.watchdog.start()

    def says(self, *lines):
        for line in lines:
            assert self.process.stdout.readline().strip() == line

    def press(self):
        self.process.send_signal(signal.SIGINT)


def test_ctrl_c_ends_one_run_and_a_second_one_the_program():
    child = Child(CHILD)
    try:
        child.says("running")
        child.press()
        child.says("returned interrupted True")
        child.says("running")  # after a pause: a new run, which is kept again
        child.press()
        child.says("returned interrupted")
        child.says("running")  # in a loop
        child.press()
        child.says("run 0 interrupted", "running")
        child.press()
        child.says("stopped after 1")
        child.says("running", "short max_epochs", "running")  # in a loop of runs that last a moment each
        child.press()
        child.says("short interrupted")
        child.says(*["running", "short max_epochs"] * 4, "running")  # longer than the pause that ends it
        child.press()
        child.says("from minimize", "stopped")
        child.says("evaluating")  # slow, so that there is time to press during the last evaluation too
        child.press()
        child.says("evaluating")
        child.press()
        child.says("raised")
        _, errors = child.process.communicate(timeout=20)
        assert child.process.returncode == 0, errors
        assert errors.count("Ctrl-C ends this run") == 5
        assert "again" in errors
    finally:
        child.watchdog.cancel()
        child.process.kill()
        child.process.communicate()


def pressed_at(step):
    def callback(record):
        if record.step >= step:
            raise KeyboardInterrupt

    return callback


def test_a_second_ctrl_c_in_the_run_that_follows_is_passed_on(monkeypatch, capsys):
    monkeypatch.setattr(interruption.CtrlC, "ended", -float("inf"))
    first = gs.minimize(pca(), callback=pressed_at(2), step_size=0.1)
    assert first.stop_reason == "interrupted"
    assert "press it again" in capsys.readouterr().err.lower()
    assert gs.minimize(pca(), max_epochs=3, step_size=0.1).stop_reason == "max_epochs"
    with pytest.raises(KeyboardInterrupt):
        gs.minimize(pca(), callback=pressed_at(2), step_size=0.1)
    monkeypatch.setattr(interruption, "PAUSE", 0.0)
    assert gs.minimize(pca(), callback=pressed_at(2)).stop_reason == "interrupted"


def test_ctrl_c_during_the_last_evaluation_of_a_finished_run_returns_what_there_is(monkeypatch):
    monkeypatch.setattr(interruption.CtrlC, "ended", -float("inf"))
    problem = pca()
    original = problem.value_and_gradient

    def pressed_on_the_second(X, calls=[]):  # noqa: B006
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(X)

    problem.value_and_gradient = pressed_on_the_second
    solution = gs.minimize(problem, gradient="minibatch", step_size=0.1, batch_size=20, max_epochs=1, record_every=100)
    assert (solution.stop_reason, len(solution.history)) == ("interrupted", 1)
    assert torch.isfinite(solution.X).all()
