"""`python -m benchmarks.muon.run` on a tiny transformer: the methods, the dual ascent, the records and the table."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

if not hasattr(torch.optim, "Muon"):
    pytest.skip("torch has no Muon", allow_module_level=True)

import glideslope as gs
from benchmarks.muon import run
from benchmarks.muon.manifold_muon import ManifoldMuon, matrix_sign, newton_schulz, symmetric, tall, tangent_direction
from benchmarks.muon.methods import METHODS, hidden_matrices
from benchmarks.muon.table import summary
from benchmarks.muon.text import batches, characters, loss_of, orthonormal_transformer, windows

ROOT = Path(__file__).parents[2]
TINY = run.Size(width=8, layers=1, context=8, batch=2, steps=3, validation=4)
SHORT = [replace(method, rates=method.rates[:1]) for method in METHODS]


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_every_method_trains_and_says_what_its_steps_cost(method):
    record = run.train(method, 0.005, 0, TINY)
    assert all(math.isfinite(value) for value in record.values())
    assert (record["distance_largest"] < 1e-4) == method.keeps_orthonormal
    assert (record["products_per_matrix"] == 0) == (method.name == "AdamW")
    assert ("signs_per_matrix" in record) == method.name.startswith("manifold")
    assert ("shortened" in record) == ("anding" in method.name)


def test_the_validation_loss_falls_in_every_method():
    size = TINY._replace(steps=40, batch=8, validation=32)
    for method in METHODS:
        before, after = (run.train(method, 0.01, 0, size._replace(steps=n))["validation_loss"] for n in (2, 40))
        assert after < before - 0.3, method.name


def test_the_methods_have_the_same_start_the_same_batches_and_as_many_rates():
    starts = [orthonormal_transformer(seed, 8, 1, 8) for seed in (0, 0, 1)]
    first, again, other = (torch.cat([param.detach().flatten() for param in model.parameters()]) for model in starts)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    text, _ = characters()
    drawn = [next(batches(text, 8, 2, torch.Generator().manual_seed(seed))) for seed in (0, 0, 1)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert len({len(method.rates) for method in METHODS}) == 1


def test_hidden_matrices_are_the_marked_ones_and_the_windows_are_of_the_held_out_text():
    model = orthonormal_transformer(0, 8, 2, 8)
    marked = [param for group in gs.param_groups(model) if group["orthogonal"] for _, param in group["params"]]
    assert len(marked) == 12
    assert {id(param) for param in marked} == {id(param) for param in hidden_matrices(model)}
    training, held_out = characters()
    assert 8.9 < len(training) / len(held_out) < 9.1
    shown = windows(held_out, 8, 5)
    assert torch.equal(shown[0], held_out[:9])
    assert torch.equal(shown[-1], held_out[-9:])
    assert loss_of(model, shown).item() == pytest.approx(math.log(128), rel=0.3)


def drawn(n, p, seed=0):
    """A point and a tangent matrix, in float64."""
    generator = torch.Generator().manual_seed(seed)
    X = gs.random_stiefel(n, p, generator=generator, dtype=torch.float64)
    M = torch.randn(n, p, generator=generator, dtype=torch.float64)
    return X, tangent(X, M)


def tangent(X, M):
    return M - X @ symmetric(X.mT @ M)


def exact_sign(M):
    U, _, V = torch.linalg.svd(M, full_matrices=False)
    return U @ V


def spectral(M):
    return torch.linalg.matrix_norm(M, 2).item()


def test_the_matrix_sign_is_the_orthonormal_polar_factor():
    _, M = drawn(12, 4)
    assert spectral(newton_schulz(matrix_sign(M), ((15 / 8, -10 / 8, 3 / 8),)) - exact_sign(M)) < 1e-6
    assert matrix_sign(torch.zeros(3, 2)).eq(0).all()


@pytest.mark.parametrize("shape", [(7, 1), (12, 4), (9, 6)])
def test_the_dual_ascent_finds_the_steepest_tangent_direction_of_spectral_norm_one(shape):
    X, M = drawn(*shape)
    found = tangent_direction(X, M, iterations=300)
    assert found.left < 1e-2
    assert spectral(found.A) < 1.001
    others = [M, tangent(X, exact_sign(M)), *(tangent(X, torch.randn_like(M) + 3 * M) for _ in range(20))]
    best = max(((M * other).sum() / spectral(other)).item() for other in others)
    assert (M * found.A).sum().item() > best * (1 - 1e-2)


def test_for_a_square_matrix_the_sign_of_a_tangent_gradient_is_tangent_and_the_inner_loop_ends_at_once():
    X, M = drawn(8, 8)
    assert torch.linalg.matrix_norm(symmetric(X.mT @ exact_sign(M))) < 1e-10
    assert tangent_direction(X, M).signs == 1
    assert tangent_direction(*drawn(16, 8)).signs == 10


@pytest.mark.parametrize("shape", [(8, 8), (12, 8), (32, 8), (8, 1)])
def test_the_tangent_part_of_a_sign_descends_as_fast_as_the_dual_ascent_and_is_hardly_longer(shape):
    """<M, T(sign M)> = ‖M‖_*, the dual's value at its start, and ‖T(A)‖₂ ≤ 2/√3 ‖A‖₂."""
    for seed in range(20):
        X, M = drawn(*shape, seed)
        T = tangent(X, exact_sign(M))
        assert (M * T).sum().item() == pytest.approx(torch.linalg.svdvals(M).sum().item())
        assert (M * T).sum() > (M * tangent_direction(X, M).A).sum() * (1 - 1e-6)
        assert spectral(tangent(X, exact_sign(M + X))) <= 2 / 3**0.5 + 1e-9  # of any A, not only a tangent one's sign
        assert spectral(T) <= 2 / 3**0.5 + 1e-9


