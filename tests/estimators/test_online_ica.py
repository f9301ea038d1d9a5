"""OnlineICA against FastICA, on synthetic sources and on an EEG."""

import copy
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.signal
import torch
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sources import amari_distance, mixture

from glideslope.estimators import OnlineICA

EEG = Path(__file__).parents[2].parent / "shared" / "data" / "eeg.npz"


@pytest.mark.parametrize("kinds", [("laplace",), ("uniform",), ("laplace", "uniform")])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_mixed_sources_are_recovered_as_well_as_by_fastica(kinds, dtype):
    data, mixing = mixture(8, 20_000, kinds=kinds, dtype=dtype, mean=5.0)
    ours = OnlineICA(random_state=0).fit(data)
    fast = FastICA(whiten="unit-variance", random_state=0, tol=1e-6, max_iter=1000).fit(data)
    assert amari_distance(ours.components_ @ mixing) < 1.05 * amari_distance(fast.components_ @ mixing)


@pytest.mark.parametrize("fun", ["logcosh", "exp", "cube"])
def test_every_contrast_is_that_of_fastica(fun):
    data, mixing = mixture(5, 20_000, seed=3)
    ours = OnlineICA(fun=fun, tol=1e-6, random_state=0).fit(data)
    fast = FastICA(whiten="unit-variance", fun=fun, tol=1e-10, max_iter=1000, random_state=0).fit(data)
    assert amari_distance(ours.components_ @ np.linalg.inv(fast.components_)) < 1e-3
    assert amari_distance(ours.components_ @ mixing) < 0.05


@pytest.mark.skipif(not EEG.is_file(), reason="needs the EEG recording beside the repository")
@pytest.mark.filterwarnings("ignore:OnlineICA. components")  # two of fifteen are as Gaussian as noise
def test_one_component_of_an_eeg_is_the_blink():
    recording = np.load(EEG)
    band = scipy.signal.butter(4, [1, 40], "bandpass", fs=float(recording["sfreq"]), output="sos")
    eeg, eog = (scipy.signal.sosfiltfilt(band, recording[name], axis=1) for name in ("eeg_uV", "eog_uV"))
    sources = OnlineICA(15, tol=1e-2, random_state=0).fit_transform(eeg.T.astype(np.float32))
    correlations = [abs(np.corrcoef(source, eog[0])[0, 1]) for source in sources.T]
    assert max(correlations) > 0.95
    assert sorted(correlations)[-2] < 0.5


def test_the_interface_is_that_of_fastica():
    data, _ = mixture(5, 5000, mean=-3.0)
    ours = OnlineICA(4, random_state=0).fit(data)
    fast = FastICA(4, whiten="unit-variance", random_state=0).fit(data)
    for name in ("components_", "mixing_", "whitening_", "mean_"):
        assert getattr(ours, name).shape == getattr(fast, name).shape, name
    sources = ours.transform(data)
    np.testing.assert_allclose(np.cov(sources.T, bias=True), np.eye(4), atol=1e-6)
    np.testing.assert_allclose(ours.whitening_ @ np.cov(data.T, bias=True) @ ours.whitening_.T, np.eye(4), atol=1e-8)
    np.testing.assert_allclose(ours.mixing_, np.linalg.pinv(ours.components_))
    assert (ours.mixing_[np.abs(ours.mixing_).argmax(0), range(4)] > 0).all()
    np.testing.assert_allclose(ours.inverse_transform(sources), fast.inverse_transform(fast.transform(data)), atol=1e-6)
    arbitrary = OnlineICA(4, whiten="arbitrary-variance", random_state=0).fit_transform(data)
    theirs = FastICA(4, whiten="arbitrary-variance", random_state=0).fit_transform(data)
    np.testing.assert_allclose(arbitrary.var(0), theirs.var(0), rtol=1e-6)


