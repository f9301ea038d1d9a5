"""What the benchmarks measure: gaps at feasible and infeasible points, the Amari distance, equal batches for all."""

import sys

import numpy as np
import pytest
import torch
from benchmark_modules import BENCHMARKS, load

import glideslope as gs

pca = load("online_pca", "pca")
ica = load("ica", "ica")


def objective_of(benchmark, module):
    """An instance of a benchmark's Objective; importing it needs the benchmark's modules under their own names."""
    from benchopt.benchmark import Benchmark

    load(benchmark, module)
    return Benchmark(BENCHMARKS / benchmark).get_benchmark_objective().get_instance()


@pytest.fixture
def pca_objective():
    objective = objective_of("online_pca", "pca")
    samples = pca.text_samples(200, 20, 3, 0)
    objective.set_data(load=lambda: samples, n_components=3)
    return objective, samples


def measure(objective, X):
    return objective.evaluate_result(X=X, epoch=1.0, seconds=1.0, status="running")


def test_the_optimum_of_pca_is_that_of_the_library_in_float64(pca_objective):
    objective, samples = pca_objective
    optimum = gs.problems.PCA(samples.data.double(), 3).optimum()
    assert samples.optimum == pytest.approx(optimum.value, rel=1e-12)
    found = measure(objective, optimum.X)
    assert abs(found["value"]) < 1e-12
    assert found["penalty"] < 1e-25


def test_the_gap_can_be_negative_at_an_infeasible_point_and_not_at_its_projection(pca_objective):
    objective, samples = pca_objective
    optimum = gs.problems.PCA(samples.data.double(), 3).optimum().X
    stretch = torch.tensor([[1.2, 0.1, 0.0], [0.0, 1.1, 0.2], [0.0, 0.0, 1.3]], dtype=torch.float64)
    found = measure(objective, optimum @ stretch)
    assert found["gap_at_iterate"] < -0.1
    assert abs(found["value"]) < 1e-12


def test_the_projected_gap_is_f_at_the_projected_point(pca_objective):
    objective, samples = pca_objective
    X = torch.randn(20, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    problem = gs.problems.PCA(samples.data.double(), 3)
    found = measure(objective, X)
    assert found["value"] == pytest.approx(float(problem.value(gs.project(X))) - samples.optimum, rel=1e-9)
    assert found["gap_at_iterate"] == pytest.approx(float(problem.value(X)) - samples.optimum, rel=1e-9)


@pytest.mark.parametrize("X", [None, torch.full((20, 3), float("nan"))])
def test_a_run_that_diverged_is_recorded_without_numbers(pca_objective, X):
    found = pca_objective[0].evaluate_result(X=X, epoch=2.0, seconds=1.0, status="diverged")
    assert np.isnan(found["value"])
    assert found["status"] == "diverged"


def test_both_models_of_pca_have_the_sizes_asked_for_and_their_own_spectrum():
    text, published = pca.text_samples(400, 30, 4, 0), pca.published_samples(400, 30, 4, 0)
    assert text.data.shape == published.data.shape == (400, 30)
    values = torch.linalg.eigvalsh(text.covariance).flip(0)
    assert values[3] > 3 * values[4]  # 1.1 against 0.1
    assert abs(float(values[4:].mean()) - 0.1) < 0.02
    torch.testing.assert_close(published.data.std(0), torch.ones(30), rtol=0, atol=0.05)


def test_the_step_size_of_pca_is_divided_by_ten_after_every_milestone():
    task = pca.Task(pca.text_samples(100, 10, 2, 0), None, 10, 6, (3, 5), None, 1, 0)
    step = task.step_size_at(1.0)
    assert [round(step(k), 6) for k in (0, 29, 30, 49, 50)] == [1.0, 1.0, 0.1, 0.1, 0.01]


def test_the_amari_distance_is_zero_for_scaled_permutations_and_one_for_equal_entries():
    mixing = gs.random_stiefel(5, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    permuted = mixing[:, [3, 0, 4, 1, 2]] * torch.tensor([2.0, -1.0, 0.5, -3.0, 1.0], dtype=torch.float64)
    assert ica.amari_distance(permuted, mixing) < 1e-14
    assert ica.amari_distance(torch.ones(5, 5, dtype=torch.float64), torch.eye(5, dtype=torch.float64)) == 1


def test_the_reference_of_ica_is_a_minimum_near_the_sources():
    for mixture in (ica.text_mixture(2000, 4, 0), ica.published_mixture(2000, 4, 0)):
        problem = gs.problems.ICA(mixture.data)
        solution = gs.minimize(problem, gs.project(mixture.mixing), tolerance=1e-9)
        assert solution.value == pytest.approx(mixture.reference, abs=1e-12)
        assert ica.amari_distance(solution.X, mixture.mixing) < 0.05


@pytest.mark.parametrize("path", ["", "nowhere/eeg.npz"])
def test_a_missing_eeg_has_a_reason_that_says_what_to_give(path):
    assert "--eeg" in ica.missing(path)
    assert "eeg_uV" in ica.missing(path)


def test_an_eeg_is_band_passed_and_whitened(tmp_path):
    rng = np.random.default_rng(0)
    time = np.arange(3000) / 600
    slow, hum = np.sin(2 * np.pi * 5 * time), np.sin(2 * np.pi * 100 * time)
    eeg = rng.standard_normal((6, 1)) * slow + 10 * hum + rng.standard_normal((6, 3000))
    path = tmp_path / "eeg.npz"
    np.savez(path, eeg_uV=eeg, eog_uV=slow[None])
    mixture = ica.eeg_mixture(str(path), 3)
    assert ica.missing(str(path)) is None
    torch.testing.assert_close(mixture.data.mT @ mixture.data / 3000, torch.eye(3, dtype=torch.float64))
    assert float(torch.corrcoef(torch.stack([mixture.witness, torch.from_numpy(slow)]))[0, 1]) > 0.99


def test_the_foreign_witness_and_our_own_qr_take_the_same_steps():
    """Equal batches, gradients and retractions: after two epochs the losses agree to float32."""
    from benchopt.benchmark import Benchmark

    load("online_pca", "pca")
    solvers = {cls.name: cls for cls in Benchmark(BENCHMARKS / "online_pca").get_solvers()}
    module = sys.modules["benchmark_utils.pca"]
    samples = module.text_samples(200, 20, 3, 0)
    X0 = gs.random_stiefel(20, 3, generator=torch.Generator().manual_seed(5))
    task = module.Task(samples, X0, 16, 2, (1,), None, 1, 7)
    ends = {}
    for name in ("riemannian-qr", "geoopt-qr"):
        solver = solvers[name].get_instance(step_size=0.1)
        solver.set_objective(task)
        records = []
        solver.run(lambda solver=solver, records=records: records.append(dict(solver.result)) or True)
        assert [record["epoch"] for record in records] == [0, 1, 2]
        ends[name] = records[-1]["X"].detach().as_subclass(torch.Tensor)
    torch.testing.assert_close(ends["riemannian-qr"], ends["geoopt-qr"], rtol=0, atol=1e-5)
