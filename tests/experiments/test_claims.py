"""Verdicts on made-up records: a claim holds, does not hold, or is not tested."""

import math

import pandas as pd
import pytest

from experiments import penalty_figure
from experiments.claims import DOES_NOT_HOLD, HOLDS, NOT_TESTED, TOO_SHORT, verdicts
from experiments.claims import cnn as cnn_claims
from experiments.claims import ica as ica_claims
from experiments.claims import pca as pca_claims
from experiments.claims import penalty as penalty_claims

LENGTH = 4.0


@pytest.fixture(autouse=True)
def the_length_of_the_text(monkeypatch):
    """Four epochs, as the runs below have."""
    monkeypatch.setattr(pca_claims, "EPOCHS_OF_THE_TEXT", LENGTH)


def run(method, seconds, seeds=2, **columns):
    """Records of one method at epochs 0 to 4; a column is a list over epochs or a number."""
    rows = []
    for seed in range(seeds):
        for epoch in range(5):
            values = {name: value[epoch] if isinstance(value, list) else value for name, value in columns.items()}
            rows.append({"method": method, "seed": seed, "epoch": float(epoch), "seconds": seconds * epoch, **values})
    return pd.DataFrame(rows).assign(phase="run", status="running", step_size=0.1)


def study(*parts, **facts):
    return pd.concat(parts, ignore_index=True).assign(scale="laptop", **facts)


def outcome(found):
    return found.outcome


def pca(landing_seconds=1.0, qr_seconds=2.0, landing=(9, 5, 3, 2, 1), n=5000, penalty=1e-7, end=1e-9, **others):
    distances = [0.0, penalty, penalty, penalty, end]
    first = run("landing", landing_seconds, value=list(landing), penalty=distances, gap_at_iterate=1.0)
    second = run("riemannian-qr", qr_seconds, value=[9, 5, 3, 2, 1], penalty=1e-13, gap_at_iterate=1.0)
    parts = [run(name.replace("_", "-"), 1.0, **columns) for name, columns in others.items()]
    facts = {"experiment": "pca", "study": f"pca-text-n{n}-p100", "title": "t", "n": n, "p": 100, "first_milestone": 3}
    return study(first, second, *parts, **facts)


def test_landing_is_faster_per_epoch_or_not():
    assert pca_claims.faster([pca()]).outcome == HOLDS
    assert pca_claims.faster([pca(landing_seconds=3.0)]).outcome == DOES_NOT_HOLD
    assert pca_claims.faster([pca(), pca(landing_seconds=3.0)]).outcome == DOES_NOT_HOLD
    assert pca_claims.faster([]).outcome == NOT_TESTED
    assert "1 s against 2 s (2×)" in pca_claims.faster([pca()]).evidence


def test_landing_reaches_the_loss_sooner_or_not():
    assert pca_claims.sooner([pca()]).outcome == HOLDS
    assert pca_claims.sooner([pca(landing_seconds=2.5)]).outcome == DOES_NOT_HOLD
    # Faster epochs, more of them: the loss of 4 is reached in the fourth, QR's in the second.
    assert pca_claims.sooner([pca(landing=(9, 8, 7, 6, 4))]).outcome == DOES_NOT_HOLD
    assert pca_claims.sooner([]).outcome == NOT_TESTED


def test_the_distance_is_judged_at_the_size_of_the_text_alone():
    assert pca_claims.close([pca()]).outcome == HOLDS
    assert pca_claims.close([pca(penalty=1e-5)]).outcome == DOES_NOT_HOLD
    assert pca_claims.close([pca(n=800)]).outcome == NOT_TESTED
    with_ten = pca(penalty=1e-5, landing_10={"value": 1.0, "penalty": 2e-8})
    assert "with λ = 10 at most 2.0e-08, at the end 2.0e-08" in pca_claims.close([with_ten]).evidence


def test_the_distance_falls_after_the_decay_or_not():
    assert pca_claims.falls([pca()]).outcome == HOLDS
    assert pca_claims.falls([pca(end=1e-6)]).outcome == DOES_NOT_HOLD
    short = pca()
    assert pca_claims.falls([short[short["epoch"] <= 3]]).outcome == NOT_TESTED


@pytest.mark.parametrize(
    ("distance", "gap", "expected"), [(1e-3, -0.5, HOLDS), (1e-3, 0.5, DOES_NOT_HOLD), (1e-12, -0.5, DOES_NOT_HOLD)]
)
def test_too_small_a_penalty_is_far_with_a_negative_loss(distance, gap, expected):
    records = pca(penalty_100={"value": 1.0, "penalty": distance, "gap_at_iterate": gap})
    assert pca_claims.too_small([records]).outcome == expected
    assert pca_claims.too_small([pca()]).outcome == NOT_TESTED


