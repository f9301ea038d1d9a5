"""The command as users run it: progress, Ctrl-C, kill -9, resume, and errors that say what to do."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from interop.packages import needs
from interop.rotations.decoders import decoder, logits

from recipes.rotations import __main__ as command

ROOT = Path(__file__).parents[3]
WORDS = {f"w{i}": i for i in range(50)}
STEPS = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small decoder with a tokenizer, and a text to learn from."""
    path = tmp_path_factory.mktemp("model")
    transformers, tokenizers = needs("transformers"), needs("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0").save_pretrained(path)
    decoder("Qwen3").save_pretrained(path)
    drawn = torch.randint(0, 50, (2000,), generator=torch.Generator().manual_seed(0)).tolist()
    (path / "text.txt").write_text(" ".join(f"w{i}" for i in drawn), encoding="utf-8")
    return path


def options(folder, output, **changed):
    given = {"texts": folder / "text.txt", "steps": STEPS, "length": 16, "lr": 1e-2, "scale-lr": 1e-2, "threads": 1}
    pairs = [(f"--{name}", str(value)) for name, value in (given | {"output": output} | changed).items()]
    return [str(folder), *(word for pair in pairs for word in pair)]


def start(folder, output):
    """The command in a process of its own."""
    line = [sys.executable, "-m", "recipes.rotations", *options(folder, output)]
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(line, cwd=ROOT, env=os.environ | {"PYTHONPATH": paths}, **pipes)


def send_at(process, step, number):
    """Read what the process prints up to a step, send it a signal there and return the rest."""
    for line in process.stdout:
        if line.startswith(f"step {step}/"):
            process.send_signal(number)
            break
    return process.communicate(timeout=120)


def steps_in(text):
    return [int(found) for found in re.findall(r"^step (\d+)/", text, re.MULTILINE)]


@pytest.fixture(scope="module")
def undisturbed(folder, tmp_path_factory):
    output = tmp_path_factory.mktemp("undisturbed")
    out, error = start(folder, output).communicate(timeout=240)
    assert steps_in(out) == list(range(1, STEPS + 1)), error
    return output


def assert_same_run(output, undisturbed):
    ours, theirs = (torch.load(path / "R.bin", weights_only=True) for path in (output, undisturbed))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    ours, theirs = (json.loads((path / "learning.json").read_text("utf-8")) for path in (output, undisturbed))
    assert ours["scales"] == theirs["scales"]
    assert ours["values"] == theirs["values"]
    assert len(ours["values"]) == STEPS


def test_a_run_killed_by_kill_9_goes_on_to_the_same_rotations_bit_by_bit(folder, undisturbed, tmp_path):
    process = start(folder, tmp_path)
    send_at(process, 25, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "R.bin").exists()
    resumed = start(folder, tmp_path)
    out, error = resumed.communicate(timeout=240)
    assert resumed.returncode == 0, error
    assert steps_in(out)[0] % 10 == 1  # after a checkpoint, which are ten steps apart
    assert 21 <= steps_in(out)[0] < STEPS
    assert_same_run(tmp_path, undisturbed)


def test_ctrl_c_stops_after_the_step_and_loses_nothing(folder, undisturbed, tmp_path):
    process = start(folder, tmp_path)
    out, error = send_at(process, 13, signal.SIGINT)
    assert process.returncode == 130
    assert "stopping after this step" in error
    assert "Traceback" not in error
    done = int(re.search(r"stopped after step (\d+); the same command goes on", out)[1])
    assert 13 <= done < STEPS
    out, _ = start(folder, tmp_path).communicate(timeout=240)
    assert steps_in(out)[0] == done + 1
    assert_same_run(tmp_path, undisturbed)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": 0}, r"--steps must be above 0; got 0"),
        ({"lr": -1}, r"--lr must be above 0; got -1"),
        ({"scale-lr": -1}, r"--scale-lr must be at least 0; got -1"),
        ({"texts": "absent.txt"}, r"absent\.txt"),
        ({"start": "hadamar"}, r"--start must be identity, random, hadamard or an R\.bin file; got 'hadamar'"),
        ({"quantisation": "W4"}, r"named like W4A8, with 2 to 16 bits; got 'W4'"),
        ({"group": 7}, r"group=7 must divide 24, the inputs of model\.layers\.0\.self_attn\.q_proj"),
        ({"length": 5000}, r"2000 tokens, fewer than a sequence of --length 5000"),
        ({"objective": "entropy"}, r"invalid choice: 'entropy'"),
        ({"device": "nowhere"}, r"--device"),
    ],
)
def test_input_that_cannot_be_used_is_refused_in_one_line(folder, tmp_path, capsys, changed, message):
    with pytest.raises(SystemExit) as stopped:
        command.main(options(folder, tmp_path, threads=torch.get_num_threads(), **changed))
    assert stopped.value.code == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("python -m recipes.rotations: error: ")
    assert re.search(message, last)
    assert not (tmp_path / "settings.json").exists()


def test_a_model_that_is_not_there_is_refused_with_its_name(tmp_path, capsys):
    with pytest.raises(SystemExit):
        command.main([str(tmp_path / "absent"), "--output", str(tmp_path / "out")])
    assert re.search(r"absent.* is no folder", capsys.readouterr().err)


def test_another_run_in_the_same_folder_is_not_continued_by_mistake(folder, undisturbed, capsys):
    with pytest.raises(SystemExit):
        command.main(options(folder, undisturbed, threads=torch.get_num_threads(), lr=3e-3))
    assert "holds a run with lr=0.01, not 0.003; repeat its options" in capsys.readouterr().err


def test_a_finished_run_is_only_exported_again(folder, undisturbed, capsys):
    command.main(options(folder, undisturbed, threads=torch.get_num_threads()))
    assert steps_in(capsys.readouterr().out) == []
    reloaded = needs("transformers").AutoModelForCausalLM.from_pretrained(undisturbed / "model")
    assert (logits(reloaded) - logits(decoder("Qwen3"))).abs().max() < 1e-4
