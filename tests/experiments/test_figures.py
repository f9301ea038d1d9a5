"""Figures: one colour per method throughout, medians with bands, and the parser of Benchopt's output."""

import colorsys
import math

import pandas as pd
import pytest

from experiments import penalty_figure
from experiments.appearance import METHODS, in_order
from experiments.figures import Panel, above_zero, draw_beside_the_paper, draw_panels, drawing
from experiments.published import ends_for
from experiments.records import curve, seconds_to_reach
from experiments.settings import CNN_METHODS, ICA_METHODS, PCA_METHODS
from experiments.sweep import Listener, best_steps

PANEL = Panel("epoch", "value", "epochs", "loss")


def made_up(*methods, seeds=3):
    rows = [
        {"method": name, "seed": seed, "epoch": float(epoch), "seconds": 2.0 * epoch, "value": (seed + 1) / (epoch + 1)}
        for name in methods
        for seed in range(seeds)
        for epoch in range(4)
    ]
    return pd.DataFrame(rows).assign(phase="run", status="running")


@pytest.mark.parametrize("names", [PCA_METHODS, ICA_METHODS, CNN_METHODS], ids=["pca", "ica", "cnn"])
def test_no_two_methods_of_a_figure_common_bound(names):
    looks = [(METHODS[name].colour, METHODS[name].line) for name in names]
    assert len(set(looks)) == len(names)
    for colour, _ in looks:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        assert colorsys.rgb_to_hls(*channels)[1] < 0.8  # dark enough on white


@pytest.mark.parametrize("names", [("landing", "riemannian-qr"), ("riemannian-qr", "geoopt-qr", "landing")])
def test_a_method_has_its_colour_whatever_it_is_drawn_with(names):
    with drawing():
        figure = draw_panels(made_up(*names), (PANEL, PANEL))
        for axes in figure.axes:
            drawn = [(line.get_color(), line.get_linestyle()) for line in axes.get_lines()]
            assert drawn == [(METHODS[name].colour, METHODS[name].line) for name in in_order(set(names))]
        labels = [text.get_text() for text in figure.legends[0].get_texts()]
        assert labels == [METHODS[name].label for name in in_order(set(names))]


def test_lines_are_medians_and_bands_reach_from_the_lowest_to_the_highest_seed():
    table = curve(made_up("landing"), "landing", "value")
    assert table["median"].tolist() == [2, 1, pytest.approx(2 / 3), 0.5]
    assert table["low"].tolist() == [1, 0.5, pytest.approx(1 / 3), 0.25]
    assert table["high"].tolist() == [3, 1.5, 1, 0.75]
    assert table["seconds"].tolist() == [0, 2, 4, 6]


def test_epochs_that_fewer_than_half_of_the_seeds_reached_are_left_out():
    rows = made_up("landing")
    rows = rows[(rows["seed"] == 0) | (rows["epoch"] < 2)]
    assert curve(rows, "landing", "value")["epoch"].tolist() == [0, 1]


def test_the_time_to_a_loss_is_the_median_over_seeds_and_infinite_where_most_never_reach_it():
    assert seconds_to_reach(made_up("landing"), "landing", "value", 1.0) == 2
    assert seconds_to_reach(made_up("landing"), "landing", "value", 0.3) == float("inf")
    assert seconds_to_reach(made_up("landing"), "landing", "value", 2.0, above=True) == 0


def test_beside_the_paper_are_its_published_ends_and_our_curves_in_the_same_colours():
    rows = made_up("landing", "landing-defaults").rename(columns={"value": "accuracy"})
    rows = rows.assign(experiment="cnn", title="VGG16 of width 16 on CIFAR-10", width=16)
    published = ends_for(rows)
    assert set(published) == {"landing", "riemannian-qr", "penalty-1", "penalty-1000", "trivialization"}
    with drawing():
        left, right = draw_beside_the_paper(rows, published).axes
        points = {line.get_color(): (line.get_xdata()[0], line.get_ydata()[0]) for line in left.get_lines()}
        assert points == {METHODS[name].colour: (end.minutes, end.accuracy) for name, end in published.items()}
        assert [line.get_color() for line in right.get_lines()] == [
            METHODS[name].colour for name in ("landing", "landing-defaults")
        ]
        assert right.get_title() == "here: width 16, 3 epochs"
        rows.loc[rows["method"] == "landing-defaults", "seconds"] = math.nan  # its epochs were not timed
        figure = draw_beside_the_paper(rows, {})
        assert [text.get_text() for text in figure.legends[0].get_texts()] == [METHODS["landing"].label]