def test_white_data_need_no_whitening():
    data, _ = mixture(4, 5000)
    white = FastICA(whiten="unit-variance", random_state=0).fit_transform(data)
    turned = white @ np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    for fitted in (
        OnlineICA(whiten=False, random_state=0).fit(turned),
        OnlineICA(whiten=False, random_state=0).fit_stream([turned]),
    ):
        assert not hasattr(fitted, "mean_")
        np.testing.assert_allclose(fitted.components_ @ fitted.components_.T, np.eye(4), atol=1e-6)
        assert amari_distance(np.corrcoef(fitted.transform(turned).T, white.T)[:4, 4:]) < 0.05


def test_a_stream_ends_near_the_solution_of_the_whole_data():
    data, mixing = mixture(6, 40_000, kinds=("laplace", "uniform"), mean=2.0)
    whole = amari_distance(OnlineICA(random_state=0).fit(data).components_ @ mixing)
    stream = OnlineICA(random_state=0).fit_stream(np.array_split(data, 400))
    assert amari_distance(stream.components_ @ mixing) < 1.2 * whole
    np.testing.assert_allclose(stream.mean_, data.mean(0), atol=0.05)


def test_a_stream_follows_a_mixing_that_changes():
    first, _ = mixture(3, 20_000, seed=0)
    second, mixing = mixture(3, 20_000, seed=1)
    stream = OnlineICA(forgetting=0.1, random_state=0)
    stream.fit_stream([*np.array_split(first, 200), *np.array_split(second, 200)])
    assert amari_distance(stream.components_ @ mixing) < 0.1


def test_tiny_batches_wait_until_there_are_enough():
    data, _ = mixture(4, 20)
    fitted = OnlineICA(random_state=0).partial_fit(data[:3])
    with pytest.raises(NotFittedError, match=r"has seen 3 samples.*needs 5 different samples or more"):
        fitted.transform(data)
    for row in data[3:]:
        fitted.partial_fit(row[None])
    assert fitted.transform(data).shape == (20, 4)
    with pytest.raises(ValueError, match="vary in 2 independent directions only"):
        OnlineICA(3).fit_stream([data[:2], data[:1], np.repeat(data[2:3], 4, 0)])


def test_a_start_can_be_given_and_is_used():
    data, _ = mixture(4, 2000)
    solution = OnlineICA(tol=1e-8, random_state=0).fit(data)
    rotation = solution.components_ @ np.linalg.pinv(solution.whitening_)
    again = OnlineICA(w_init=rotation, tol=1e-3, random_state=1).fit(data)
    np.testing.assert_allclose(again.components_, solution.components_, atol=1e-5)
    assert again.n_iter_ < solution.n_iter_
    with pytest.raises(ValueError, match=r"w_init must have shape \(4, 4\); got \(3, 3\)"):
        OnlineICA(w_init=np.eye(3)).fit(data)


def test_of_several_starts_the_least_gaussian_result_is_kept(monkeypatch):
    data, _ = mixture(3, 500)
    scores = iter([1.0, 3.0, 2.0])
    made = []
    from glideslope.estimators import online_ica

    class Scored(online_ica.Unmixing):
        def negentropy(self, blocks):
            made.append(self)
            return next(scores)

    monkeypatch.setattr(online_ica, "Unmixing", Scored)
    fitted = OnlineICA(n_restarts=3, random_state=0).fit(data)
    assert len(made) == 3
    expected = made[1].unmixing.T
    np.testing.assert_allclose(np.abs(fitted.components_), np.abs(expected))


def test_rank_deficient_data_have_as_many_sources_as_directions():
    data, _ = mixture(3, 2000)
    wide = np.concatenate([data, data[:, :1] + data[:, 1:2], np.full((2000, 1), 7.0)], axis=1)
    fitted = OnlineICA(random_state=0).fit(wide)
    assert fitted.components_.shape == (3, 5)
    np.testing.assert_allclose(fitted.inverse_transform(fitted.transform(wide)), wide, atol=1e-6)
    with pytest.raises(ValueError, match=r"vary in 3 independent directions only.*give n_components <= 3"):
        OnlineICA(4).fit(wide)
    with pytest.raises(ValueError, match="the data do not vary"):
        OnlineICA().fit(np.ones((50, 3)))


