"""Checkpoints of minimize: the same solution to the last bit after any stop, and a damaged file is refused by name."""

import hashlib
import io
import multiprocessing
import os
import random
import signal
import socket
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from solve.sums import ica, pca, procrustes, quartic_pair

import glideslope as gs
from glideslope.solve import checkpoint as files

WAYS = {
    "auto": (pca, {}),
    "auto riemannian": (procrustes, {"method": "riemannian"}),
    "full": (pca, {"step_size": 0.1}),
    "minibatch iid": (pca, {"step_size": 0.1, "gradient": "minibatch", "batch_size": 7}),
    "minibatch shuffle": (
        pca,
        {"step_size": 0.1, "gradient": "minibatch", "batch_size": 7, "sampling": "shuffle", "schedule": "1/sqrt"},
    ),
    "tracked": (
        lambda: pca(N=60, n=40, p=8),
        {"step_size": 0.02, "gradient": "minibatch", "batch_size": 3, "sampling": "shuffle"},
    ),
    "saga": (pca, {"step_size": 0.1, "gradient": "saga", "batch_size": 9}),
    "saga of gradients": (lambda: quartic_pair()[1], {"step_size": 0.05, "gradient": "saga", "batch_size": 4}),
    "svrg shuffle": (pca, {"step_size": 0.1, "gradient": "svrg", "batch_size": 9, "sampling": "shuffle"}),
    "adaptive": (lambda: ica(score="adaptive"), {"step_size": 0.1, "gradient": "saga", "batch_size": 9}),
    "penalty": (pca, {"step_size": 0.05, "method": "penalty", "penalty_weight": 9.0}),
    "auto minibatch": (lambda: pca(N=60, n=40, p=8), {"gradient": "minibatch", "batch_size": 3}),
    "auto saga": (pca, {"gradient": "saga", "batch_size": 9}),
    "auto svrg riemannian": (pca, {"gradient": "svrg", "batch_size": 9, "method": "riemannian"}),
}


class Killed(BaseException):
    """The process ends here."""


def killed_at(step):
    def callback(record):
        if record.step >= step:
            raise Killed

    return callback


def without_time(solution):
    return [record._replace(seconds=0.0) for record in solution.history]


@pytest.mark.parametrize("way", WAYS)
def test_a_run_that_was_stopped_twice_ends_where_an_uninterrupted_one_does(way, tmp_path):
    make, options = WAYS[way]
    options = {"max_epochs": 12, "tolerance": 0, "record_every": 1, **options}
    whole = gs.minimize(make(), **options)
    for stop in (4, 7):
        with pytest.raises(Killed):
            gs.minimize(make(), checkpoint=tmp_path / "run", checkpoint_every=3, callback=killed_at(stop), **options)
    assert files.read_checkpoint(tmp_path / "run")["state"]["step"] == 6
    resumed = gs.minimize(make(), checkpoint=tmp_path / "run", checkpoint_every=3, **options)
    assert torch.equal(resumed.X, whole.X)
    assert without_time(resumed) == without_time(whole)
    assert (resumed.n_steps, resumed.n_gradients, resumed.n_shortened, resumed.stop_reason) == (
        whole.n_steps,
        whole.n_gradients,
        whole.n_shortened,
        whole.stop_reason,
    )


def test_a_finished_run_called_again_returns_the_same_solution_and_more_passes_go_on(tmp_path):
    options = {"step_size": 0.1, "gradient": "saga", "batch_size": 9, "tolerance": 0}
    first = gs.minimize(pca(), max_epochs=5, checkpoint=tmp_path / "run", checkpoint_every=2, **options)
    again = gs.minimize(pca(), max_epochs=5, checkpoint=tmp_path / "run", checkpoint_every=2, **options)
    assert torch.equal(first.X, again.X)
    assert without_time(first) == without_time(again)
    further = gs.minimize(pca(), max_epochs=9, checkpoint=tmp_path / "run", checkpoint_every=2, **options)
    whole = gs.minimize(pca(), max_epochs=9, **options)
    assert torch.equal(further.X, whole.X)
    assert further.n_steps == whole.n_steps > first.n_steps


def test_numpy_goes_in_and_out_of_a_resumed_run(tmp_path):
    data = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    options = {"step_size": np.float64(0.1), "max_epochs": 6, "checkpoint": tmp_path / "run", "checkpoint_every": 2}
    first = gs.minimize(gs.problems.PCA(data, 2), **options)
    again = gs.minimize(gs.problems.PCA(data, 2), **options)
    assert isinstance(again.X, np.ndarray)
    assert np.array_equal(first.X, again.X)


