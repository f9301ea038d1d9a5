"""The recorded runs in the repository, and what the documentation says of them."""

from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("pyarrow")

import pandas as pd

from experiments import page, records
from experiments.appearance import METHODS, in_order
from experiments.claims import verdicts
from experiments.scales import SCALES
from experiments.settings import CNN_METHODS

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "experiments" / "results" / "records"
PAGE = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")


def test_the_page_says_what_the_records_say():
    made = page.tables()
    assert set(made) == {"claims", "float32", "control", *page.NETWORKS}
    assert page.with_tables(PAGE, made) == PAGE


def test_every_claim_and_every_method_is_in_the_tables():
    made = page.tables()
    assert len(made["claims"]) == 2 + len(verdicts(records.read(RECORDED)))
    for network in page.NETWORKS:
        assert {line.split(" | ")[0].removeprefix("| ") for line in made[network][2:]} >= {
            METHODS[name].label for name in CNN_METHODS
        }


def test_a_page_without_a_place_for_a_table_is_an_error():
    with pytest.raises(ValueError, match="0 places marked '<!-- table claims -->'"):
        page.with_tables("nothing", {"claims": []})


@pytest.mark.parametrize("name", page.NETWORKS.values())
def test_no_step_size_on_all_of_cifar_is_at_the_edge_of_its_grid(name):
    study = records.read(RECORDED)[name]
    grid = study[study["phase"] == "search"]["step_size"]
    chosen = records.runs(study)["step_size"]
    assert grid.min() < chosen.min()
    assert chosen.max() < grid.max()


def test_records_say_where_they_come_from_without_the_folders_of_a_machine():
    everything = [*records.read(RECORDED).items(), *records.read(page.CONTROLS).items()]
    for name, study in everything:
        for column in ("commit", "machine", "threads", "torch", "command"):
            assert study[column].notna().all(), (name, column)
        assert not study["command"].str.contains("/").any(), name
        assert study["scale"].isin(["paper", "nights"]).all(), name


def test_the_runs_have_the_seeds_that_the_page_says():
    seeds = {name: study["seed"].nunique() for name, study in records.read(RECORDED).items()}
    assert seeds.pop("penalty") == 1
    assert seeds == {
        "pca-text-n5000-p100": 2,
        "pca-text-n5000-p200": 1,
        "pca-text-n5000-p500": 1,
        "pca-text-n5000-p1000": 1,
        "ica-text": 10,
        "ica-eeg": 10,
        "cnn-cifar10-resnet18-width8": 3,
        "cnn-cifar10-vgg16-width8": 3,
        "cnn-cifar10-vgg16-width16": 1,
        "cnn-cifar10-vgg16-width16-bfloat16": 3,
        "cnn-cifar10-resnet18-width16-bfloat16": 2,
    }


@pytest.mark.parametrize("name", page.NETWORKS.values())
def test_landing_with_the_defaults_reaches_qr_at_either_step_size_and_ends_closer_to_orthonormal(name):
    study, controls = records.read(RECORDED)[name], records.read(page.CONTROLS)
    ends = records.last(page.with_controls(study, controls[name]) if name in controls else study)
    ours = ends[ends["method"] == "landing-defaults"]
    assert ours["seed"].nunique() >= 2
    for method in {"riemannian-qr", "riemannian-qr-longer"} & set(ends["method"]):
        theirs = ends[ends["method"] == method]
        assert theirs["seed"].nunique() >= 2
        assert ours["accuracy"].median() >= theirs["accuracy"].min(), method
        assert ours["penalty"].median() < theirs["penalty"].median(), method


def test_the_page_says_what_time_qr_takes_on_resnet18_with_the_longer_step_size():
    name = page.NETWORKS["resnet18"]
    both = page.with_controls(records.read(RECORDED)[name], records.read(page.CONTROLS)[name])
    ends = records.last(both)
    target = 0.98 * ends[ends["method"].isin(["landing", "riemannian-qr-longer"])]["accuracy"].min()
    theirs, paper, defaults = (
        f"{records.seconds_to_reach(both, method, 'accuracy', target, above=True):.0f} s"
        for method in ("riemannian-qr-longer", "landing", "landing-defaults")
    )
    said = f"reaches {100 * target:.1f} % after {theirs}, before landing with the paper's options ({paper})"
    assert f"{said} and after landing with the defaults ({defaults})" in " ".join(PAGE.split())
    step_size = ends[ends["method"] == "riemannian-qr-longer"]["step_size"].max()
    assert METHODS["riemannian-qr-longer"].label.endswith(f"step size {step_size:g}")


@pytest.mark.parametrize("network", page.NETWORKS)
def test_the_command_of_the_page_goes_on_with_the_records(network):
    given = {"data": str(ROOT), "network": (network,), "precision": "bfloat16"}
    study = SCALES["nights"].with_options(("cnn",), given).cnn.studies()[0]
    recorded = records.read(RECORDED)[study.name]
    records.refuse_other_settings(recorded, study)
    own = records.last(recorded[recorded["method"].isin(study.methods)])
    assert len(records.last(records.finished(recorded, study))) == len(own) > 0


def test_the_readme_says_where_vgg16_ended():
    name = page.NETWORKS["vgg16"]
    ends, seconds = records.last(records.read(RECORDED)[name]), page.seconds_of(name)["epoch_seconds"]
    ours, theirs = (
        (page.percentages(ends[ends["method"] == method]["accuracy"]), f"{seconds[method]:.0f} s")
        for method in ("landing-defaults", "riemannian-qr")
    )
    said = (
        f"ends at {ours[0]} test accuracy, with QR at {theirs[0]}, and an epoch takes {ours[1]} instead of {theirs[1]}"
    )
    assert said in (ROOT / "README.md").read_text(encoding="utf-8")


def test_runs_at_a_longer_step_size_are_drawn_as_methods_of_their_own_and_accuracies_go_from_low_to_high():
    study = pd.DataFrame({"method": ["riemannian-qr", "landing"], "epoch": [12.0, 12.0]})
    both = page.with_controls(study, study.head(1))
    assert both["method"].tolist() == ["riemannian-qr", "landing", "riemannian-qr-longer"]
    assert in_order(set(both["method"])) == ["landing", "riemannian-qr", "riemannian-qr-longer"]
    assert page.percentages(pd.Series([0.1002, 0.0998])) == "9.98 to 10.02 %"
