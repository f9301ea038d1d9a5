"""OnlinePCA against the exact decomposition of scikit-learn, on real and on awkward data."""

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
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


def test_by_default_the_components_of_narrow_data_are_exact_after_one_pass(digits, exact):
    fitted = OnlinePCA(50, random_state=0).fit(digits)
    np.testing.assert_allclose(fitted.explained_variance_, exact.explained_variance_, rtol=1e-5)
    assert fitted.n_iter_ == 1


def wide(kind, N=3000, n=900, p=20):
    """Samples whose variances fall as 1/k, are nearly flat, or are those of the paper's model."""
    generator = np.random.default_rng(0)
    k = np.arange(n)
    variances = {"1/k": 1 / (k + 1), "flat": np.linspace(1.1, 1, n), "paper": 0.1 + (k < p)}[kind]
    return (generator.standard_normal((N, n)) * np.sqrt(variances)).astype(np.float32), p


def gap(model, data):
    """Share of the variance of the exact components that is missing."""
    C, V = np.cov(data.T.astype(np.float64)), np.linalg.qr(model.components_.T.astype(np.float64))[0]
    return 1 - np.trace(V.T @ C @ V) / np.linalg.eigvalsh(C)[-V.shape[1] :].sum()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # a flat spectrum
@pytest.mark.parametrize(("kind", "share"), [("1/k", 0.1), ("flat", 0.5), ("paper", 1.0)])
def test_by_default_wide_data_are_decomposed_better_than_by_the_randomized_solver(kind, share):
    data, p = wide(kind)
    ours = OnlinePCA(p, random_state=0).fit(data)
    assert 2 < ours.n_iter_ <= 6
    assert gap(ours, data) <= share * gap(PCA(p, svd_solver="randomized", random_state=0).fit(data), data) + 1e-8


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("kind", "most"), [("1/k", 2e-8), ("flat", 1e-2)])
def test_passes_converge_as_fast_as_momentum_makes_them(kind, most):
    """Without the matrix before the last, gaps are 1.4e-7 and 1.5e-2."""
    data, p = wide(kind)
    assert gap(OnlinePCA(p, n_epochs=6, tol=1e-9, random_state=0).fit(data), data) < most


@pytest.mark.parametrize("first", [1.0, 1e3, 1e4])
def test_a_dominant_direction_does_not_hide_the_others(first):
    """One feature in much smaller units than the other 599."""
    data = np.random.default_rng(0).standard_normal((2000, 600)) * np.r_[first, np.arange(1, 600) ** -0.5]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = OnlinePCA(10, random_state=0).fit(data).explained_variance_[1:].sum()
    exact = PCA(10, svd_solver="full").fit(data).explained_variance_[1:].sum()
    assert found > exact * (1 - 1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("first", "dtype"), [(3e2, "float32"), (1e5, "float64")])
