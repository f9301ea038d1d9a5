"""OnlinePCA against the exact decomposition of scikit-learn, on real and on awkward data."""

import math
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning

from glideslope.estimators import OnlinePCA

CIFAR = Path(__file__).parents[2].parent / "shared" / "data" / "cifar10-subset" / "data_batch_1.bin"


@pytest.fixture(scope="module")
def digits():
    return load_digits().data.astype(np.float32)


@pytest.fixture(scope="module")
def exact(digits):
    return PCA(50, svd_solver="full").fit(digits.astype(np.float64))


def test_the_captured_variance_of_digits_is_within_a_thousandth_of_the_exact(digits, exact):
    fitted = OnlinePCA(50, random_state=0).fit(digits)
    assert fitted.explained_variance_.sum() > 0.999 * exact.explained_variance_.sum()


@pytest.mark.skipif(not CIFAR.is_file(), reason="needs the CIFAR-10 subset beside the repository")
def test_the_captured_variance_of_natural_images_is_within_a_thousandth_of_the_exact():
    images = np.fromfile(CIFAR, np.uint8).reshape(-1, 3073)[:5000, 1:].astype(np.float32) / 255
    fitted = OnlinePCA(50, n_epochs=3, tol=0.05, random_state=0).fit(images)
    exact = np.linalg.eigvalsh(np.cov(images, rowvar=False, dtype=np.float32))[-50:]
    assert fitted.explained_variance_.sum() > 0.999 * exact.sum()


def test_all_attributes_are_those_of_an_exact_decomposition_after_enough_passes(digits, exact):
    fitted = OnlinePCA(10, n_epochs=100, tol=1e-6, random_state=0).fit(digits.astype(np.float64))
    exact = PCA(10, svd_solver="full").fit(digits.astype(np.float64))
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "noise_variance_", "mean_"):
        np.testing.assert_allclose(getattr(fitted, name), getattr(exact, name), rtol=1e-8, err_msg=name)
    np.testing.assert_allclose(np.abs(np.sum(fitted.components_ * exact.components_, 1)), 1, atol=1e-8)
    assert fitted.n_samples_seen_ == len(digits)
    assert 2 < fitted.n_iter_ < 100
    np.testing.assert_allclose(fitted.score(digits), exact.score(digits), rtol=1e-8)
    np.testing.assert_allclose(fitted.score_samples(digits), exact.score_samples(digits), rtol=1e-6)


def test_components_are_orthonormal_ordered_and_of_one_sign(digits):
    fitted = OnlinePCA(12, random_state=0).fit(digits)
    np.testing.assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(12), atol=1e-5)
    assert (np.diff(fitted.explained_variance_) <= 0).all()
    assert (fitted.components_[np.arange(12), np.abs(fitted.components_).argmax(1)] > 0).all()


@pytest.mark.parametrize("variance_reduction", ["auto", None])
def test_further_passes_come_closer(digits, variance_reduction):
    best = PCA(10, svd_solver="full").fit(digits).explained_variance_.sum()
    options = {"variance_reduction": variance_reduction, "tol": 1.0, "random_state": 0, "batch_size": 100}
    one = OnlinePCA(10, **options).fit(digits).explained_variance_.sum()
    more = OnlinePCA(10, n_epochs=6, **options | {"tol": 1e-9})
    if variance_reduction is None:
        more.fit(digits)
    else:
        with pytest.warns(ConvergenceWarning, match=r"after 6 passes .* above tol=1e-09. Raise n_epochs"):
            more.fit(digits)
    assert best - more.explained_variance_.sum() < 0.5 * (best - one)
    total = digits.astype(np.float64).var(0, ddof=1).sum()
    np.testing.assert_allclose(more.explained_variance_ratio_ * total, more.explained_variance_, rtol=1e-3)
    assert more.n_iter_ == 6


def test_transform_centres_whitens_and_inverts(digits):
    fitted = OnlinePCA(64 - 3, n_epochs=3, tol=0.1, whiten=True, random_state=0).fit(
        digits
    )  # three pixels are constant
    sources = fitted.transform(digits)
    np.testing.assert_allclose(sources.mean(0), 0, atol=2e-3)
    np.testing.assert_allclose(np.cov(sources[:, :40].T), np.eye(40), atol=2e-2)
    np.testing.assert_allclose(fitted.inverse_transform(sources), digits, atol=1e-2)