@pytest.mark.parametrize(
    "change", [{"title": "VGG16 of width 8 on digits"}, {"experiment": "pca", "title": "CIFAR-10"}]
)
def test_other_studies_have_no_published_ends(change):
    rows = made_up("landing").assign(experiment="cnn", title="VGG16 of width 16 on CIFAR-10")
    assert ends_for(rows.assign(**change)) == {}


def test_an_unknown_method_is_an_error_that_says_where_to_add_it():
    with pytest.raises(ValueError, match="METHODS"):
        in_order({"landing", "newcomer"})


def test_the_penalty_figure_has_three_contours_and_three_curves():
    with drawing():
        figure = penalty_figure.draw(penalty_figure.measure((10.0, 100.0)))
        assert [axes.get_title() for axes in figure.axes[:3]] == ["λ = 0.3", "λ = 2", "λ = 20"]
        assert all(axes.get_xscale() == axes.get_yscale() == "log" for axes in figure.axes[3:])


def test_the_best_step_size_is_the_lowest_at_the_end_and_never_one_that_diverged():
    rows = [
        {"method": "landing", "step_size": step, "epoch": epoch, "criterion": value, "status": status}
        for step, ends in {0.1: (5.0, 2.0), 1.0: (0.1, 3.0), 10.0: (0.1, 0.01)}.items()
        for epoch, value, status in zip(
            (0, 1), ends, ("running", "diverged" if step == 10.0 else "running"), strict=True
        )
    ]
    assert best_steps(pd.DataFrame(rows)) == {"landing": 0.1}
    lost = pd.DataFrame(rows).assign(status="diverged")
    assert best_steps(lost) == {"landing": 0.1}


def test_benchopts_lines_become_progress_outcomes_and_reasons(tmp_path):
    shares, outcomes = [], []
    listener = Listener(tmp_path / "log.txt", lambda *seen: shares.append(seen), lambda *seen: outcomes.append(seen))
    listener.write("\x1b[1;34m    |--landing[step_size=0.1]:\x1b[0m  12.5% (1 / 1 reps)   \r")
    listener.write("\x1b[1;34m    |--landing[step_size=0.1]:\x1b[0m \x1b[1;32mdo")
    listener.write("ne\x1b[0m \x1b[1;36m(cached)\x1b[0m  \n    |--geoopt-qr: not installed\n  |--ica[seed=0] skip\n")
    listener.write("  Reason: no EEG given\nTraceback: something\n    |--penalty-1[step_size=1]: error\n")
    assert shares == [("landing", 0.125)]
    assert [method for method, _ in outcomes] == ["landing", "geoopt-qr", "ica", "penalty-1"]
    assert outcomes[0][1].startswith("done (cached)")
    assert listener.failures == {"geoopt-qr": "not installed", "ica": "no EEG given", "penalty-1": "error"}
    assert "Traceback" in (tmp_path / "log.txt").read_text()


def test_runs_that_a_time_limit_ended_within_an_epoch_are_drawn_forwards_in_time():
    rows = pd.DataFrame(
        {
            "method": "landing",
            "seed": [0, 0, 1, 1],
            "epoch": [0.0, 0.4, 0.0, 0.9],
            "seconds": [0.0, 20.0, 0.0, 16.0],
            "value": [1.0, 0.5, 1.0, 0.3],
        }
    ).assign(phase="run", status="running")
    table = curve(rows, "landing", "value")
    assert table["seconds"].tolist() == [0, 18]
    assert table["epoch"].tolist() == [0, pytest.approx(0.65)]


def test_a_logarithmic_axis_shows_zero_at_the_floor_leaves_small_values_and_drops_negative_ones():
    columns = {"median": [1.0, -1e-16, 0.0, 1e-30, -0.5], "low": [0.5, -1e-15, 0.0, 1e-31, -1.0]}
    table = pd.DataFrame({**columns, "high": [2.0, 1e-16, 0.0, 1e-29, 0.1]})
    assert above_zero(table.copy(), 1e-16)["median"].tolist() == [1.0, 1e-16, 1e-16, 1e-16]
    assert above_zero(table.copy(), 0.0)["median"].tolist() == [1.0, 1e-30]