def test_a_short_run_at_the_size_of_the_text_refutes_nothing(monkeypatch):
    monkeypatch.setattr(pca_claims, "EPOCHS_OF_THE_TEXT", 60)
    failing = pca(penalty_100={"value": 1.0, "penalty": 1e-3, "gap_at_iterate": 0.5})
    verdict = pca_claims.too_small([failing])
    assert verdict.outcome == TOO_SHORT
    assert "after 4 of 60 epochs: too short" in verdict.evidence
    holding = pca(penalty_100={"value": 1.0, "penalty": 1e-3, "gap_at_iterate": -0.5})
    assert pca_claims.too_small([holding]).outcome == HOLDS
    assert pca_claims.too_small([holding, failing]).outcome == TOO_SHORT
    smaller = pca(n=800, penalty_100={"value": 1.0, "penalty": 1e-3, "gap_at_iterate": 0.5})
    assert pca_claims.too_small([smaller]).outcome == DOES_NOT_HOLD
    assert pca_claims.too_small([smaller, failing]).outcome == DOES_NOT_HOLD


def test_a_short_run_with_the_longest_step_of_its_grid_confirms_nothing(monkeypatch):
    def searched(largest):
        search = pd.DataFrame(
            {"method": "landing", "step_size": [0.01, largest], "phase": "search", "n": 5000, "p": 100}
        )
        return pd.concat([pca(), search], ignore_index=True)

    assert pca_claims.sooner([searched(0.1)]).outcome == HOLDS
    monkeypatch.setattr(pca_claims, "EPOCHS_OF_THE_TEXT", 60)
    verdict = pca_claims.sooner([searched(0.1)])
    assert verdict.outcome == TOO_SHORT
    assert "step sizes at the edge of the grid" in verdict.evidence
    assert pca_claims.sooner([searched(0.3)]).outcome == HOLDS


def test_too_large_a_penalty_is_slow():
    slow, quick = ({"value": value, "penalty": 1e-9, "gap_at_iterate": value} for value in (8.0, 1.5))
    assert pca_claims.too_large([pca(penalty_10000=slow)]).outcome == HOLDS
    assert pca_claims.too_large([pca(penalty_10000=quick)]).outcome == DOES_NOT_HOLD
    assert pca_claims.too_large([pca()]).outcome == NOT_TESTED


def ica(saga=(9, 1, 0.1, 0.01, 1e-9), saga_seconds=1.0, distance=1e-20, qr_seconds=3.0):
    parts = [
        run("landing-saga", saga_seconds, value=list(saga), penalty=[0.0, 1e-5, 1e-9, 1e-15, distance]),
        run("landing-sgd", 1.0, value=[9, 1, 0.5, 0.5, 0.5], penalty=1e-6),
        run("landing-gd", 10.0, value=[9, 8, 5, 2, 0.4], penalty=1e-12),
        run("riemannian-sgd-qr", qr_seconds, value=[9, 1, 0.5, 0.5, 0.5], penalty=1e-30),
    ]
    return study(*parts, experiment="ica", study="ica-text", title="t")


def test_saga_overcomes_the_plateau_or_not():
    assert ica_claims.plateau([ica()]).outcome == HOLDS
    assert ica_claims.plateau([ica(saga=(9, 1, 0.6, 0.4, 0.3))]).outcome == DOES_NOT_HOLD
    assert ica_claims.plateau([]).outcome == NOT_TESTED


def test_saga_is_much_faster_than_the_full_gradient_or_not():
    assert ica_claims.faster_than_full([ica()]).outcome == HOLDS
    assert ica_claims.faster_than_full([ica(saga_seconds=18.0)]).outcome == DOES_NOT_HOLD
    assert ica_claims.faster_than_full([]).outcome == NOT_TESTED


def test_the_distance_of_saga_is_very_low_or_not():
    assert ica_claims.low([ica()]).outcome == HOLDS
    assert ica_claims.low([ica(distance=1e-8)]).outcome == DOES_NOT_HOLD
    assert ica_claims.low([]).outcome == NOT_TESTED


def test_retractions_are_much_slower_or_not():
    assert ica_claims.retractions([ica()]).outcome == HOLDS
    assert ica_claims.retractions([ica(qr_seconds=1.2)]).outcome == DOES_NOT_HOLD
    assert ica_claims.retractions([]).outcome == NOT_TESTED