@pytest.mark.parametrize("size", [1, 7, 300])
def test_a_stream_has_the_running_mean_and_finds_the_directions(digits, size):
    fitted = OnlinePCA(10, random_state=0)
    fitted.fit_stream(digits[start : start + size] for start in range(0, len(digits), size))
    best = PCA(10, svd_solver="full").fit(digits).explained_variance_.sum()
    np.testing.assert_allclose(fitted.mean_, digits.mean(0), atol=1e-4)
    captured = fitted.transform(digits).var(0, ddof=1).sum()
    assert captured > 0.995 * best
    assert fitted.explained_variance_.sum() == pytest.approx(captured, rel=0.02)
    total = digits.astype(np.float64).var(0, ddof=1).sum()
    np.testing.assert_allclose(
        fitted.explained_variance_ratio_.sum() * total, fitted.explained_variance_.sum(), rtol=1e-4
    )


def test_the_mean_of_a_drifting_stream_is_not_taken_for_variance():
    """Batches that differ by more than their scatter: the covariance of all rows, not of each batch."""
    generator = np.random.default_rng(0)
    data = generator.standard_normal((2000, 6)) + np.repeat(np.arange(20), 100)[:, None] * np.eye(6)[0] * 5
    fitted = OnlinePCA(1, random_state=0).fit_stream(np.split(data, 20))
    assert abs(fitted.components_[0, 0]) > 0.999
    assert fitted.explained_variance_[0] == pytest.approx(data[:, 0].var(), rel=0.05)


def test_batches_smaller_than_the_components_and_partial_fit_after_fit(digits):
    fitted = OnlinePCA(20, batch_size=5, random_state=0).fit(digits[:900])
    fitted.partial_fit(digits[900:])
    assert fitted.n_samples_seen_ == len(digits)
    np.testing.assert_allclose(fitted.mean_, digits.mean(0), atol=1e-3)


def test_more_passes_over_a_stream_need_batches_that_can_be_read_again(digits):
    batches = np.array_split(digits, 10)
    again = OnlinePCA(5, n_epochs=3, random_state=0).fit_stream(batches)
    assert again.n_samples_seen_ == len(digits)
    assert again.n_iter_ == 3
    exact = PCA(5).fit(digits)
    np.testing.assert_allclose(again.singular_values_, exact.singular_values_, rtol=0.02)
    with pytest.raises(ValueError, match="n_epochs=3 needs batches that can be read again"):
        OnlinePCA(5, n_epochs=3).fit_stream(iter(batches))


def test_constant_and_rank_deficient_data_have_components_of_no_variance():
    constant = np.full((20, 5), 3.0)
    fitted = OnlinePCA(2).fit(constant)
    assert (fitted.explained_variance_ == 0).all()
    assert (fitted.explained_variance_ratio_ == 0).all()
    np.testing.assert_allclose(fitted.transform(constant), 0)
    generator = np.random.default_rng(0)
    flat = generator.standard_normal((300, 2)) @ generator.standard_normal((2, 8))
    fitted = OnlinePCA(4, n_epochs=40, random_state=0).fit(flat)
    np.testing.assert_allclose(fitted.explained_variance_[:2], PCA(2).fit(flat).explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(fitted.explained_variance_[2:], 0, atol=1e-8)
    assert math.isfinite(fitted.score(flat))


def test_fewer_samples_than_components_is_an_error(digits):
    with pytest.raises(ValueError, match=r"from 1 to min\(n_samples=10, n_features=64\) = 10; got 11"):
        OnlinePCA(11).fit(digits[:10])
    assert OnlinePCA().fit(digits[:10]).components_.shape == (10, 64)


def test_a_pass_that_meets_the_tolerance_still_takes_its_step(digits):
    one = OnlinePCA(10, random_state=0).fit(digits)
    two = OnlinePCA(10, n_epochs=50, tol=1.0, random_state=0).fit(digits)
    assert two.n_iter_ == 2
    assert two.explained_variance_.sum() > one.explained_variance_.sum()


def test_values_too_large_for_their_type_are_refused_in_words(digits):
    with pytest.raises(ValueError, match=r"too much for torch.float32: scale it, or give dtype='float64'"):
        OnlinePCA(2).fit(digits * np.float32(1e30))
    assert np.isfinite(OnlinePCA(2, dtype="float64").fit(digits * np.float32(1e30)).explained_variance_).all()
