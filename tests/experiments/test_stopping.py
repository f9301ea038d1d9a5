"""`python -m experiments` that is stopped by Ctrl-C, and two of them in one folder, as processes of their own."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from benchmark_modules import load
from rich.console import Console

import glideslope
from experiments import records
from experiments.execute import Setup, run_experiments, run_studies
from experiments.lock import locked
from experiments.scales import SCALES
from glideslope.solve import interruption

ROOT = Path(__file__).parents[2]
CODE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores it
runpy.run_module("experiments", run_name="__main__")
"""
GIVEN = {"methods": ("landing",), "seeds": 1, "epochs": 600.0, "milestones": (300.0,), "grid": (0.01, 0.1)}
OPTIONS = ["--methods", "landing", "--seeds", "1", "--epochs", "600", "--milestones", "300", "--grid", "0.01,0.1"]
posix = pytest.mark.skipif(os.name != "posix", reason="needs signals and locks of POSIX")


class Command:
    """`python -m experiments pca` at smoke scale in a process of its own, ended after two minutes at the latest."""

    def __init__(self, output, *options):
        arguments = [sys.executable, "-c", CODE, "pca", "--scale", "smoke", "--output", str(output)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(glideslope.__file__).parents[1])}
        self.output = output
        self.process = subprocess.Popen(
            [*arguments, *OPTIONS, *options],
            cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        self.watchdog = threading.Timer(120, self.process.kill)
        self.watchdog.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.watchdog.cancel()
        self.process.kill()
        self.process.communicate()

    def wait_for(self, name, words):
        """Until a file of the output has some words."""
        file = self.output / name
        while not (file.exists() and words in file.read_text()):
            assert self.process.poll() is None, self.process.communicate()
            time.sleep(0.01)

    def press(self):
        """Ctrl-C goes to all processes of the foreground."""
        os.killpg(self.process.pid, signal.SIGINT)

    def end(self, seconds):
        """Exit code and standard error."""
        _, errors = self.process.communicate(timeout=seconds)
        return self.process.returncode, errors


@posix
def test_the_first_ctrl_c_stops_the_experiments_and_no_short_run_is_kept(tmp_path):
    with Command(tmp_path) as command:
        command.wait_for("log.txt", "epochs=600.0")  # after the search, at the start of a run of two seconds
        time.sleep(0.3)
        command.press()
        code, errors = command.end(10)
    assert code == 130
    assert "Finished runs are kept, and the same command goes on from there" in errors
    assert "Traceback" not in errors
    log = (tmp_path / "log.txt").read_text()
    assert log.count(": done") == 2
    assert not (tmp_path / "report.html").exists()
    assert not (tmp_path / "records").exists()
    setup = Setup(experiments=("pca",), scale="smoke", output=tmp_path, threads=1)
    assert run_studies(setup, SCALES["smoke"].with_options(("pca",), GIVEN), Console(quiet=True)) == {}
    ends = records.last(records.read(tmp_path / "records")["pca-text-n60-p10"])
    assert ends["epoch"].tolist() == [600]


@posix
def test_two_of_them_in_one_folder_are_an_error_and_a_dead_one_blocks_nobody(tmp_path):
    setup = Setup(experiments=("penalty",), scale="smoke", output=tmp_path)
    with Command(tmp_path) as command:
        command.wait_for(".lock", "\n")
        with pytest.raises(
            ValueError, match=rf"process {command.process.pid} is .* wait for it, or give another --out"
        ):
            run_experiments(setup, Console(quiet=True))
        assert not (tmp_path / "records").exists()
        assert command.process.poll() is None
        command.process.kill()
        command.process.wait()
    with locked(tmp_path):
        pass


def test_a_folder_is_locked_for_as_long_as_it_is_written(tmp_path):
    with locked(tmp_path):
        with pytest.raises(ValueError, match="another --output"), locked(tmp_path):
            pass
        with locked(tmp_path / "other"):
            pass
    with locked(tmp_path):
        pass


class Pressed:
    """Ctrl-C at a call."""

    def __init__(self, monkeypatch, owner, name, call):
        original, calls = getattr(owner, name), []

        def wrapped(*given):
            calls.append(1)
            if len(calls) == call:
                raise KeyboardInterrupt
            return original(*given)

        monkeypatch.setattr(owner, name, wrapped)


@pytest.mark.parametrize("gradient", ["full", "saga"])
def test_ctrl_c_in_a_run_of_ica_is_no_result(monkeypatch, gradient):
    monkeypatch.setattr(interruption, "PAUSE", 0.0)
    ica = load("ica", "ica")
    mixture = ica.text_mixture(200, 3, 0)
    Pressed(monkeypatch, ica.Observed, "value_and_gradient", 5)
    options = {"method": "landing", "gradient": gradient}
    solver = type("Solver", (ica.Minimizer,), {"name": "landing", "options": options}).get_instance(step_size=0.1)
    solver.set_objective(ica.Task(mixture, 20, 20, None, 0))
    with pytest.raises(KeyboardInterrupt):
        solver.run(lambda: True)


def test_ctrl_c_in_the_search_for_the_reference_of_ica_is_no_reference(monkeypatch):
    monkeypatch.setattr(interruption, "PAUSE", 0.0)
    ica = load("ica", "ica")
    Pressed(monkeypatch, glideslope.problems.ICA, "value_and_gradient", 3)
    with pytest.raises(KeyboardInterrupt):
        ica.text_mixture(200, 3, 1)
