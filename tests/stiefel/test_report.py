"""The orthogonality report: its numbers against NumPy, its table as printed, and the guesses for a state_dict."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from glideslope.stiefel import OrthogonalityReport, OrthogonalityRow, orthogonality, orthogonalize_
from glideslope.stiefel.report import view_of_tensor


def test_the_numbers_are_the_worst_over_the_matrices_of_a_weight():
    blocks = [np.diag([1.0, 0.5]), np.diag([2.0, 1.0]), np.eye(2)]
    (row,) = orthogonality({"w": torch.from_numpy(np.concatenate(blocks))}, {"w": "split:3"})
    assert row == OrthogonalityRow("w", (2, 2), "split:3", 3, 3.0, 0.5, 2.0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bfloat16], ids=str)
def test_the_numbers_are_computed_in_double_precision(dtype, generator):
    W = torch.randn(4, 9, generator=generator, dtype=dtype)
    (row,) = orthogonality({"w": W})
    M = W.to(torch.complex128 if dtype.is_complex else torch.float64).numpy()
    assert row.shape == (9, 4)
    assert row.distance == pytest.approx(np.linalg.norm(M @ M.conj().T - np.eye(4)), rel=1e-12)
    singular = np.linalg.svd(M, compute_uv=False)
    assert (row.smallest, row.largest) == pytest.approx((singular[-1], singular[0]), rel=1e-12)


def test_the_report_of_a_model_has_a_row_per_marked_weight_and_prints_as_a_table():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(6, 2, dtype=torch.float64))
    orthogonalize_(model)
    with torch.no_grad():
        model[1].weight.copy_(torch.eye(2, 6) * 2)
        model[0].weight.copy_(torch.eye(8, 27).reshape(8, 3, 3, 3))
    report = orthogonality(model)
    assert str(report).splitlines() == [
        "name      matrix  view    count  distance  smallest   largest",
        "0.weight  27 x 8  conv        1   0.0e+00  1.000000  1.000000",
        "1.weight   6 x 2  matrix      1   4.2e+00  2.000000  2.000000",
    ]
    assert repr(report) == str(report)
    assert report.largest_distance == pytest.approx(math.sqrt(18))


def test_the_report_is_a_sequence_of_rows():
    rows = [OrthogonalityRow(name, (3, 2), "matrix", 1, 0.1, 0.9, 1.0) for name in "abc"]
    report = OrthogonalityReport(rows)
    assert list(report) == rows
    assert (len(report), report[0], report[-1]) == (3, rows[0], rows[2])
    assert isinstance(report[1:], OrthogonalityReport)
    assert list(report[1:]) == rows[1:]
    assert list(copy.deepcopy(report)) == list(pickle.loads(pickle.dumps(report))) == rows


def test_the_report_is_a_table_in_notebooks_with_names_escaped():
    report = OrthogonalityReport([OrthogonalityRow("<b>", (3, 2), "matrix", 1, 0.1, 0.9, 1.0)])
    text = report._repr_html_()
    assert "<th>name</th>" in text
    assert "<td>&lt;b&gt;</td><td>3 x 2</td>" in text


def test_a_tolerance_adds_a_column_that_says_yes_or_no():
    rows = [OrthogonalityRow("w", (3, 2), "matrix", 1, distance, 0.9, 1.0) for distance in (0.1, 0.2, math.nan)]
    lines = OrthogonalityReport(rows).table(tolerance=0.1).splitlines()
    assert [line.split()[-1] for line in lines] == ["orthonormal", "yes", "no", "no"]


def test_weights_that_are_not_finite_are_reported_as_nan():
    state = {"good": torch.eye(3), "bad": torch.full((3, 3), torch.nan)}
    good, bad = orthogonality(state)
    assert good.distance == 0
    assert all(map(math.isnan, (bad.distance, bad.smallest, bad.largest)))
    assert math.isnan(orthogonality(state).largest_distance)


def test_an_empty_report_prints_its_headings():
    assert str(orthogonality({})).split() == ["name", "matrix", "view", "count", "distance", "smallest", "largest"]
    assert orthogonality({}).largest_distance == 0


@pytest.mark.parametrize(
    ("name", "tensor", "view"),
    [
        ("fc.weight", torch.ones(4, 3), "matrix"),
        ("conv.weight", torch.ones(4, 3, 5), "conv"),
        ("conv.weight", torch.ones(4, 3, 5, 5), "conv"),
        ("attention.in_proj_weight", torch.ones(12, 4), "split:3"),
        ("in_proj_weight", torch.ones(11, 4), "matrix"),
        ("rnn.weight_hh_l0", torch.ones(16, 4), "split:4"),
        ("rnn.weight_hh_l1_reverse", torch.ones(12, 4), "split:3"),
        ("weight_hh", torch.ones(12, 3), "split:4"),
        ("rnn.weight_hh_l0", torch.ones(4, 4), "matrix"),
        ("my_weight_hh_thing", torch.ones(16, 4), "matrix"),
        ("bias", torch.ones(4), None),
        ("steps", torch.ones(4, 4, dtype=torch.int64), None),
        ("empty", torch.ones(0, 4), None),
        ("absent", torch.ones(4, 4, device="meta"), None),
        ("sparse", torch.eye(3).to_sparse(), None),
        ("lazy", nn.LazyLinear(3).weight, None),
        ("version", 3, None),
    ],
)
def test_the_view_of_a_tensor_in_a_state_dict_is_guessed_from_name_and_shape(name, tensor, view):
    assert view_of_tensor(name, tensor) == view
    assert [row.view for row in orthogonality({name: tensor})] == ([] if view is None else [view])


def test_views_choose_which_tensors_are_reported():
    state = {"a": torch.eye(4), "b": torch.ones(6, 2, 3), "c": torch.eye(2)}
    assert [(row.name, row.count) for row in orthogonality(state, {"b": "matrix", "a": "split:2"})] == [
        ("b", 6),
        ("a", 2),
    ]


def test_views_of_unknown_names_and_views_of_models_are_refused():
    with pytest.raises(ValueError, match="views name 'b', which is not among the tensors"):
        orthogonality({"a": torch.eye(2)}, {"b": "matrix"})
    with pytest.raises(ValueError, match="views are for tensors by name"):
        orthogonality(nn.Linear(2, 2), {"weight": "matrix"})


def test_measuring_changes_nothing():
    state = {"a": torch.eye(3, dtype=torch.float64), "b": torch.ones(2, 3)}
    before = copy.deepcopy(state)
    orthogonality(state)
    assert all(torch.equal(state[name], before[name]) for name in state)