def test_without_steps_given_a_checkpoint_is_written_once_a_minute(tmp_path, monkeypatch):
    options = {"step_size": 0.1, "max_epochs": 9, "tolerance": 0, "checkpoint": tmp_path / "run"}
    gs.minimize(pca(), **options)
    assert not (tmp_path / "run").exists()
    monkeypatch.setattr(files, "SECONDS_BETWEEN", 0.0)
    gs.minimize(pca(), **options)
    assert files.read_checkpoint(tmp_path / "run")["state"]["step"] == 8


@pytest.mark.parametrize("spoil", ["truncated", "altered", "empty", "foreign"])
def test_a_damaged_checkpoint_is_refused_by_name_and_the_previous_one_still_works(tmp_path, spoil):
    options = {"step_size": 0.1, "max_epochs": 9, "tolerance": 0, "checkpoint": tmp_path / "run", "checkpoint_every": 2}
    whole = gs.minimize(pca(), **options)
    good = (tmp_path / "run").read_bytes()
    bad = {
        "truncated": good[: len(good) // 2],
        "altered": good[:-200] + bytes([good[-200] ^ 1]) + good[-199:],
        "empty": b"",
        "foreign": b"something else" * 99,
    }[spoil]
    (tmp_path / "run").write_bytes(bad)
    with pytest.raises(ValueError, match=r"checkpoint '.*run' cannot be read: .*run\.previous"):
        gs.minimize(pca(), **options)
    assert (tmp_path / "run").read_bytes() == bad
    (tmp_path / "run.previous").replace(tmp_path / "run")
    assert files.read_checkpoint(tmp_path / "run")["state"]["step"] == 6
    assert torch.equal(gs.minimize(pca(), **options).X, whole.X)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"seed": 1}, "seed=0; this one has seed=1"),
        ({"step_size": 0.2}, "step_size='0.1'"),
        ({"gradient": "svrg"}, "gradient='saga'"),
        ({"batch_size": 10}, "batch_size=9"),
    ],
)
def test_a_checkpoint_of_other_arguments_is_refused_with_the_difference(tmp_path, changed, named):
    options = {"step_size": 0.1, "gradient": "saga", "batch_size": 9, "max_epochs": 3, "tolerance": 0}
    gs.minimize(pca(), checkpoint=tmp_path / "run", checkpoint_every=2, **options)
    with pytest.raises(ValueError, match=named):
        gs.minimize(pca(), checkpoint=tmp_path / "run", checkpoint_every=2, **{**options, **changed})
    with pytest.raises(ValueError, match="problem='PCA'; this one has problem='Procrustes'"):
        gs.minimize(procrustes(), checkpoint=tmp_path / "run", checkpoint_every=2, **options)


def test_a_schedule_of_all_steps_to_come_is_not_resumed_for_more_of_them(tmp_path):
    options = {"step_size": 0.1, "schedule": "1/sqrt(K)", "tolerance": 0, "checkpoint": tmp_path / "run"}
    gs.minimize(pca(), max_epochs=5, checkpoint_every=2, **options)
    with pytest.raises(ValueError, match=r"with K = 5.*with K = 10"):
        gs.minimize(pca(), max_epochs=10, checkpoint_every=2, **options)


def test_arguments_of_a_checkpoint_that_mean_nothing_are_refused(tmp_path):
    with pytest.raises(ValueError, match="checkpoint_every must be a whole number >= 1; got 0"):
        gs.minimize(pca(), checkpoint=tmp_path / "run", checkpoint_every=0)
    with pytest.raises(ValueError, match="checkpoint_every=3 needs checkpoint"):
        gs.minimize(pca(), checkpoint_every=3)
    with pytest.raises(ValueError, match="folder that exists"):
        gs.minimize(pca(), checkpoint=tmp_path / "nowhere" / "run")