def test_the_eeg_has_no_part_in_the_verdicts_on_ica():
    slow = ica(qr_seconds=1.0).assign(study="ica-eeg")
    assert {row.outcome for row in ica_claims.verdicts({"ica-eeg": slow})} == {NOT_TESTED}


def cnn(accuracy=0.9, seconds=1.0, spread=0.02, seeds=2, **others):
    qr = run("riemannian-qr", 1.5, seeds, accuracy=[0.1, 0.5, 0.8, 0.85, 0.9], penalty=1e-11)
    qr.loc[qr["seed"] == 0, "accuracy"] -= spread
    landing = run("landing", seconds, seeds, accuracy=[0.1, 0.5, 0.8, 0.85, accuracy], penalty=1e-6)
    parts = [run(name.replace("_", "-"), **columns) for name, columns in others.items()]
    return study(qr, landing, *parts, experiment="cnn", study="cnn", title="ResNet18")


def accuracy_of_landing(*studies):
    return cnn_claims.accurate(list(studies), "landing", cnn_claims.ACCURATE)


def test_landing_is_as_accurate_as_qr_within_its_seeds_or_not():
    assert accuracy_of_landing(cnn()).outcome == HOLDS
    assert accuracy_of_landing(cnn(accuracy=0.885)).outcome == HOLDS
    lost = cnn(accuracy=0.87, landing_two_step={"seconds": 1.0, "accuracy": 0.9, "penalty": 1e-12})
    assert accuracy_of_landing(lost).outcome == DOES_NOT_HOLD
    assert "landing, two-step 0.9000" in accuracy_of_landing(lost).evidence
    assert accuracy_of_landing(cnn(seeds=1)).outcome == TOO_SHORT
    assert "1 seed: too few" in accuracy_of_landing(cnn(seeds=1)).evidence
    assert accuracy_of_landing(cnn(seeds=3)).evidence.endswith("(3 seeds)")
    assert accuracy_of_landing().outcome == NOT_TESTED
    assert "step sizes" not in accuracy_of_landing(cnn()).evidence
    longer = cnn()
    longer.loc[longer["method"] == "landing", "step_size"] = 0.3
    assert ", step sizes: landing 0.3, Riemannian, QR 0.1 (2 seeds)" in accuracy_of_landing(longer).evidence


def test_the_librarys_defaults_are_judged_for_themselves():
    ours = {"seconds": 1.0, "penalty": 1e-9}
    found = [
        cnn_claims.verdicts({"a": cnn(accuracy=0.87, landing_defaults={**ours, "accuracy": value})})
        for value in (0.89, 0.86)
    ]
    assert [row.outcome for row in found[0][:2]] == [DOES_NOT_HOLD, HOLDS]
    assert [row.outcome for row in found[1][:2]] == [DOES_NOT_HOLD, DOES_NOT_HOLD]
    assert cnn_claims.verdicts({"a": cnn()})[1].outcome == NOT_TESTED


def on_cifar(records, n_train):
    return records.assign(data=f"CIFAR-10 from here: {n_train} training and 10 test images; checked")


def test_accuracies_need_all_images_of_cifar_and_those_with_fewer_count_no_more_once_there_are_more():
    few, all_of_them = on_cifar(cnn(accuracy=0.5), 5000), on_cifar(cnn(), 50_000)
    assert accuracy_of_landing(few).outcome == TOO_SHORT
    assert "5000 training images: too few" in accuracy_of_landing(few).evidence
    assert accuracy_of_landing(all_of_them).outcome == HOLDS
    both = accuracy_of_landing(few, all_of_them)
    assert both.outcome == HOLDS
    assert "5000" not in both.evidence
    assert accuracy_of_landing(few.assign(title="VGG16"), all_of_them).outcome == TOO_SHORT


def test_of_studies_with_as_many_images_the_one_with_more_runs_is_judged():
    control, study = on_cifar(cnn(seeds=1, accuracy=0.5), 50_000), on_cifar(cnn(), 50_000)
    assert accuracy_of_landing(control).outcome == TOO_SHORT
    assert accuracy_of_landing(control, study) == accuracy_of_landing(study)
    assert accuracy_of_landing(study).outcome == HOLDS