def test_the_limit_of_float32_is_a_millionth_of_the_largest_variance(first, dtype):
    """Passes round products with the covariance: weaker components of wide float32 data need dtype="float64"."""
    data = np.random.default_rng(0).standard_normal((2000, 600)) * np.r_[first, np.arange(1, 600) ** -0.5]
    data = data.astype(np.float32)
    found = OnlinePCA(10, dtype=dtype, random_state=0).fit(data).explained_variance_[1:]
    exact = PCA(10, svd_solver="full").fit(data.astype(np.float64)).explained_variance_[1:]
    assert found.sum() > exact.sum() * (1 - 1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("p", [1, 10, 49, 50])
def test_few_samples_of_many_features_are_decomposed_by_their_products(dtype, p):
    data = np.random.default_rng(0).standard_normal((50, 600)) * np.r_[100.0, np.arange(1, 600) ** -0.5] + 7
    found, exact = OnlinePCA(p, random_state=0).fit(data.astype(dtype)), PCA(p, svd_solver="full").fit(data)
    assert found.n_iter_ == 1
    close = 1e-5 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(found.explained_variance_, exact.explained_variance_, rtol=close, atol=close)
    np.testing.assert_allclose(found.components_ @ found.components_.T, np.eye(p), atol=close)
    same = np.abs(np.sum(found.components_ * exact.components_, 1))[:49]  # the last one has no variance
    np.testing.assert_allclose(same, 1, atol=close)


def test_few_samples_are_a_start_of_a_stream_and_equal_ones_have_no_components():
    data = np.random.default_rng(0).standard_normal((300, 600)) * np.r_[9.0, 7, 5, np.ones(597)]
    fitted = OnlinePCA(3, random_state=0).fit(data[:100])
    for batch in np.array_split(data[100:], 10):
        fitted.partial_fit(batch)
    assert gap(fitted, data) < 0.05
    assert (OnlinePCA(3).fit(np.full((20, 600), 3.0)).explained_variance_ == 0).all()


def test_wide_data_of_low_rank_end_without_a_warning():
    generator = np.random.default_rng(0)
    data = (generator.standard_normal((600, 3)) @ generator.standard_normal((3, 700))).astype(np.float32)
    assert OnlinePCA(5, random_state=0).fit(data).n_iter_ < 6


def test_little_data_take_one_thread_and_leave_the_number_of_threads_as_it_was(digits, monkeypatch):
    """Two libraries' threads that wait for each other made a fit of 3 milliseconds take 60."""
    threads, seen = torch.get_num_threads(), []

    def counted(function):
        return lambda *arguments: (seen.append(torch.get_num_threads()), function(*arguments))[1]

    for name in ("_decompose", "_set_attributes"):
        monkeypatch.setattr(OnlinePCA, name, counted(getattr(OnlinePCA, name)))
    try:
        torch.set_num_threads(2)
        OnlinePCA(5).fit(digits)
        OnlinePCA(5).fit(np.concatenate([digits] * 8))
        assert seen == [1, 1, 2, 2]
        assert torch.get_num_threads() == 2
        monkeypatch.setattr(OnlinePCA, "_decompose", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            OnlinePCA(5).fit(digits)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)


def test_going_on_from_an_exact_decomposition_learns_from_new_samples(digits):
    fitted = OnlinePCA(10, random_state=0).fit(digits[:900])
    for batch in np.array_split(digits[900:], 9):
        fitted.partial_fit(batch)
    assert gap(fitted, digits) < 2e-3
    np.testing.assert_allclose(fitted.mean_, digits.mean(0), atol=1e-4)


@pytest.mark.skipif(not CIFAR.is_file(), reason="needs the CIFAR-10 subset beside the repository")
def test_the_captured_variance_of_natural_images_is_within_a_thousandth_of_the_exact():
    images = np.fromfile(CIFAR, np.uint8).reshape(-1, 3073)[:5000, 1:].astype(np.float32) / 255
    fitted = OnlinePCA(50, random_state=0).fit(images)
    exact = np.linalg.eigvalsh(np.cov(images, rowvar=False, dtype=np.float32))[-50:]
    assert fitted.explained_variance_.sum() > (1 - 1e-5) * exact.sum()


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


def test_further_passes_come_closer(digits):
    best = PCA(10, svd_solver="full").fit(digits).explained_variance_.sum()
    one = OnlinePCA(10, n_epochs=1, batch_size=100, random_state=0).fit(digits).explained_variance_.sum()
    more = OnlinePCA(10, n_epochs=6, tol=1e-9, batch_size=100, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"after 6 passes .* above tol=1e-09. Raise n_epochs"):
        more.fit(digits)
    assert best - more.explained_variance_.sum() < 1e-4 * (best - one)
    total = digits.astype(np.float64).var(0, ddof=1).sum()
    np.testing.assert_allclose(more.explained_variance_ratio_ * total, more.explained_variance_, rtol=1e-3)
    assert more.n_iter_ == 6


def test_transform_centres_whitens_and_inverts(digits):
    fitted = OnlinePCA(64 - 3, whiten=True, random_state=0).fit(digits)  # three pixels are constant
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


def test_a_stream_is_read_once_whatever_the_passes_of_fit(digits):
    batches = np.array_split(digits, 10)
    streams = [OnlinePCA(5, n_epochs=n, random_state=0).fit_stream(iter(batches)) for n in (None, 3)]
    assert [stream.n_iter_ for stream in streams] == [1, 1]
    assert [stream.n_samples_seen_ for stream in streams] == [len(digits)] * 2
    np.testing.assert_array_equal(streams[0].components_, streams[1].components_)


def test_constant_and_rank_deficient_data_have_components_of_no_variance():
    constant = np.full((20, 5), 3.0)
    fitted = OnlinePCA(2).fit(constant)
    assert (fitted.explained_variance_ == 0).all()
    assert (fitted.explained_variance_ratio_ == 0).all()
    np.testing.assert_allclose(fitted.transform(constant), 0)
    generator = np.random.default_rng(0)
    flat = generator.standard_normal((300, 2)) @ generator.standard_normal((2, 8))
    passes = OnlinePCA(4, n_epochs=40, random_state=0).fit(flat)
    np.testing.assert_allclose(passes.explained_variance_[:2], PCA(2).fit(flat).explained_variance_, rtol=1e-6)
    fitted = OnlinePCA(4, random_state=0).fit(flat)
    np.testing.assert_allclose(fitted.explained_variance_[:2], PCA(2).fit(flat).explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(fitted.explained_variance_[2:], 0, atol=1e-8)
    assert math.isfinite(fitted.score(flat))


def test_the_noise_of_fewer_samples_than_features_is_that_of_scikit_learn():
    data = np.random.default_rng(0).standard_normal((15, 40))
    ours, theirs = OnlinePCA(5).fit(data), PCA(5, svd_solver="full").fit(data)
    assert ours.noise_variance_ == pytest.approx(theirs.noise_variance_)
    assert ours.score(data) == pytest.approx(theirs.score(data))


def test_fewer_samples_than_components_is_an_error(digits):
    with pytest.raises(ValueError, match=r"from 1 to min\(n_samples=10, n_features=64\) = 10; got 11"):
        OnlinePCA(11).fit(digits[:10])
    assert OnlinePCA().fit(digits[:10]).components_.shape == (10, 64)


def test_a_pass_that_meets_the_tolerance_still_takes_its_step(digits):
    one = OnlinePCA(10, n_epochs=1, random_state=0).fit(digits)
    two = OnlinePCA(10, n_epochs=50, tol=1.0, random_state=0).fit(digits)
    assert two.n_iter_ == 2
    assert two.explained_variance_.sum() > one.explained_variance_.sum()


def test_values_too_large_for_their_type_are_refused_in_words(digits):
    with pytest.raises(ValueError, match=r"too much for torch.float32: scale it, or give dtype='float64'"):
        OnlinePCA(2).fit(digits * np.float32(1e30))
    assert np.isfinite(OnlinePCA(2, dtype="float64").fit(digits * np.float32(1e30)).explained_variance_).all()


def counts(N=400, n=60, *, seed=0):
    """A sparse matrix of counts with a few strong directions."""
    generator = np.random.default_rng(seed)
    topics = generator.random((6, n)) * (generator.random((6, n)) < 0.2)
    return csr_matrix(generator.poisson(generator.random((N, 6)) ** 3 @ topics * 4).astype(np.float64))


@pytest.mark.parametrize("shape", [(400, 60), (900, 700), (600, 900), (100, 800)])
def test_sparse_samples_give_the_components_of_dense_ones_and_stay_sparse(shape, monkeypatch):
    """Covariance, passes on either side, products of few samples; only narrow data become dense, in pieces."""
    data = counts(*shape)
    dense, exact = data.toarray(), PCA(5, svd_solver="full").fit(data.toarray())
    if shape[1] > 512:
        toarray = csr_matrix.toarray
        monkeypatch.setattr(csr_matrix, "toarray", lambda one: toarray(one) if one.shape[1] != shape[1] else None)
    fitted = OnlinePCA(5, random_state=0).fit(data)
    np.testing.assert_allclose(fitted.explained_variance_, exact.explained_variance_, rtol=1e-6)
    np.testing.assert_allclose(fitted.mean_, exact.mean_, rtol=1e-12)
    np.testing.assert_allclose(fitted.explained_variance_ratio_, exact.explained_variance_ratio_, rtol=1e-6)
    np.testing.assert_allclose(fitted.transform(data), fitted.transform(dense), atol=1e-9)
    np.testing.assert_allclose(fitted.score_samples(data), fitted.score_samples(dense), rtol=1e-9)
    assert gap(fitted, dense) < 1e-9


def test_a_stream_of_sparse_batches_is_that_of_dense_ones_and_bad_entries_are_named(monkeypatch):
    data = counts()
    sparse, dense = (OnlinePCA(3, random_state=0).fit_stream([one[:250], one[250:]]) for one in (data, data.toarray()))
    np.testing.assert_allclose(sparse.components_, dense.components_, atol=1e-9)
    monkeypatch.setattr("glideslope.estimators.streaming.BLOCK_NUMBERS", 60 * 100)
    pieces = OnlinePCA(3, random_state=0).partial_fit(data)
    assert pieces.n_samples_seen_ == 400
    np.testing.assert_allclose(pieces.mean_, data.toarray().mean(0))
    assert gap(pieces, data.toarray()) < 0.02
    data[7, 3] = np.nan
    for learn in (OnlinePCA(3).fit, OnlinePCA(3).partial_fit, dense.transform):
        with pytest.raises(ValueError, match="got nan at row 7, column 3"):
            learn(data)


@pytest.mark.parametrize("shape", [(1797, 64), (40, 600), (700, 600)])
@pytest.mark.parametrize("share", [0.3, 0.95, 0.999])
def test_a_share_of_the_variance_gives_as_many_components_as_scikit_learn(shape, share):
    data = np.random.default_rng(0).standard_normal(shape) / np.arange(1, shape[1] + 1)
    ours, theirs = OnlinePCA(share, random_state=0).fit(data), PCA(share, svd_solver="full").fit(data)
    assert ours.n_components_ == theirs.n_components_ == len(ours.components_)
    np.testing.assert_allclose(ours.explained_variance_, theirs.explained_variance_, rtol=1e-9)
    assert ours.noise_variance_ == pytest.approx(theirs.noise_variance_)
    assert OnlinePCA(0.5).fit(np.ones((5, 3))).explained_variance_.sum() == 0


def test_a_share_of_the_variance_needs_fit(digits):
    with pytest.raises(ValueError, match=r"n_components=0.9 is a share .* use fit, or give partial_fit and fit_stream"):
        OnlinePCA(0.9).partial_fit(digits)
    with pytest.raises(ValueError, match="leave n_epochs at None; got 3"):
        OnlinePCA(0.9, n_epochs=3).fit(digits)
    fitted = OnlinePCA(0.9).fit(digits[:900])
    assert fitted.partial_fit(digits[900:]).n_components_ == fitted.n_components_ < 64


@pytest.mark.parametrize("p", [5, 20, 61])
def test_covariance_and_precision_are_those_of_scikit_learn(digits, p):
    data = digits.astype(np.float64)
    ours, theirs = OnlinePCA(p, whiten=p == 5).fit(data), PCA(p, svd_solver="full").fit(data)
    np.testing.assert_allclose(ours.get_covariance(), theirs.get_covariance(), atol=1e-9)
    if p < 61:  # beyond, no variance is left, and the covariance is singular
        np.testing.assert_allclose(ours.get_precision(), theirs.get_precision(), atol=1e-9)
        np.testing.assert_allclose(ours.get_precision() @ ours.get_covariance(), np.eye(64), atol=1e-9)


@pytest.mark.parametrize("p", [700, 170])
def test_many_components_of_few_samples_are_exact(p):
    """Passes would follow as much as the matrix of products has."""
    data = np.random.default_rng(0).standard_normal((700, 900))
    fitted = OnlinePCA(p, random_state=0).fit(data)
    assert fitted.n_iter_ == 1
    np.testing.assert_allclose(
        fitted.explained_variance_[:-1], PCA(p, svd_solver="full").fit(data).explained_variance_[:-1], rtol=1e-8
    )


def test_wide_data_are_decomposed_better_than_by_the_randomized_solver_whatever_their_offset():
    data, p = wide("1/k", N=600, n=2000)
    theirs = gap(PCA(p, svd_solver="randomized", random_state=0).fit(data), data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert gap(OnlinePCA(p, random_state=0).fit(data), data) < 0.5 * theirs
        shifted = data.astype(np.float64) + 1e6
        assert gap(OnlinePCA(p, random_state=0).fit(shifted), data) < 0.5 * theirs