def test_nothing_but_the_two_checkpoints_stays_on_the_disk(tmp_path):
    gs.minimize(pca(), step_size=0.1, max_epochs=9, checkpoint=tmp_path / "run", checkpoint_every=1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.previous"]


def test_a_failing_write_leaves_the_last_checkpoint(tmp_path, monkeypatch):
    options = {"step_size": 0.1, "max_epochs": 9, "tolerance": 0, "checkpoint": tmp_path / "run"}
    gs.minimize(pca(), checkpoint_every=3, **options)
    before = (tmp_path / "run").read_bytes()

    def full_disk(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        gs.minimize(pca(), checkpoint_every=7, **options)
    assert (tmp_path / "run").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "run.previous"]


def bind_socket(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


SPECIAL = {
    "directory": (lambda path: path.mkdir(), "a directory"),
    "pipe": (lambda path: os.mkfifo(path), "a FIFO"),
    "device": (lambda path: path.symlink_to(os.devnull), "a device"),
    "socket": (bind_socket, "a socket"),
}


@pytest.mark.skipif(os.name != "posix", reason="the system has no such files")
@pytest.mark.parametrize("kind", SPECIAL)
def test_what_is_no_regular_file_is_refused_at_once(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    make, words = SPECIAL[kind]
    make(Path("run"))
    with pytest.raises(ValueError, match=f"checkpoint must be a regular file or a name that is free; 'run' is {words}"):
        gs.minimize(pca(), checkpoint="run")
    with pytest.raises(ValueError, match=f"checkpoint 'run' cannot be read: it is {words}"):
        files.read_checkpoint(Path("run"))


def test_contents_that_no_run_wrote_are_refused_and_run_nothing(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    for content, words in ((Bomb(), "mkdir"), ([1], "not those of a run"), ({"state": 1}, "not those of a run")):
        payload = io.BytesIO()
        torch.save(content, payload)
        digest = hashlib.sha256(payload.getvalue()).hexdigest().encode()
        (tmp_path / "run").write_bytes(files.FORMAT + digest + b"\n" + payload.getvalue())
        with pytest.raises(ValueError, match=rf"run' cannot be read: .*{words}.*Delete it"):
            gs.minimize(pca(), checkpoint=tmp_path / "run")
    assert not (tmp_path / "exploded").exists()


# In one worker these tests share the process that their processes are forked from, which has imported torch.
one_server = pytest.mark.xdist_group("forkserver")


def write_often(path, name, start):
    start.wait()
    for i in range(100):
        content = {"name": name, "step": i, "data": torch.full((20_000 + 1000 * i,), float(i))}
        files.write_checkpoint(Path(path), content)


@one_server
def test_two_processes_that_write_one_checkpoint_leave_whole_files(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["glideslope", "solve.sums"])
    path, start = tmp_path / "run", context.Event()
    writers = [context.Process(target=write_often, args=(path, name, start)) for name in "ab"]
    for writer in writers:
        writer.start()
    start.set()
    while any(writer.is_alive() for writer in writers):
        for one in (path, files.previous(path)):
            if one.exists():
                assert len(files.read_checkpoint(one)["data"]) >= 20_000
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["run", "run.previous"]
    assert files.read_checkpoint(path)["step"] == 99


def test_what_a_killed_process_left_is_cleared_away_and_what_others_own_is_not(tmp_path):
    names = [f"run.{'0' * 32}.part", f"run.{'1' * 32}.part", f"other.{'0' * 32}.part", "run.mine.part"]
    for name in names:
        (tmp_path / name).write_bytes(b"half")
        if name != names[1]:  # this one is being written
            os.utime(tmp_path / name, (0, 0))
    gs.minimize(pca(), step_size=0.1, max_epochs=9, checkpoint=tmp_path / "run", checkpoint_every=4)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["run", "run.previous", *names[1:]])


LONG = {
    "step_size": 0.05,
    "gradient": "saga",
    "batch_size": 16,
    "max_epochs": 60,
    "tolerance": 0,
    "checkpoint_every": 1,
}


def problem_to_kill():
    return pca(N=320, n=40, p=6)


def run_to_be_killed(path):
    gs.minimize(problem_to_kill(), checkpoint=path, **LONG)


def solution_after_kills(path, moments):
    """Start the run in a process of its own and end that with SIGKILL after each of the moments, then finish it."""
    start = multiprocessing.get_context("forkserver")
    start.set_forkserver_preload(["glideslope", "solve.sums"])
    steps = []
    for moment in moments:
        process = start.Process(target=run_to_be_killed, args=(path,))
        process.start()
        deadline = time.monotonic() + 60
        written = path.stat().st_mtime_ns if path.exists() else None
        while not path.exists() or path.stat().st_mtime_ns == written:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(moment)
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)
        assert process.exitcode == -signal.SIGKILL
        steps.append(files.read_checkpoint(path)["state"]["step"])
    assert steps == sorted(set(steps))  # every process went on from the one before
    return gs.minimize(problem_to_kill(), checkpoint=path, **LONG)


@one_server
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no kill -9")
@pytest.mark.parametrize("kills", [2, pytest.param(10, marks=pytest.mark.slow)])
def test_after_kill_9_at_random_moments_the_checkpoint_loads_and_the_solution_is_the_same(tmp_path, kills):
    randomness = random.Random(kills)
    moments = [randomness.uniform(0, 0.06) for _ in range(kills)]
    resumed = solution_after_kills(tmp_path / "run", moments)
    whole = gs.minimize(problem_to_kill(), **{key: value for key, value in LONG.items() if key != "checkpoint_every"})
    assert torch.equal(resumed.X, whole.X)
    assert without_time(resumed) == without_time(whole)
