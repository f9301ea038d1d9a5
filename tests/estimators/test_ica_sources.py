"""OnlineICA against FastICA on sources of every shape: peaked, flat, nearly Gaussian, and all of them mixed."""

import warnings

import numpy as np
import pytest
from sklearn.decomposition import FastICA
from sklearn.exceptions import ConvergenceWarning
from sources import amari_distance

from glideslope.estimators import OnlineICA


def generalised_gaussian(generator, shape, N):
    """Density exp(-|y|^shape): 1 is a Laplace, 2 a Gaussian, large shapes are nearly uniform."""
    size = generator.gamma(1 / shape, size=N) ** (1 / shape)
    return size * generator.choice([-1, 1], N) / np.sqrt(np.mean(size**2))


def every(flat, generator, n, N):
    """Laplace sources, of which every `flat`-th is uniform."""
    draw = {True: lambda: generator.uniform(-1, 1, N), False: lambda: generator.laplace(size=N)}
    return np.stack([draw[j % flat == flat - 1]() for j in range(n)], axis=1)


FAMILIES = {
    "shapes from 0.6 to 6": lambda generator, n, N: np.stack(
        [generalised_gaussian(generator, shape, N) for shape in np.resize(np.geomspace(0.6, 6, 10), n)], axis=1
    ),
    "Laplace, every third uniform": lambda generator, n, N: every(3, generator, n, N),
    "Laplace and uniform": lambda generator, n, N: every(2, generator, n, N),
    "Laplace": lambda generator, n, N: generator.laplace(size=(N, n)),
    "uniform": lambda generator, n, N: generator.uniform(-1, 1, (N, n)),
    "Student t, 3 degrees of freedom": lambda generator, n, N: generator.standard_t(3, (N, n)),
    "Student t, 8 degrees of freedom": lambda generator, n, N: generator.standard_t(8, (N, n)),
    "rarely there": lambda generator, n, N: generator.laplace(size=(N, n)) * (generator.random((N, n)) < 0.2),
}


def mixed(family, n, N, seed):
    generator = np.random.default_rng(seed)
    sources = FAMILIES[family](generator, n, N)
    mixing = generator.standard_normal((n, n))
    return sources @ mixing.T, mixing


def errors(ours, data, mixing):
    """Amari distances of ours and of FastICA to the truth."""
    fast = FastICA(whiten="unit-variance", whiten_solver="eigh", tol=1e-6, max_iter=1000, random_state=0).fit(data)
    return amari_distance(ours.components_ @ mixing), amari_distance(fast.components_ @ mixing)


def assert_as_good(found, theirs, label):
    assert found <= 1.1 * theirs + 1e-3, label


def streamed(data, size):
    estimator = OnlineICA(random_state=0)
    for batch in np.array_split(data, len(data) // size):
        estimator.partial_fit(batch)
    return estimator


@pytest.mark.parametrize("family", FAMILIES)
def test_sources_of_any_shape_are_found_as_well_as_by_fastica(family):
    for seed in (0, 1, 145):  # the last of the shapes comes past a saddle of its weakest sources
        data, mixing = mixed(family, 10, 10_000, seed)
        assert_as_good(*errors(OnlineICA(random_state=0).fit(data), data, mixing), (family, seed))


def test_a_stream_of_peaked_and_flat_sources_ends_as_near_as_fastica():
    for family, n in (("Laplace and uniform", 20), ("shapes from 0.6 to 6", 10)):
        data, mixing = mixed(family, n, 40_000, 0)
        assert_as_good(*errors(streamed(data, 1000), data, mixing), family)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_sources_of_any_shape_are_found_on_every_one_of_many_data_sets(family):
    for seed in range(100, 140):
        data, mixing = mixed(family, 10, 10_000, seed)
        assert_as_good(*errors(OnlineICA(random_state=0).fit(data), data, mixing), (family, seed))
    for seed in range(100, 105):
        data, mixing = mixed(family, 20, 60_000, seed)
        assert_as_good(*errors(OnlineICA(random_state=0).fit(data), data, mixing), (family, seed))


@pytest.mark.slow
def test_sources_of_all_shapes_are_found_on_data_sets_that_no_constant_was_chosen_on():
    """`LARGE_TURN` was chosen on seeds 100 to 139; these were never looked at while anything was changed."""
    for seed in range(7000, 7040):
        data, mixing = mixed("shapes from 0.6 to 6", 10, 10_000, seed)
        assert_as_good(*errors(OnlineICA(random_state=0).fit(data), data, mixing), seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "n", "size"),
    [
        *((family, 10, 100) for family in FAMILIES),
        *((family, 20, 1000) for family in FAMILIES if "shapes" not in family),
    ],
)
def test_streams_end_as_near_as_fastica_on_every_one_of_many_data_sets(family, n, size):
    for seed in range(100, 105):
        data, mixing = mixed(family, n, 30_000, seed)
        assert_as_good(*errors(streamed(data, size), data, mixing), (family, seed))


def with_gaussians(count, N=10_000):
    generator = np.random.default_rng(0)
    sources = every(2, generator, 6, N)
    sources[:, :count] = generator.standard_normal((N, count))
    return sources @ generator.standard_normal((6, 6))


@pytest.mark.parametrize("fun", ["logcosh", "exp", "cube"])
@pytest.mark.parametrize("learn", [OnlineICA.fit, lambda ica, data: ica.fit_stream(np.array_split(data, 20))])
def test_several_gaussian_sources_are_announced_as_inseparable_and_one_is_not(learn, fun):
    with pytest.warns(
        ConvergenceWarning, match=r"^OnlineICA: components \d, \d, \d of 0 to 5 are no less Gaussian than noise"
    ):
        learn(OnlineICA(fun=fun, random_state=0), with_gaussians(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learn(OnlineICA(fun=fun, random_state=0), with_gaussians(1))