def test_qr_takes_longer_to_the_accuracy_or_not():
    assert cnn_claims.sooner([cnn()]).outcome == HOLDS
    assert cnn_claims.sooner([cnn(seconds=2.0)]).outcome == DOES_NOT_HOLD
    assert cnn_claims.sooner([]).outcome == NOT_TESTED
    defaults = cnn(landing_defaults={"seconds": 0.5, "accuracy": [0.1, 0.5, 0.8, 0.85, 0.9], "penalty": 1e-9})
    assert "(per epoch 1/1.5 s), landing, library's defaults 2 s" in cnn_claims.sooner([defaults]).evidence
    defaults.loc[defaults["method"] == "landing-defaults", "seconds"] = math.nan  # its epochs were not timed
    assert cnn_claims.sooner([defaults]).evidence.endswith("(per epoch 1/1.5 s) (2 seeds)")


def test_qr_has_the_lowest_distance_or_not():
    assert cnn_claims.lowest([cnn()]).outcome == HOLDS
    lower = cnn(penalty_1={"seconds": 1.0, "accuracy": 0.9, "penalty": 1e-14})
    assert cnn_claims.lowest([lower]).outcome == DOES_NOT_HOLD
    assert cnn_claims.lowest([]).outcome == NOT_TESTED


@pytest.mark.parametrize(
    ("accuracy", "distance", "expected"), [(0.9, 1e-3, HOLDS), (0.5, 1e-3, DOES_NOT_HOLD), (0.9, 2e-6, DOES_NOT_HOLD)]
)
def test_a_weak_penalty_is_accurate_and_far(accuracy, distance, expected):
    records = cnn(penalty_1={"seconds": 1.0, "accuracy": accuracy, "penalty": distance})
    assert cnn_claims.weak([records]).outcome == expected
    assert cnn_claims.weak([cnn()]).outcome == NOT_TESTED


def test_a_weak_penalty_is_accurate_if_one_of_its_seeds_is_within_those_of_qr():
    records = cnn(penalty_1={"seconds": 1.0, "accuracy": 0.86, "penalty": 1e-3})  # QR: 0.88 to 0.9
    assert cnn_claims.weak([records]).outcome == DOES_NOT_HOLD
    records.loc[(records["method"] == "penalty-1") & (records["seed"] == 1), "accuracy"] = 0.885
    assert cnn_claims.weak([records]).outcome == HOLDS
    assert "accuracy 0.8600 to 0.8850 against 0.8800 to 0.9000" in cnn_claims.weak([records]).evidence


@pytest.mark.parametrize(("accuracy", "expected"), [(0.4, HOLDS), (0.89, DOES_NOT_HOLD)])
def test_a_strong_penalty_is_close_and_inaccurate(accuracy, expected):
    records = cnn(penalty_1000={"seconds": 1.0, "accuracy": accuracy, "penalty": 1e-8})
    assert cnn_claims.strong([records]).outcome == expected
    assert cnn_claims.strong([cnn()]).outcome == NOT_TESTED


@pytest.mark.parametrize(("seconds", "expected"), [(14.0, HOLDS), (2.0, DOES_NOT_HOLD)])
def test_trivialization_takes_many_times_as_long_or_not(seconds, expected):
    records = cnn(trivialization={"seconds": seconds, "accuracy": 0.9, "penalty": 1e-12})
    assert cnn_claims.slow([records]).outcome == expected
    assert cnn_claims.slow([cnn()]).outcome == NOT_TESTED


def test_the_penalty_proposition_is_judged_by_its_slopes():
    table = penalty_figure.measure((30.0, 100.0, 300.0, 1000.0))
    assert [row.outcome for row in penalty_claims.verdicts({"penalty": table})] == [HOLDS, HOLDS]
    wrong = table.assign(error=1.0, conditioning=table["weight"] ** 2)
    assert [row.outcome for row in penalty_claims.verdicts({"penalty": wrong})] == [DOES_NOT_HOLD, DOES_NOT_HOLD]
    assert [row.outcome for row in penalty_claims.verdicts({})] == [NOT_TESTED, NOT_TESTED]


def test_an_experiment_is_judged_by_its_own_records_and_not_mentioned_without_any():
    assert verdicts({}) == []
    everything = verdicts({"a": pca(), "b": ica(), "c": cnn()})
    assert len(everything) == 17
    assert {row.outcome for row in everything} > {HOLDS}
    alone = [verdicts({"a": records}) for records in (pca(), ica(), cnn())]
    assert all(alone)
    assert [row for rows in alone for row in rows] == everything


def test_smoke_sizes_judge_nothing():
    smoke = verdicts({"a": pca().assign(scale="smoke")})
    assert {row.outcome for row in smoke} == {NOT_TESTED}
    assert all("smoke sizes" in row.evidence for row in smoke)
