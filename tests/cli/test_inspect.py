"""The `glideslope inspect` command, as a process would run it."""

import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import glideslope as gs
from glideslope import cli
from glideslope.cli.command import INSTALL, SUMMARY
from glideslope.stiefel import orthogonalize_, random_stiefel

pytest.importorskip("typer")


@pytest.fixture
def run(capsys, monkeypatch):
    """Run the command; gives exit code, what it printed, and what it complained of."""

    def command(*arguments):
        monkeypatch.setattr(sys, "argv", ["glideslope", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        captured = capsys.readouterr()
        return ended.value.code or 0, captured.out, captured.err

    return command


@pytest.fixture
def state(generator):
    return {
        "conv.weight": random_stiefel(18, 4, generator=generator).T.reshape(4, 2, 3, 3),
        "conv.bias": torch.ones(4),
        "depthwise.weight": random_stiefel(9, 1, batch=(6,), generator=generator).reshape(6, 1, 3, 3),
        "attention.in_proj_weight": random_stiefel(4, 4, batch=(3,), generator=generator).reshape(12, 4),
        "fc.weight": torch.ones(5, 3),
        "steps": torch.tensor(3),
    }


def verdicts(table):
    """{name: (view, orthonormal)} of a printed table."""
    words = [line.split() for line in table.splitlines()]
    assert words[0][-1] == "orthonormal"
    return {line[0]: (line[4], line[-1]) for line in words[1:]}


EXPECTED = {
    "conv.weight": ("conv", "yes"),
    "depthwise.weight": ("conv", "no"),
    "attention.in_proj_weight": ("split:3", "yes"),
    "fc.weight": ("matrix", "no"),
}


def test_multiples_of_orthonormal_matrices_are_reported_with_their_scale(run, generator, tmp_path):
    state = {
        "half.weight": 0.5 * random_stiefel(6, 3, generator=generator),
        "one.weight": random_stiefel(6, 3, generator=generator),
        "column.weight": torch.ones(6, 1),
        "other.weight": random_stiefel(6, 3, generator=generator) * torch.tensor([1.0, 2.0, 3.0]),
    }
    torch.save(state, tmp_path / "c.pt")
    code, out, _ = run("inspect", tmp_path / "c.pt")
    header, *lines = [line.split() for line in out.splitlines()]
    assert (code, header[-2:]) == (0, ["scale", "orthonormal"])
    found = {line[0]: (float(line[-2]), line[-1]) for line in lines}
    assert found == {
        "half.weight": (0.5, "scaled"),
        "one.weight": (1.0, "yes"),
        "column.weight": (1.0, "no"),
        "other.weight": (1.0, "no"),
    }


@pytest.mark.parametrize("key", [None, "model", "state_dict", "model_state_dict"])
def test_every_matrix_of_a_checkpoint_is_reported_with_its_view(run, state, tmp_path, key):
    torch.save(state if key is None else {key: state, "epoch": 3, "optimizer": {"state": {}}}, tmp_path / "c.pt")
    code, out, err = run("inspect", tmp_path / "c.pt")
    assert (code, err) == (0, "")
    assert verdicts(out) == EXPECTED


def test_a_whole_model_of_torch_layers_is_reported_by_its_marks(run, tmp_path):
    model = nn.Sequential(nn.Conv2d(6, 6, 3, groups=6), nn.TransformerEncoderLayer(4, 2), nn.Linear(3, 3))
    torch.save(model, tmp_path / "free.pt")
    orthogonalize_(model, ["0.weight", "1.self_attn.in_proj_weight"])
    torch.save(model, tmp_path / "marked.pt")
    found = verdicts(run("inspect", tmp_path / "marked.pt")[1])
    assert found == {"0.weight": ("grouped_conv:6", "yes"), "1.self_attn.in_proj_weight": ("split:3", "yes")}
    guessed = verdicts(run("inspect", tmp_path / "free.pt")[1])
    assert guessed["0.weight"] == ("conv", "no")
    assert len(guessed) == 6


def test_patterns_filter_and_views_tell_what_names_and_shapes_do_not(run, state, tmp_path):
    torch.save(state, tmp_path / "c.pt")
    views = ("--view", "depth*=grouped_conv:6")
    assert verdicts(run("inspect", tmp_path / "c.pt", *views)[1])["depthwise.weight"] == ("grouped_conv:6", "yes")
    code, out, _ = run("inspect", tmp_path / "c.pt", "--pattern", "fc.*", "--pattern", "conv.*", *views)
    assert code == 0
    assert verdicts(out) == {name: EXPECTED[name] for name in ("conv.weight", "fc.weight")}


def test_the_tolerance_can_be_set(run, tmp_path):
    torch.save({"w": torch.diag(torch.tensor([1.01, 1.0]))}, tmp_path / "c.pt")
    assert verdicts(run("inspect", tmp_path / "c.pt")[1]) == {"w": ("matrix", "no")}
    assert verdicts(run("inspect", tmp_path / "c.pt", "--tolerance", "0.1")[1]) == {"w": ("matrix", "yes")}


def test_the_limit_of_the_verdict_is_a_thousandth(run, tmp_path):
    # ‖X'X - I‖ of a 1 x 1 matrix x is |x² - 1|.
    state = {"in": torch.tensor([[1.00049]]), "out": torch.tensor([[1.00051]])}
    torch.save(state, tmp_path / "c.pt")
    assert verdicts(run("inspect", tmp_path / "c.pt")[1]) == {"in": ("matrix", "yes"), "out": ("matrix", "no")}


def test_a_checkpoint_without_matrices_is_no_error(run, tmp_path):
    torch.save({"bias": torch.ones(3)}, tmp_path / "c.pt")
    assert run("inspect", tmp_path / "c.pt") == (0, "no floating-point tensor of 2 dimensions or more\n", "")


class Unknown(nn.Module):
    """A class the loader does not know."""


def write_bad_files(folder):
    torch.save({"w": torch.eye(50)}, folder / "whole.pt")
    content = (folder / "whole.pt").read_bytes()
    (folder / "truncated.pt").write_bytes(content[: len(content) // 2])
    (folder / "empty.pt").write_bytes(b"")
    (folder / "text.pt").write_text("not a checkpoint")
    (folder / "text.safetensors").write_text("not a checkpoint")
    (folder / "folder.pt").mkdir()
    torch.save([1, 2], folder / "list.pt")
    torch.save({"epoch": 3}, folder / "no_state.pt")
    torch.save(Unknown(), folder / "foreign.pt")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing.pt", "No such file or directory"),
        (
            "folder.pt",
            "is a folder. A checkpoint of gs.save_checkpoint, one folder per step, becomes a file by: python -m",
        ),
        ("truncated.pt", "is not a readable checkpoint ("),
        ("empty.pt", "is not a readable checkpoint ("),
        ("text.pt", "is no checkpoint, or holds more than tensors and layers of torch.nn; save model.state_dict()"),
        ("foreign.pt", "is no checkpoint, or holds more than tensors and layers of torch.nn; save model.state_dict()"),
        ("list.pt", "holds no state_dict: no tensor by name, at any depth"),
        ("no_state.pt", "holds no state_dict"),
        ("missing.safetensors", "No such file or directory"),
        ("text.safetensors", "is not a readable checkpoint ("),
    ],
)
def test_what_cannot_be_read_is_one_line_and_exit_code_2(run, tmp_path, name, message):
    write_bad_files(tmp_path)
    code, out, err = run("inspect", tmp_path / name)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"glideslope inspect: {tmp_path / name}: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pattern", "fx.*"], "--pattern: 'fx.*' matches no parameter; near it are "),
        (["--view", "fc.weight"], "--view must be PATTERN=VIEW; got 'fc.weight'"),
        (["--view", "fc.weight=rows"], "view must be 'matrix', 'conv'"),
        (["--view", "fc.weight=conv"], "view 'conv' needs a kernel of 3 dimensions or more"),
    ],
)
def test_wrong_options_are_one_line_and_exit_code_2(run, state, tmp_path, arguments, message):
    torch.save(state, tmp_path / "c.pt")
    code, out, err = run("inspect", tmp_path / "c.pt", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert message in err


def test_the_help_says_how_kernels_are_read(run):
    code, out, _ = run("inspect", "--help")
    assert code == 0
    assert "three or more as a convolution kernel" in " ".join(out.split())


def test_safetensors_are_read(run, state, tmp_path):
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, tmp_path / "c.safetensors")
    code, out, _ = run("inspect", tmp_path / "c.safetensors")
    assert (code, verdicts(out)) == (0, EXPECTED)


