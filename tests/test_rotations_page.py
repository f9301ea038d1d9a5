"""The page on rotations says what the records of the recipe say, and the recipe's texts are apart."""

import re
import statistics
from pathlib import Path

import pytest

from recipes.rotations import report
from recipes.rotations.compare import ORTHOGONAL, chosen_rate
from recipes.rotations.measure import LEARNED, TESTS, chosen
from recipes.rotations.texts import apart, data_sets, help_topics

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "rotations.md").read_text(encoding="utf-8")
PERPLEXITIES, OPTIMIZERS = report.read(report.PERPLEXITIES), report.read(report.OPTIMIZERS)
STEPS = report.read(report.STEPS)
OURS = "LandingSGD"


def test_the_tables_are_those_of_the_records():
    for text in TESTS:
        assert report.perplexity_table(PERPLEXITIES, text) in PAGE
    assert report.validation_table(PERPLEXITIES) in PAGE
    assert report.optimizer_table(OPTIMIZERS, STEPS) in PAGE
    assert report.step_table(STEPS) in PAGE


def test_folding_did_not_change_the_perplexity():
    original = PERPLEXITIES["original"][TESTS[0]]
    assert list(PERPLEXITIES["folded"].values()) == [pytest.approx(original, rel=1e-4)] * len(PERPLEXITIES["folded"])
    full = ", ".join(f"{PERPLEXITIES['original'][text]:.2f} ({text})" for text in TESTS)
    assert f"Full precision: {full}" in PAGE


@pytest.mark.parametrize("text", TESTS)
@pytest.mark.parametrize("setting", ["W4A8", "W4A4"])
def test_learned_by_cross_entropy_is_the_best_of_all(setting, text):
    learned = report.of_seeds(PERPLEXITIES, "cross-entropy", setting, text)
    rest = [row for row in report.LABELS if row != "cross-entropy"]
    others = [value for row in rest for value in report.of_seeds(PERPLEXITIES, row, setting, text)]
    assert len(others) + len(learned) == sum(report.SEEDS.values())
    assert max(learned) < min(others)


@pytest.mark.parametrize("row", LEARNED)
def test_what_was_tested_is_what_was_chosen_on_the_validation_text(row):
    objective, rate = chosen(PERPLEXITIES, row).split(" | ")
    for seed in range(report.SEEDS[row]):
        command = PERPLEXITIES["learning"][f"{row} | {seed}"]["command"]
        assert f"--lr {rate}" in command
        assert f"--objective {objective}" in command or objective == "cross-entropy"


def test_the_rate_of_cross_entropy_is_not_at_the_edge_of_the_grid():
    rates = [float(name.split(" | ")[1]) for name in PERPLEXITIES["validation"] if name.startswith("cross-entropy")]
    assert min(rates) < float(chosen(PERPLEXITIES, "cross-entropy").split(" | ")[1]) < max(rates)


def paragraphs(text):
    return {" ".join(paragraph.split()) for paragraph in text.split("\n\n")} - {""}


def test_training_validation_and_test_texts_share_no_paragraph():
    texts = [paragraphs(text) for text in (*help_topics(), data_sets())]
    assert min(map(len, texts)) > 100
    assert sum(map(len, texts)) == len(set.union(*texts))


def test_a_paragraph_stays_in_the_first_part_that_has_it():
    assert apart([["a b\n\nc"], ["a\nb\n\nd", "c"], ["d\n\ne"]]) == ["a b\n\nc", "d", "e"]


def test_learned_rotations_are_orthogonal_without_a_projection():
    assert all(run["largest_entry_without_projection"] < 1e-6 for run in PERPLEXITIES["learning"].values())


def test_landing_ends_lowest_in_the_mean_and_orthogonal_at_every_rate():
    mean = {
        name: statistics.mean(run["objective"] for run in report.starts(OPTIMIZERS, name)) for name in report.METHODS
    }
    assert min(mean, key=mean.get) == OURS
    tried = [run for name, run in OPTIMIZERS["runs"].items() if name.startswith(f"{OURS} |")]
    assert len(tried) == len(report.METHODS[OURS].rates) + report.STARTS - 1
    assert all(run["largest_entry"] <= ORTHOGONAL for run in tried)


@pytest.mark.parametrize("name", report.METHODS)
def test_chosen_rates_of_optimizers_are_inside_their_grids(name):
    rates = report.METHODS[name].rates
    assert min(rates) < chosen_rate(OPTIMIZERS, name) < max(rates)


def test_a_step_of_sgdg_takes_three_of_ours_at_both_sizes_and_one_with_qr_does_not():
    assert {key.split(" | ")[0] for key in STEPS["steps"]} == {"576", "4096"}
    for timed in STEPS["steps"].values():
        times = {name: one["times_landing"] for name, one in timed["times"].items()}
        assert times["SGDG as it is run"] > 3
        assert times["Riemannian SGD, QR"] < 3


def test_a_rate_that_leaves_the_manifold_is_never_chosen():
    run = {"objective": 1.0, "largest_entry": 1e-7}
    runs = {f"{OURS} | {lr:g} | 0": run for lr in report.METHODS[OURS].rates}
    worse, lower = report.METHODS[OURS].rates[:2]
    runs[f"{OURS} | {worse:g} | 0"] = {"objective": 0.1, "largest_entry": 2e-6}
    runs[f"{OURS} | {lower:g} | 0"] = {"objective": 0.5, "largest_entry": 1e-6}
    assert chosen_rate({"runs": runs}, OURS) == lower


def test_commands_are_recorded_without_folders_of_a_machine():
    commands = [run["command"] for run in PERPLEXITIES["learning"].values()]
    commands += [timed["about"]["command"] for timed in STEPS["steps"].values()]
    for command in [*commands, PERPLEXITIES["about"]["command"], OPTIMIZERS["about"]["command"]]:
        assert command.startswith("python -m recipes.rotations")
        assert not re.search(r"/tmp|/work|/home|/root", command)


def test_the_figure_is_drawn_from_the_record(tmp_path):
    pytest.importorskip("matplotlib")
    report.draw(PERPLEXITIES, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