def test_too_few_passes_end_with_a_warning_that_says_what_to_change():
    data = np.random.default_rng(0).standard_normal((300, 6))
    with pytest.warns(ConvergenceWarning, match=r"above tol=1e-09\. Raise max_iter or tol; fewer n_components"):
        fitted = OnlineICA(max_iter=5, tol=1e-9, random_state=0).fit(data)
    assert fitted.n_iter_ <= 5
    assert np.isfinite(fitted.components_).all()


@pytest.mark.parametrize(("rows", "p"), [(1000, 5), (20_000, 5), (10_000, 20)])
def test_gaussian_data_end_in_bounded_time_with_a_warning_that_names_all_components(rows, p):
    data = np.random.default_rng(0).standard_normal((rows, p))
    every = ", ".join(map(str, range(p)))
    with pytest.warns(ConvergenceWarning, match=f"components {every} of 0 to {p - 1} are no less Gaussian than noise"):
        fitted = OnlineICA(random_state=0).fit(data)
    assert fitted.n_iter_ <= 100


def test_the_components_named_as_gaussian_are_those_that_are():
    generator = np.random.default_rng(0)
    sources = np.column_stack([generator.laplace(size=(20_000, 3)), generator.standard_normal((20_000, 2))])
    mixing = generator.standard_normal((5, 5))
    with pytest.warns(ConvergenceWarning, match="are no less Gaussian than noise") as caught:
        fitted = OnlineICA(random_state=0).fit(sources @ mixing.T)
    named = [int(word) for word in re.search(r"components (.*) of 0", str(caught[0].message))[1].split(", ")]
    weights = np.abs(fitted.components_ @ mixing)
    assert sorted(named) == sorted(np.flatnonzero(weights[:, :3].max(1) < 0.1 * weights[:, 3:].max(1)))
    assert len(named) == 2


def test_a_tensor_of_another_device_is_computed_there(monkeypatch):
    """Arrays on the CPU; elsewhere tensors, which a CPU can stand for."""
    data, mixing = mixture(3, 4000)
    seen = []
    from glideslope.estimators import online_ica
    from glideslope.streams import ica_rotation, ica_stream

    step = ica_rotation.Unmixing.step
    monkeypatch.setattr(ica_rotation.Unmixing, "step", lambda model, *a: seen.append(type(model.X)) or step(model, *a))
    arrays = OnlineICA(device="cpu", random_state=0).fit(torch.from_numpy(data)).components_
    assert set(seen) == {np.ndarray}
    seen.clear()
    for module in (online_ica, ica_stream):
        monkeypatch.setattr(module, "native", lambda tensor: tensor)
    tensors = OnlineICA(random_state=0).fit(data)
    np.testing.assert_allclose(tensors.components_, arrays, rtol=1e-9)
    stream = OnlineICA(random_state=0).fit_stream(np.array_split(data, 40))
    assert amari_distance(stream.components_ @ mixing) < 0.1
    assert set(seen) == {torch.Tensor}
    with pytest.raises(RuntimeError):
        OnlineICA(device="no such device").fit(data)


