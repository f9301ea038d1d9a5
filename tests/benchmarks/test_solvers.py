"""`python -m benchmarks.solvers.run`: the problems, the peers, the records, and the page that shows them."""

import json
import math
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

pytest.importorskip("pymanopt")

import glideslope as gs
from benchmarks.solvers import peers, run
from benchmarks.solvers.problems import CASES, gaussian, sparse_pca, symmetric, with_eigenvalues
from benchmarks.solvers.table import SOLVERS, higher, speedup, table, with_table
from glideslope.solve.problem import as_problem


def small_quadratic():
    return gs.problems.Quadratic(with_eigenvalues(torch.linspace(1, 5, 12, dtype=torch.float64), 1))


SMALL = [
    replace(CASES[0], make=small_quadratic, shape=(12, 2)),
    replace(CASES[5], make=lambda: lambda X: (gaussian(9, 7, seed=1) @ X - 1).square().sum(), shape=(7, 2)),
    replace(
        CASES[-1],
        make=lambda: lambda X: -((X.conj() * (symmetric(4, 4, seed=2, dtype=X.dtype) @ X)).sum(0).real.square().sum()),
        shape=(4, 4),
    ),
]


@pytest.mark.filterwarnings("ignore:Sparse")  # that support of CSR is in beta
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_problem_is_real_finite_and_has_the_gradient_it_says(case):
    problem, X = as_problem(case.make()), case.start(0)
    value, G = problem.value_and_gradient(X)
    along = case.start(1)
    step = 1e-6 if case.dtype != torch.float32 else 1e-2
    ahead, behind = (problem.value_and_gradient(X + sign * step * along)[0] for sign in (1, -1))
    slope = float((G.conj() * along).real.sum())
    assert math.isfinite(float(value))
    assert float(ahead - behind) / (2 * step) == pytest.approx(slope, rel=1e-3, abs=1e-3 * float(G.norm()))


def test_there_are_twelve_problems_of_six_kinds():
    assert len(CASES) >= 12
    assert len({case.kind for case in CASES}) >= 6
    assert {case.dtype for case in CASES} == {torch.float64, torch.float32, torch.complex128}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of pymanopt
@pytest.mark.parametrize("case", SMALL[:2], ids=lambda case: case.name)
def test_all_solvers_reach_the_same_value_and_count_what_they_evaluate(case):
    function = case.make()
    found = {solver: peers.solve(case, function, solver, 0) for solver in SOLVERS}
    for solver, result in found.items():
        assert result["reached"], solver
        assert result["value"] == pytest.approx(found["minimize"]["value"], rel=1e-6)
        assert result["value"] < result["first_value"]
        assert result["gradients"] > 1
        assert (result["hessians"] > 0) == (solver == "TrustRegions")


def test_pymanopts_gradients_of_unitary_matrices_are_wrong_as_the_page_says():
    pymanopt = pytest.importorskip("pymanopt")
    manifold = pymanopt.manifolds.UnitaryGroup(4)
    projected = manifold.projection(np.eye(4), gaussian(4, 4, seed=1, dtype=torch.complex128).numpy())
    assert np.abs(projected + projected.conj().T).max() > 0.1  # in the tangent space they would be skew-Hermitian
    assert np.abs(projected + projected.T).max() < 1e-14
    case = SMALL[2]
    assert peers.solve(case, case.make(), "minimize", 0)["reached"]


@pytest.mark.parametrize("closed", [True, False])
def test_peers_get_the_derivatives_of_the_function(closed):
    quadratic = small_quadratic()
    function = quadratic if closed else sparse_pca(12, 2, 3)
    evaluated = (peers.Closed if closed else peers.Differentiated)(function, torch.float64)
    x, v = gaussian(12, 2, seed=3).numpy(), gaussian(12, 2, seed=4).numpy()
    step = 1e-5
    change = (evaluated.gradient(x + step * v) - evaluated.gradient(x - step * v)) / (2 * step)
    np.testing.assert_allclose(evaluated.hessian(x, v), change, rtol=1e-4, atol=1e-5)
    slope = (evaluated.value(x + step * v) - evaluated.value(x - step * v)) / (2 * step)
    assert slope == pytest.approx(float((evaluated.gradient(x) * v).sum()), rel=1e-6)
    assert evaluated.counts == {"values": 2, "gradients": 3, "hessians": 1}


def test_a_recorded_run_is_not_repeated(tmp_path, monkeypatch, capsys):
    output = tmp_path / "solvers.json"
    monkeypatch.setattr(run, "CASES", SMALL[:1])
    monkeypatch.setattr(sys, "argv", ["run", "--starts", "2", "--output", str(output)])
    threads = torch.get_num_threads()
    try:
        run.main()
        recorded = json.loads(output.read_text(encoding="utf-8"))["runs"]
        assert len(recorded) == 6
        monkeypatch.setattr(run, "solve", None)
        run.main()
    finally:
        torch.set_num_threads(threads)
    assert json.loads(output.read_text(encoding="utf-8"))["runs"] == recorded
    assert "Geometric mean" in capsys.readouterr().out


def made_up(solver, start, *, seconds, value=1.0, reached=True):
    run = {"seconds": seconds, "value": value, "first_value": 11.0, "reached": reached, "gradient": 1e-7}
    return f"{CASES[0].name} | {solver} | {start}", {**run, "values": 20, "gradients": 10, "hessians": 0}


def test_the_table_has_medians_ratios_to_the_faster_peer_that_arrives_and_what_ended_higher():
    runs = dict(
        [
            *(made_up("minimize", i, seconds=1.0 + i, value=1.0 + 0.1 * (i == 2)) for i in range(3)),
            *(made_up("ConjugateGradient", i, seconds=0.1, reached=False, value=5.0) for i in range(3)),
            *(made_up("TrustRegions", i, seconds=6.0) for i in range(3)),
        ]
    )
    assert speedup(runs, CASES[0]) == 3.0
    assert higher(runs, CASES[0]) == 1
    text = table(runs)
    row = "| 500 x 10 | 2 s (20 / 10) | 0.1 s (20 / 10), reached 0 of 3 | 6 s (20 / 10) | 3.00 |"
    assert row in text
    assert (
        "Geometric mean where a peer arrives: 3.00. `minimize` ended at a higher value than a peer from 1 of 3 starts."
        in text
    )


def test_the_page_shows_what_is_recorded():
    recorded = run.read(run.RESULTS)
    assert len(recorded) == len(CASES) * len(SOLVERS) * run.STARTS
    page = run.PAGE.read_text(encoding="utf-8")
    assert page == with_table(page, table(recorded))
