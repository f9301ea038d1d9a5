"""Checkpoints of training jobs, and ranks that die: nothing hangs, nothing is lost, another number of ranks goes on."""

import shutil
import time
import warnings
from types import SimpleNamespace

import pytest
import torch
from distributed.jobs import JOBS, Job, train_in_parts
from distributed.launch import run_on
from distributed.spreading import message_of

import glideslope as gs

pytestmark = pytest.mark.filterwarnings("default")  # torchrun's own, in this process
STEPS = 17


def uninterrupted(name="adam", steps=STEPS):
    job = Job("whole", name)
    job.train(steps)
    return [param.detach() for param in job.model.parameters()]


def assert_same_end(results, expected, done):
    for resumed_at, weights, diagnosis in results:
        assert resumed_at == done
        assert all(max(row.distance) <= 0.5 for row in diagnosis)
        for a, b in zip(weights, expected, strict=True):
            assert (a - b).norm() <= 1e-12 * b.norm()


def folders(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_a_checkpoint_of_two_ranks_is_resumed_on_four_and_on_one(tmp_path, name):
    run_on(2, train_in_parts, tmp_path, 12, name)
    assert folders(tmp_path) == ["step-000000005", "step-000000010"]
    assert_same_end(run_on(4, train_in_parts, tmp_path, STEPS, name), uninterrupted(name), done=10)
    assert_same_end(run_on(1, train_in_parts, tmp_path, 20, name), uninterrupted(name, 20), done=15)


@pytest.mark.slow
def test_torchrun_restarts_after_kill_9_of_a_rank_and_ends_as_an_uninterrupted_run(tmp_path):
    results = run_on(2, train_in_parts, tmp_path, STEPS, "adam", 12, restarts=1)
    assert_same_end(results, uninterrupted(), done=10)


@pytest.mark.slow
def test_kill_9_of_a_rank_ends_the_job_with_an_error_and_another_number_of_ranks_goes_on(tmp_path):
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=r"Signal 9 \(SIGKILL\)"):
        run_on(2, train_in_parts, tmp_path, STEPS, "adam", 12)
    assert time.monotonic() - started < 100
    assert folders(tmp_path) == ["step-000000005", "step-000000010"]
    assert_same_end(run_on(1, train_in_parts, tmp_path, STEPS, "adam"), uninterrupted(), done=10)


def trained(folder, name="adam"):
    """Eleven steps, with a checkpoint every five."""
    job = Job("whole", name)
    job.train(11, after=lambda step: job.save(folder, step) if step % 5 == 0 else None)


@pytest.mark.parametrize("name", JOBS)
def test_one_process_without_ranks_saves_and_resumes_too(tmp_path, name):
    trained(tmp_path, name)
    job = Job("whole", name)
    assert job.load(tmp_path) == 10
    job.train(STEPS - 10, 10)
    for a, b in zip(job.model.parameters(), uninterrupted(name), strict=True):
        assert torch.equal(a.detach(), b)