@pytest.mark.parametrize("size", [10, 100, 1000])
def test_a_stream_of_both_kinds_of_sources_is_not_misled_by_its_first_rows(size):
    for seed in range(1 if size == 10 else 3):
        data, mixing = mixture(10, 20_000, seed=seed, kinds=("laplace", "uniform"))
        stream = OnlineICA(random_state=0).fit_stream(np.array_split(data, len(data) // size))
        assert amari_distance(stream.components_ @ mixing) < 0.02


def test_partial_fit_goes_on_from_a_fit():
    data, _ = mixture(4, 20_000)
    fitted = OnlineICA(random_state=0).fit(data[:10_000])
    for batch in np.array_split(data[10_000:], 50):
        fitted.partial_fit(batch)
    assert fitted.n_samples_seen_ == 20_000
    whole = OnlineICA(random_state=0).fit(data).components_
    assert amari_distance(fitted.components_ @ np.linalg.inv(whole)) < 0.005
    with pytest.raises(ValueError, match=r"3 features.*expecting 4"):
        fitted.partial_fit(data[:, :3])


def test_without_whitening_n_components_is_ignored_with_a_warning():
    data, _ = mixture(3, 500)
    with pytest.warns(UserWarning, match="n_components is ignored with whiten=False"):
        assert OnlineICA(2, whiten=False, tol=0.5).fit(data / data.std(0)).components_.shape == (3, 3)


@pytest.mark.parametrize("seed", [4, 22, 28])
def test_a_sample_that_ends_at_a_saddle_does_not_cost_many_passes(seed):
    """Data for which the sample's solution is a saddle, so that the angle grows at first."""
    generator = np.random.default_rng(seed)
    mixing = generator.standard_normal((10, 10)).astype(np.float32)
    data = generator.laplace(size=(10_000, 10)).astype(np.float32) @ mixing.T
    estimator = OnlineICA(random_state=0).fit(data)
    assert estimator.n_iter_ <= 8
    fast = FastICA(whiten="unit-variance", tol=1e-6, random_state=0).fit(data).components_
    assert amari_distance(estimator.components_ @ np.linalg.inv(fast)) < 1e-3


def test_one_pass_allowed_is_one_pass_made():
    data, _ = mixture(3, 500)
    with pytest.warns(ConvergenceWarning, match="after 1 passes"):
        assert OnlineICA(max_iter=1, tol=1e-9).fit(data).n_iter_ == 1


@pytest.mark.parametrize("learn", ["fit", "partial_fit"])
def test_a_copy_goes_on_as_the_original_does(learn):
    X, _ = mixture(4, 2000, dtype=np.float32)
    fitted = getattr(OnlineICA(random_state=0), learn)(X[:1500])
    twin = copy.deepcopy(fitted)
    for model in (fitted, twin):
        model.partial_fit(X[1500:])
    np.testing.assert_array_equal(fitted.components_, twin.components_)
    np.testing.assert_array_equal(fitted.transform(X), twin.transform(X))


def test_a_tensor_that_was_learnt_from_stays_the_users():
    X = torch.from_numpy(mixture(4, 2000, dtype=np.float32)[0])
    before = X.clone()
    OnlineICA(random_state=0).fit(X)
    assert torch.equal(X, before)
    X.requires_grad_().square().sum().backward()  # not possible with tensors of inference mode
    torch.testing.assert_close(X.grad, 2 * before)


def newton_angle(estimator, data):
    """The root mean square angle of a Newton step from a solution, by its definition, for logcosh."""
    Y = (data - data.mean(0)) @ estimator.components_.T
    scores, p = np.tanh(Y), Y.shape[1]
    cross = Y.T @ scores / len(Y)
    curvature = (1 - scores**2).mean(0) - cross.diagonal()
    weighted, h = cross * np.sign(curvature), np.abs(curvature)
    return np.linalg.norm((weighted - weighted.T) / np.add.outer(h, h)) / np.sqrt(p * (p - 1))


@pytest.mark.parametrize("kinds", [("laplace",), ("laplace", "uniform")])
@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
def test_a_fit_without_a_warning_ends_where_a_step_would_turn_by_less_than_tol(tol, kinds):
    for seed, rows in ((0, 2000), (1, 10_000)):
        data, _ = mixture(6, rows, seed=seed, kinds=kinds)
        assert newton_angle(OnlineICA(tol=tol, random_state=0).fit(data), data) <= tol


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_tol_below_rounding_ends_soon_with_a_warning_that_names_what_was_reached(dtype):
    data, _ = mixture(6, 10_000, dtype=dtype, kinds=("laplace", "uniform"))
    advice = ", or give dtype='float64'$" if dtype == np.float32 else "$"
    reached = r"the angle stays at \d\.\de-\d\d, the rounding of float\d\d, which is above tol=1e-20\. Raise tol"
    with pytest.warns(ConvergenceWarning, match=reached + advice) as caught:
        fitted = OnlineICA(tol=1e-20, random_state=0).fit(data)
    assert len(caught) == 1
    assert fitted.n_iter_ < 40
    assert newton_angle(fitted, data.astype(np.float64)) < 1e3 * np.finfo(dtype).eps


SCALES = np.array([1.0, 1e-8, 1e4, 1e8, 1e-3])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("learn", ["fit", "fit_stream"])
def test_features_of_very_different_scales_are_all_kept(learn, dtype):
    data, _ = mixture(5, 10_000, mean=3.0)
    scaled = (data * SCALES).astype(dtype)
    given = scaled if learn == "fit" else np.array_split(scaled, 20)
    fitted = getattr(OnlineICA(random_state=0), learn)(given)
    assert fitted.components_.shape == (5, 5)
    sources = fitted.transform(scaled)
    np.testing.assert_allclose(np.cov(sources.T), np.eye(5), atol=1e-3)
    atol = 1e-3 if dtype == np.float32 else 1e-9
    np.testing.assert_allclose(fitted.inverse_transform(sources) / SCALES, data, atol=atol)
    plain = OnlineICA(tol=1e-5, random_state=0).fit(data)
    assert amari_distance(fitted.components_ * SCALES @ plain.mixing_) < 2e-3


def test_scales_do_not_matter_beside_a_feature_that_never_changes_and_one_that_repeats_others():
    data, _ = mixture(5, 5000)
    wide = np.column_stack([data * SCALES, np.full(5000, 0.1), data[:, 0] + data[:, 1]])
    fitted = OnlineICA(random_state=0).fit(wide)
    assert fitted.components_.shape == (5, 7)
    assert not fitted.components_[:, 5].any()
    sources = fitted.transform(wide)
    np.testing.assert_allclose(np.cov(sources.T), np.eye(5), atol=1e-3)
    scale = np.maximum(wide.std(0), 0.1)
    np.testing.assert_allclose(fitted.inverse_transform(sources) / scale, wide / scale, atol=1e-5)
    np.testing.assert_allclose(fitted.components_ @ fitted.mixing_, np.eye(5), atol=1e-6)


def test_numbers_too_small_or_large_for_their_type_are_refused_by_name():
    data, _ = mixture(3, 1000)
    tiny = (data * [1, 1e-40, 1]).astype(np.float32)
    message = r"feature 1 of X has a standard deviation of \d\.\de-40, and float32 needs one from 1e-31 to 9e\+37"
    with pytest.raises(ValueError, match=rf"{message}.*Multiply the data by a constant, or give dtype='float64'"):
        OnlineICA().fit(tiny)
    with pytest.raises(ValueError, match=message):
        OnlineICA().fit_stream([tiny])
    assert OnlineICA(dtype="float64", random_state=0).fit(tiny).components_.shape == (3, 3)
    with pytest.raises(ValueError, match=r"feature 0 of X has a standard deviation of inf, and float64 needs"):
        OnlineICA().fit(data * 1e200)


@pytest.mark.parametrize("fun", ["logcosh", "exp", "cube"])
def test_every_contrast_can_be_pickled(fun):
    data, _ = mixture(3, 2000)
    fitted = OnlineICA(fun=fun, random_state=0).fit(data)
    twin = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(twin.partial_fit(data).components_, fitted.partial_fit(data).components_)


def test_signals_in_rows_are_refused_before_their_covariance_fills_the_memory():
    data = mixture(3, 9000)[0]
    with pytest.raises(ValueError, match=r"only 3 samples \(rows\) of 9000 features .* give X.T"):
        OnlineICA(3).fit(data.T)


def test_more_components_than_samples_are_refused_from_the_shape():
    with pytest.raises(ValueError, match="from 1 to n_samples - 1, samples being rows, = 5; got 6"):
        OnlineICA(6).fit(mixture(6, 400)[0].T)
