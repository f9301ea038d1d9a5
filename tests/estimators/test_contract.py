"""scikit-learn's own checks, and what its users do with any estimator."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sources import mixture

from glideslope.estimators import OnlineICA, OnlinePCA

ESTIMATORS = [OnlinePCA(n_components=2, random_state=0), OnlineICA(n_components=2, random_state=0)]
both = pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks([OnlinePCA(), OnlinePCA(n_epochs=3), OnlineICA(), OnlineICA(n_restarts=2)])
def test_the_checks_of_scikit_learn_pass(estimator, check):
    check(estimator)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_type_of_the_data_stays(estimator, dtype):
    data, _ = mixture(4, 500, dtype=dtype)
    fitted = clone(estimator).fit(data)
    assert fitted.components_.dtype == fitted.mean_.dtype == fitted.transform(data).dtype == dtype
    assert fitted.inverse_transform(fitted.transform(data)).dtype == dtype


@both
def test_dtype_asks_for_another_type(estimator):
    data, _ = mixture(4, 500)
    assert clone(estimator).set_params(dtype="float32").fit(data).components_.dtype == np.float32
    assert clone(estimator).set_params(dtype=torch.float64).fit(data.astype(np.float32)).components_.dtype == np.float64
    with pytest.raises(ValueError, match=r"dtype must be None, 'float32' or 'float64'; got 'int8'"):
        clone(estimator).set_params(dtype="int8").fit(data)


@both
def test_arrays_tensors_frames_and_memory_maps_give_the_same(estimator, tmp_path):
    pandas = pytest.importorskip("pandas")
    data, _ = mixture(4, 600, mean=2.0)
    np.save(tmp_path / "data.npy", data)
    expected = clone(estimator).fit(data).components_
    frame = pandas.DataFrame(data, columns=list("abcd"))
    fitted = clone(estimator).set_output(transform="pandas").fit(frame)
    names = [f"{type(estimator).__name__.lower()}{k}" for k in range(2)]
    assert fitted.transform(frame).columns.tolist() == fitted.get_feature_names_out().tolist() == names
    np.testing.assert_array_equal(fitted.components_, expected)
    np.testing.assert_array_equal(clone(estimator).fit(torch.from_numpy(data)).components_, expected)
    mapped = clone(estimator).fit(np.load(tmp_path / "data.npy", mmap_mode="r")).components_
    assert mapped.shape == expected.shape  # read in order, where rows in memory are shuffled


@both
def test_a_memory_map_of_integers_is_read_as_floats_of_the_type_asked_for(estimator, tmp_path):
    data = np.random.default_rng(0).integers(0, 255, (600, 5), dtype=np.uint8)
    np.save(tmp_path / "images.npy", data)
    images = np.load(tmp_path / "images.npy", mmap_mode="r")
    fitted = clone(estimator).set_params(dtype="float32").fit(images)
    np.testing.assert_allclose(fitted.mean_, data.mean(0), rtol=1e-4)
    with pytest.raises(ValueError, match="uint8"):
        clone(estimator).fit(images)


@both
def test_pickling_and_cloning_keep_what_was_learnt_and_what_was_asked(estimator):
    data, _ = mixture(4, 500)
    fitted = clone(estimator).partial_fit(data[:300])
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.partial_fit(data[300:]).components_, fitted.partial_fit(data[300:]).components_)
    assert not hasattr(clone(fitted), "components_")
    assert clone(fitted).get_params() == fitted.get_params()


@both
def test_the_same_seed_gives_the_same_components(estimator):
    data, _ = mixture(4, 500)
    np.testing.assert_array_equal(clone(estimator).fit(data).components_, clone(estimator).fit(data).components_)


@both
def test_a_pipeline_and_a_stream_of_batches_with_labels_work(estimator):
    data, _ = mixture(4, 500)
    assert make_pipeline(StandardScaler(), clone(estimator)).fit_transform(data).shape == (500, 2)
    batches = [(data[:200], np.zeros(200)), (data[200:], np.zeros(300))]
    assert clone(estimator).fit_stream(batches).n_samples_seen_ == 500
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(data)), batch_size=100)
    assert clone(estimator).fit_stream(loader).n_samples_seen_ == 500
    assert clone(estimator).fit_stream(part for part in np.split(data, 5)).n_samples_seen_ == 500


def test_grid_search_finds_the_number_of_components():
    generator = np.random.default_rng(0)
    data = generator.standard_normal((800, 3)) @ generator.standard_normal((3, 12)) * 3
    data += generator.standard_normal(data.shape)
    search = GridSearchCV(OnlinePCA(random_state=0), {"n_components": [1, 2, 3, 6]}, cv=3)
    assert search.fit(data).best_params_ == {"n_components": 3}
    exact = GridSearchCV(PCA(), {"n_components": [1, 2, 3, 6]}, cv=3).fit(data)
    ours, theirs = (found.cv_results_["mean_test_score"] for found in (search, exact))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3)


@both
def test_verbose_shows_progress_on_stderr_and_silence_is_the_default(estimator, capfd):
    data, _ = mixture(4, 500)
    clone(estimator).fit(data)
    assert capfd.readouterr() == ("", "")
    clone(estimator).set_params(verbose=1).fit(data)
    clone(estimator).set_params(verbose=1).fit_stream([data])
    out, err = capfd.readouterr()
    assert out == ""
    assert f"{type(estimator).__name__}: " in err
    assert "500 samples" in err


@both
def test_bad_input_is_refused_with_words_that_help(estimator):
    data, _ = mixture(4, 500)
    for value, word in ((np.nan, "nan"), (np.inf, "inf")):
        bad = data.copy()
        bad[17, 2] = value
        with pytest.raises(ValueError, match=rf"X must be finite.*got {word} at row 17, column 2"):
            clone(estimator).fit(bad)
        with pytest.raises(ValueError, match=rf"batch 1: X must be finite.*got {word} at row 17, column 2"):
            clone(estimator).fit_stream([data, bad])
        with pytest.raises(ValueError, match=rf"got {word} at row 17, column 2"):
            clone(estimator).fit(data).transform(bad)
    with pytest.raises(ValueError, match="Complex data not supported"):
        clone(estimator).fit(data * 1j)
    fitted = clone(estimator).partial_fit(data)
    with pytest.raises(ValueError, match=r"3 features.*expecting 4"):
        fitted.partial_fit(data[:, :3])
    with pytest.raises(ValueError, match=r"batch 1: .*3 features.*expecting 4"):
        clone(estimator).fit_stream([data, data[:, :3]])
    with pytest.raises(ValueError, match=r"n_components must be a whole number from 1 to .* = 4; got 5"):
        clone(estimator).set_params(n_components=5).fit(data)
    with pytest.raises(ValueError, match="batches has no batch"):
        clone(estimator).fit_stream([])
    with pytest.raises(ValueError, match=r"forgetting must be None or a number in \(0, 1\]; got 2"):
        clone(estimator).set_params(forgetting=2).partial_fit(data)


@both
@pytest.mark.parametrize("name", ["step_size", "variance_reduction"])
def test_former_parameters_are_unknown(estimator, name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        type(estimator)(**{name: None})


@both
def test_a_refused_batch_leaves_what_was_learnt(estimator):
    data, _ = mixture(4, 100)
    fitted = clone(estimator).partial_fit(data)
    before, mean = fitted.components_.copy(), fitted._stream.moments.mean.clone()
    bad = data.copy()
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match="row 3, column 1"):
        fitted.partial_fit(bad)
    np.testing.assert_array_equal(fitted.components_, before)
    assert torch.equal(fitted._stream.moments.mean, mean)
    assert fitted.n_samples_seen_ == 100


@both
def test_zeros_and_a_sudden_change_of_scale_do_not_break_a_stream(estimator):
    data, _ = mixture(4, 400, dtype=np.float32)
    fitted = clone(estimator)
    for factor in (1, 0, 1e6, 1, 1e-6, 0, 1):
        fitted.partial_fit(data * np.float32(factor))
        assert np.isfinite(fitted.components_).all()
    assert np.isfinite(fitted.transform(data)).all()


def test_without_scikit_learn_all_other_names_can_be_imported_and_estimators_say_the_pip_line():
    code = "import sys; sys.modules['sklearn'] = None; from glideslope import *; print(LandingSGD.__name__)"
    code += "; import glideslope as gs; gs.estimators"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.stdout == "LandingSGD\n", run.stderr
    assert run.returncode == 1
    assert "needs scikit-learn (extra 'sklearn'): pip install scikit-learn" in run.stderr


@both
def test_what_was_never_fitted_says_so_also_after_a_refused_batch(estimator):
    data, _ = mixture(4, 500)
    bad = data.copy()
    bad[0, 0] = np.nan
    for learn in (lambda model: model.partial_fit(bad), lambda model: model.fit(bad)):
        model = clone(estimator)
        with pytest.raises(ValueError, match="row 0, column 0"):
            learn(model)
        with pytest.raises(NotFittedError):
            model.transform(data)
    assert clone(estimator).fit(data).transform(data).shape == (500, 2)
    refused = clone(estimator)
    with pytest.raises(ValueError, match="row 0, column 0"):
        refused.partial_fit(bad)
    assert refused.partial_fit(data[:, :3]).n_features_in_ == 3


@both
def test_half_precision_tensors_and_wrong_widths_are_understood(estimator):
    data, _ = mixture(4, 300)
    fitted = clone(estimator).fit(torch.from_numpy(data).bfloat16())
    assert fitted.components_.dtype == np.float32
    with pytest.raises(ValueError, match=r"X has 3 columns, but Online.CA has 2 components"):
        fitted.inverse_transform(np.ones((5, 3)))
    with pytest.raises(ValueError, match="for one array use fit"):
        clone(estimator).fit_stream(data)


@both
def test_a_complex_memory_map_is_refused(estimator, tmp_path):
    np.save(tmp_path / "complex.npy", np.ones((20, 3), np.complex64))
    with pytest.raises(ValueError, match="Complex data not supported"):
        clone(estimator).fit(np.load(tmp_path / "complex.npy", mmap_mode="r"))


@both
def test_small_data_leave_the_number_of_threads_as_it_was(estimator):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        clone(estimator).fit(mixture(4, 300)[0])
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