@pytest.mark.parametrize("spoil", ["truncated", "altered", "missing", "no manifest"])
def test_a_damaged_checkpoint_is_refused_by_name_and_the_previous_one_is_still_there(tmp_path, spoil):
    trained(tmp_path)
    newest = tmp_path / "step-000000010"
    data = next(newest.glob("*.distcp"))
    content = data.read_bytes()
    if spoil == "truncated":
        data.write_bytes(content[: len(content) // 2])
    elif spoil == "altered":
        data.write_bytes(content[:999] + bytes([content[999] ^ 1]) + content[1000:])
    elif spoil == "missing":
        data.unlink()
    else:
        (newest / "sha256.json").unlink()
    job = Job("whole")
    before = [param.detach().clone() for param in job.model.parameters()]
    message = message_of(lambda: job.load(tmp_path))
    assert "step-000000010' cannot be loaded" in message
    assert message.endswith("step=5")
    assert all(map(torch.equal, job.model.parameters(), before))
    assert job.load(tmp_path, step=5) == 5
    job.train(STEPS - 5, 5)
    assert all(torch.equal(a.detach(), b) for a, b in zip(job.model.parameters(), uninterrupted(), strict=True))


def test_a_checkpoint_that_was_not_finished_is_not_seen(tmp_path):
    trained(tmp_path)
    (tmp_path / "step-000000010").rename(tmp_path / "step-000000010.part")
    job = Job("whole")
    assert job.load(tmp_path) == 5
    job.save(tmp_path, 9)
    assert folders(tmp_path) == ["step-000000005", "step-000000009"], "what a killed job left is cleared away"


def test_a_process_that_dies_while_it_deletes_leaves_whole_checkpoints(tmp_path, monkeypatch):
    trained(tmp_path)
    job = Job("whole")
    job.load(tmp_path)

    def killed(path):
        next(path.iterdir()).unlink()
        raise KeyboardInterrupt

    for step in (10, 15):  # one that is there already, and one that drives the oldest out
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", killed)
            with pytest.raises(KeyboardInterrupt):
                job.save(tmp_path, step)
        fresh = Job("whole")
        assert fresh.load(tmp_path) == step
        job.save(tmp_path, 10)
    assert folders(tmp_path) == ["step-000000010", "step-000000015"]


def test_a_save_among_later_steps_is_kept_and_the_later_ones_are_named(tmp_path):
    trained(tmp_path)  # steps 5 and 10
    job = Job("whole")
    job.train(3)
    with pytest.warns(UserWarning, match=r"later checkpoints than the one just written, of step 3: \[5, 10\]"):
        job.save(tmp_path, 3)
    assert folders(tmp_path) == ["step-000000003", "step-000000005", "step-000000010"]
    assert Job("whole").load(tmp_path, step=3) == 3
    with pytest.warns(UserWarning, match=r"of step 7: \[10\]"):
        job.save(tmp_path, 7)
    assert folders(tmp_path) == ["step-000000005", "step-000000007", "step-000000010"], "two up to this step"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        job.save(tmp_path, 12)
    assert folders(tmp_path) == ["step-000000010", "step-000000012"]


def test_other_things_in_the_folder_are_left_alone(tmp_path):
    trained(tmp_path)
    shutil.copytree(tmp_path / "step-000000005", tmp_path / "step-000000003.bak")
    shutil.copytree(tmp_path / "step-000000005", tmp_path / "step-000000099.copy.part")
    (tmp_path / "step-best").mkdir()
    (tmp_path / "step-000000098").write_text("a file")
    (tmp_path / "notes").write_text("mine")
    job = Job("whole")
    assert job.load(tmp_path) == 10
    job.save(tmp_path, 15)
    assert folders(tmp_path) == [
        "notes",
        "step-000000003.bak",
        "step-000000010",
        "step-000000015",
        "step-000000098",
        "step-000000099.copy.part",
        "step-best",
    ]
    assert job.load(tmp_path) == 15


def test_a_checkpoint_from_before_the_first_correction_can_be_loaded(tmp_path):
    job = Job("whole")
    job.save(tmp_path, 0)
    other = Job("whole")
    with torch.no_grad():
        other.model[0].weight.mul_(2)
    assert other.load(tmp_path) == 0
    assert all(map(torch.equal, other.model.parameters(), job.model.parameters()))
    assert other.memory.state_dict()["memory"] == []


def test_a_folder_that_cannot_be_written_is_a_clear_error(tmp_path):
    (tmp_path / "file").write_text("")
    job = Job("whole")
    with pytest.raises(OSError, match=r"checkpoint '.*file/step-000000001' was not written: .*file"):
        job.save(tmp_path / "file", 1)


def test_a_value_that_cannot_be_pickled_is_a_clear_error_and_leaves_the_last_checkpoint(tmp_path):
    trained(tmp_path)
    job = Job("whole")
    other = SimpleNamespace(state_dict=lambda: {"rule": lambda step: step})
    with pytest.raises(OSError, match=r"step-000000011' was not written: .*lambda"):
        gs.save_checkpoint(tmp_path, 11, job.model, job.optimizer, other=other)
    assert job.load(tmp_path) == 10


def test_without_a_checkpoint_nothing_is_loaded_and_wrong_numbers_are_refused(tmp_path):
    job = Job("whole")
    model, optimizer = job.model, job.optimizer
    assert gs.load_checkpoint(tmp_path / "none", model, optimizer) == 0
    with pytest.raises(ValueError, match="no checkpoint of step 3"):
        gs.load_checkpoint(tmp_path, model, optimizer, step=3)
    with pytest.raises(ValueError, match="step must be a whole number"):
        gs.save_checkpoint(tmp_path, -1, model, optimizer)
    with pytest.raises(ValueError, match="step must be a whole number >= 0; got '3'"):
        gs.load_checkpoint(tmp_path, model, optimizer, step="3")
    with pytest.raises(ValueError, match="keep must be a whole number"):
        gs.save_checkpoint(tmp_path, 1, model, optimizer, keep=0)