def test_the_longest_tangent_part_is_two_over_root_three():
    """A unit vector u with ‖Bu‖ = 1/3, ‖Bᵀu‖ = 1, opposite: the bound of the page is attained."""
    X = torch.eye(4, 2, dtype=torch.float64)
    B = torch.tensor([[0.0, 1.0], [-1 / 3, 0.0]], dtype=torch.float64)
    C = torch.tensor([[(8 / 9) ** 0.5, 0.0], [0.0, 0.0]], dtype=torch.float64)
    A = torch.cat([B, C])
    assert spectral(A) == pytest.approx(1)
    assert spectral(tangent(X, A)) == pytest.approx(2 / 3**0.5)


def test_a_step_of_manifold_muon_descends_at_the_rate_of_its_direction_and_ends_orthonormal():
    for n, p in ((16, 8), (8, 16)):
        X = torch.nn.Parameter(
            gs.random_stiefel(16, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        )
        X.data = X.data if n > p else X.data.mT.contiguous()
        before = X.detach().clone()
        X.grad = torch.randn(n, p, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        rate = (X.grad * like(tangent_direction(tall(before), tall(X.grad)).A, X)).sum()
        ManifoldMuon([X], lr=1e-3).step()
        assert ((before - X.detach()) * X.grad).sum().item() == pytest.approx(1e-3 * rate.item(), rel=0.1)
        assert gs.formulas.distance(tall(X.detach())) < 1e-8


def like(matrix, param):
    return matrix if matrix.shape == param.shape else matrix.mT


def test_a_recorded_run_is_not_repeated(tmp_path, monkeypatch, capsys):
    output = tmp_path / "muon.json"
    monkeypatch.setattr(run, "SIZE", TINY)
    monkeypatch.setattr(run, "METHODS", SHORT)
    monkeypatch.setattr(sys, "argv", ["run", "--seeds", "2", "--output", str(output)])
    threads = torch.get_num_threads()
    try:
        run.main()
        recorded = json.loads(output.read_text(encoding="utf-8"))
        assert len(recorded["runs"]) == 2 * len(METHODS)
        assert recorded["about"]["threads"] == 1
        monkeypatch.setattr(run, "train", None)
        run.main()
    finally:
        torch.set_num_threads(threads)
    assert json.loads(output.read_text(encoding="utf-8"))["runs"] == recorded["runs"]
    assert "12/12, 0 min left" in capsys.readouterr().out


def test_the_table_has_the_best_rate_differences_per_seed_and_a_rate_that_diverged_is_never_the_best():
    muon, landing = METHODS[1:3]
    runs = {}
    for method, by_seed in ((muon, (0.01, -0.03)), (landing, (0.02, -0.01))):
        for lr, mean in zip(method.rates, (2.5, 2.0, 2.25, None), strict=True):
            for seed in range(2):
                runs[f"{method.name} | {lr:g} | {seed}"] = {
                    "validation_loss": None if mean is None else mean + by_seed[seed],
                    "distance_largest": 1e-6 * (1 + seed),
                    "seconds_per_step": 0.004,
                    "products_per_matrix": 20.4,
                }
    rows = summary(runs, 2).splitlines()
    assert rows[2:4] == [
        "| Muon | 0.03 | 1.990 | 1.970 to 2.010 | -0.020 to -0.010 | 2e-06 | 1 | 20.4 | 4.0 |",
        "| Muon + landing | 0.03 | 2.005 | 1.990 to 2.020 |  | 2e-06 | 1 | 20.4 | 4.0 |",
    ]
    assert rows[-1] == "| Muon + landing | 0.01: 2.505 | 0.03: 2.005 | 0.1: 2.255 | 0.3: inf |"
    del runs["Muon | 0.3 | 1"]
    assert "| Muon |" not in summary(runs, 2), "a method with a run missing has no row"


def test_the_page_shows_the_table_of_the_recorded_runs():
    page = (ROOT / "docs" / "muon.md").read_text(encoding="utf-8")
    runs = run.read(run.RESULTS)
    seeds = 1 + max(int(name.rpartition("|")[2]) for name in runs)
    assert len(runs) == seeds * sum(len(method.rates) for method in METHODS)
    assert summary(runs, seeds) in page