def test_nested_state_dicts_are_found_and_those_of_optimizers_are_not(run, state, tmp_path):
    linear = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(linear.parameters())
    linear(torch.ones(3)).sum().backward()
    optimizer.step()
    parts = {"encoder": {"inner": state}, "head": linear.state_dict(), "training": {"adam": optimizer.state_dict()}}
    torch.save(parts, tmp_path / "c.pt")
    code, out, _ = run("inspect", tmp_path / "c.pt")
    expected = {f"encoder.inner.{name}": found for name, found in EXPECTED.items()}
    assert (code, verdicts(out)) == (0, {**expected, "head.weight": ("matrix", "no")})


def test_the_version_is_printed(run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["glideslope", "--version"])
    cli.main()
    assert capsys.readouterr().out == f"glideslope {gs.__version__}\n"


def test_the_module_runs_as_the_command(state, tmp_path):
    torch.save(state, tmp_path / "c.pt")
    command = [sys.executable, "-m", "glideslope", "inspect", str(tmp_path / "c.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert verdicts(done.stdout) == EXPECTED


def test_without_typer_the_help_says_what_there_is_and_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "typer", None)
    for arguments in ([], ["--help"]):
        assert run(*arguments) == (0, SUMMARY, "")
    assert run("inspect", "c.pt") == (2, "", SUMMARY)
    assert INSTALL in SUMMARY
