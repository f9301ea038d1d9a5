"""The examples do what they say: each is run once, as the main program, and the numbers it prints are checked."""

import math
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
NEEDS_SCIKIT_LEARN = (
    "02_orthogonal_cnn.py",
    "11_streaming_pca.py",
    "12_separate_signals.py",
    "13_image_patches.py",
    "14_eeg_blinks.py",
)
RECORDING = EXAMPLES.parents[1] / "shared" / "data" / "eeg.npz"


def printed_by_a_process(name: str, folder: Path) -> str:
    """What an example prints in a process of its own, with one thread."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_as_main(path: Path) -> None:
    """Run a file as the main program, which may end by sys.exit() without an error."""
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise


def last_number(text: str, label: str) -> float:
    """The number after the last line that begins with the label."""
    found = re.findall(rf"^{re.escape(label)} ([-+.e\d]+)", text, flags=re.MULTILINE)
    assert found, f"no line begins with {label!r}:\n{text}"
    return float(found[-1])


def losses(text: str) -> list[float]:
    """The losses printed on the way."""
    return [float(number) for number in re.findall(r"loss ([-+.e\d]+)", text)]


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Runs an example as the main program, in a folder of its own, and returns what it prints.

    It runs in this process: to import torch, scikit-learn and matplotlib takes longer than most examples.
    """

    def printed(name: str, *arguments: str) -> str:
        if name in NEEDS_SCIKIT_LEARN:
            pytest.importorskip("sklearn")
        monkeypatch.chdir(tmp_path)
        plt.switch_backend("Agg")
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        with torch.random.fork_rng():
            run_as_main(EXAMPLES / name)
        plt.close("all")
        return capsys.readouterr().out

    return printed


def test_procrustes_reaches_the_known_optimum_and_draws_a_picture(run, tmp_path):
    text = run("01_procrustes.py")
    landing = next(line.split() for line in text.splitlines() if line.startswith("landing"))
    assert float(landing[-2]) < 1e-12
    assert float(landing[-1]) < 1e-12
    assert (tmp_path / "output" / "procrustes.png").stat().st_size > 1000


def test_the_orthogonal_cnn_learns_the_digits_with_orthonormal_kernels(run):
    text = run("02_orthogonal_cnn.py")
    assert losses(text)[-1] < losses(text)[0] / 10
    assert last_number(text, "test accuracy") > 0.96
    assert last_number(text, "distance") < 1e-2


def test_the_orthogonal_rnn_recalls_what_no_memoryless_model_can(run):
    text = run("03_orthogonal_rnn.py")
    assert last_number(text, "symbols recalled") > 0.7
    assert last_number(text, "loss") < 0.5 * 10 * math.log(8) / 40
    assert last_number(text, "distance") < 1e-2


def test_a_learned_rotation_quantises_better_than_a_random_one_and_that_better_than_none(run):
    text = run("04_quantisation_rotation.py")
    without, at_random, learned = (last_number(text, f"{which} rotation") for which in ("without", "random", "learned"))
    assert at_random < 0.6 * without
    assert learned < 0.8 * at_random
    assert last_number(text, "distance") < 1e-5


def test_the_adapter_finds_the_low_rank_update_with_orthonormal_factors(run):
    text = run("05_orthonormal_adapter.py")
    assert last_number(text, "relative error of the update") < 0.1
    assert last_number(text, "distance") < 1e-5


def test_the_unitary_matrix_is_recovered(run):
    text = run("06_unitary_matrix.py")
    assert last_number(text, "error") < 5e-3
    assert last_number(text, "distance") < 1e-3


def test_saga_solves_ica_where_sgd_with_the_same_step_stalls(run):
    text = run("07_saga_training_loop.py")
    assert last_number(text, "gradient norm of SGD") > 1e-3
    assert last_number(text, "gradient norm of SAGA") < 1e-5
    assert last_number(text, "distance") < 1e-10
    assert last_number(text, "crosstalk") < 0.1


def test_saga_finds_the_principal_components_where_minibatches_stay_on_a_plateau(run):
    text = run("08_minimize_pca.py")
    assert last_number(text, "gradient norm of minibatch") > 1e-2
    for name in ("saga", "auto"):
        assert last_number(text, f"gradient norm of {name}") <= 1.6e-6  # 1e-6 times ‖∇f(X0)‖, which is 1.52
        assert last_number(text, f"angle of {name}") < 1e-5
        assert last_number(text, f"distance of {name}") < 1e-9


@pytest.mark.slow  # CI runs the example itself
def test_data_parallel_ranks_take_the_same_steps(tmp_path):
    text = printed_by_a_process("10_data_parallel.py", tmp_path)
    assert last_number(text, "ranks") == 2
    assert last_number(text, "difference between ranks") == 0
    assert losses(text)[-1] < 0.1
    assert last_number(text, "distance") < 1e-2


def test_the_stream_of_digits_captures_almost_the_variance_of_exact_components(run, tmp_path):
    text = run("11_streaming_pca.py")
    exact = last_number(text, "variance captured by the exact components")
    assert exact - 1e-3 < last_number(text, "variance captured by the stream") <= exact
    assert last_number(text, "distance") < 1e-12
    assert (tmp_path / "output" / "eigen_digits.png").stat().st_size > 1000


def test_waves_and_noise_are_taken_out_of_their_mixtures(run, tmp_path):
    text = run("12_separate_signals.py")
    for name in ("sine", "square wave", "sawtooth", "Laplace noise"):
        assert last_number(text, f"correlation of the {name}") > 0.995
    assert (tmp_path / "output" / "separated_signals.png").stat().st_size > 1000


def test_independent_components_of_photographs_are_oriented_where_principal_ones_are_not(run, tmp_path):
    text = run("13_image_patches.py")
    assert last_number(text, "share of principal components that are oriented") < 0.6
    assert last_number(text, "share of independent components that are oriented") > 0.85
    principal, independent = (
        last_number(text, f"median kurtosis of {name} components") for name in ("principal", "independent")
    )
    assert independent > 1.3 * principal
    assert (tmp_path / "output" / "image_patches.png").stat().st_size > 1000


def test_the_example_with_a_recording_says_what_to_give_it(run):
    assert "eeg_uV" in run("14_eeg_blinks.py")


@pytest.mark.skipif(not RECORDING.exists(), reason="the EEG recording is not part of the repository")
def test_one_component_of_the_recording_is_the_blink(run, tmp_path):
    text = run("14_eeg_blinks.py", str(RECORDING))
    assert last_number(text, "correlation of the best component with the EOG") > 0.95
    assert last_number(text, "correlation of the second best") < 0.3
    assert (tmp_path / "output" / "eeg_blink.png").stat().st_size > 1000


def test_every_example_is_tested_here():
    here = Path(__file__).read_text(encoding="utf-8")
    assert [path.name for path in sorted(EXAMPLES.glob("*.py")) if f'"{path.name}"' not in here] == []
