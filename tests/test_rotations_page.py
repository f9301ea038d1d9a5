"""The page on rotations says what the records of the recipe say."""

from pathlib import Path

import pytest

from recipes.rotations import report

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "rotations.md").read_text(encoding="utf-8")
PERPLEXITIES, OPTIMIZERS = report.read(report.PERPLEXITIES), report.read(report.OPTIMIZERS)


def test_the_tables_are_those_of_the_records():
    assert report.perplexity_table(PERPLEXITIES) in PAGE
    assert report.optimizer_table(OPTIMIZERS) in PAGE


def test_folding_did_not_change_the_perplexity():
    for name in PERPLEXITIES["learning"]:
        assert PERPLEXITIES["runs"][f"{name} | 0 | W16A16"] == pytest.approx(PERPLEXITIES["original"], rel=1e-4)
    assert f"Full precision: {PERPLEXITIES['original']:.2f}" in PAGE


@pytest.mark.parametrize("setting", ["W4A8", "W4A4"])
def test_learned_by_cross_entropy_is_the_best_of_all(setting):
    learned = report.of_seeds(PERPLEXITIES, "cross-entropy", setting)
    others = [value for name in report.LABELS for value in report.of_seeds(PERPLEXITIES, name, setting)]
    assert len(others) == sum(report.SEEDS.values())
    assert min(others) == max(learned)


def test_learned_rotations_are_orthogonal_without_a_projection():
    assert all(run["largest_entry_without_projection"] < 1e-6 for run in PERPLEXITIES["learning"].values())


def test_landing_reaches_no_higher_objective_than_sgdg_qr_and_the_parametrization():
    best = {name: OPTIMIZERS["runs"][f"{name} | {report.best_rate(OPTIMIZERS, name)}"] for name in report.METHODS}
    assert min(run["objective"] for run in best.values()) == best["LandingSGD"]["objective"]


def test_commands_are_recorded_without_folders_of_a_machine():
    commands = [run["command"] for run in PERPLEXITIES["learning"].values()]
    for command in [*commands, PERPLEXITIES["about"]["command"], OPTIMIZERS["about"]["command"]]:
        assert command.startswith("python -m recipes.rotations")
        assert "/tmp" not in command


def test_the_figure_is_drawn_from_the_record(tmp_path):
    pytest.importorskip("matplotlib")
    report.draw(PERPLEXITIES, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000
