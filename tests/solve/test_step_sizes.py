"""Step sizes: numbers, functions, schedules, the bounds of the propositions; and refusals that say what to do."""

import math

import pytest
import torch
from solve.sums import ica, linear, pca, procrustes, quartic_pair, stiefel

import glideslope as gs
from glideslope.theory import Theory


def sizes_of(problem, **options):
    """The step sizes of the first records, one per step."""
    solution = gs.minimize(problem, record_every=1, tolerance=0, **options)
    return solution.history.step_size


def test_a_number_is_the_same_in_every_step():
    assert sizes_of(pca(), step_size=0.25, max_epochs=4).tolist() == [0.25] * 4


def test_a_function_gets_the_number_of_the_step():
    found = sizes_of(pca(), gradient="minibatch", batch_size=20, step_size=lambda k: 0.1 / (1 + k), max_epochs=2)
    assert found[:6] == pytest.approx([0.1 / (1 + k) for k in range(6)])


def test_the_schedules_are_those_of_the_propositions():
    options = {"gradient": "minibatch", "batch_size": 20, "max_epochs": 2, "step_size": 0.3}  # 3 steps a pass, 6 in all
    assert sizes_of(pca(), schedule="constant", **options)[:6] == pytest.approx([0.3] * 6)
    assert sizes_of(pca(), schedule="1/sqrt", **options)[:6] == pytest.approx(
        [0.3 / math.sqrt(1 + k) for k in range(6)]
    )
    assert sizes_of(pca(), schedule="1/sqrt(K)", **options)[:6] == pytest.approx([0.3 / math.sqrt(7)] * 6)


@pytest.mark.parametrize("make", [pca, procrustes, ica])
@pytest.mark.parametrize("attraction", [1.0, 2.5])
def test_theory_takes_the_numbers_of_the_theory(make, attraction):
    problem = make(N=60)
    options = {**gs.PAPER_OPTIONS, "attraction": attraction, "safe_radius": 0.4, "max_epochs": 2, "step_size": "theory"}

    def theory(each_term):
        constants = problem.constants(0.4, each_term=each_term)
        return Theory(constants=constants, attraction=attraction, safe_radius=0.4)

    assert sizes_of(problem, **options)[0] == theory(False).gradient_descent_step
    batches = {"batch_size": 6, **options}
    minibatch = sizes_of(problem, gradient="minibatch", **batches)
    assert minibatch[:10] == pytest.approx([theory(True).decreasing_step(k) for k in range(10)])
    fixed = sizes_of(problem, gradient="minibatch", schedule="1/sqrt(K)", **batches)
    assert fixed[:10] == pytest.approx([theory(True).fixed_step(20)] * 10)
    assert sizes_of(problem, gradient="saga", **batches)[0] == theory(True).saga_step(10)
    few = sizes_of(problem, gradient="saga", **{**batches, "batch_size": 30})
    assert few[0] == theory(True).saga_step(5)


def test_the_step_of_the_theory_lowers_the_value_in_every_step():
    for problem in (pca(), procrustes(), ica(), linear()):
        values = gs.minimize(problem, step_size="theory", max_epochs=50, tolerance=0, **gs.PAPER_OPTIONS).history.value
        assert (values[1:] <= values[:-1] + 1e-13).all()
        assert values[-1] < values[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0}, r"step_size must be finite and > 0; got 0"),
        ({"step_size": -1.0}, r"step_size must be finite and > 0; got -1.0"),
        ({"step_size": float("nan")}, r"step_size must be finite and > 0; got nan"),
        ({"step_size": True}, r"step_size must be a number > 0; got True"),
        ({"step_size": "1/sqrt"}, r"A schedule goes with a number: step_size=0.1, schedule='1/sqrt'"),
        ({"step_size": "fast"}, r"a number > 0, a function of the step, 'theory' or 'auto'; got 'fast'"),
        ({"step_size": 0.1, "schedule": "cosine"}, r"schedule must be one of 'constant', '1/sqrt', '1/sqrt\(K\)'"),
        ({"step_size": lambda k: 0.1, "schedule": "1/sqrt"}, r"a function as step_size or a schedule, not both"),
        ({"step_size": lambda k: -0.1}, r"step_size\(k\) must be finite and >= 0; got -0.1 for k = 0"),
        ({"step_size": lambda k: 0.1 if k < 2 else float("nan")}, r"got nan for k = 2"),
        ({"step_size": "auto", "schedule": "1/sqrt"}, r"step_size='auto' has no schedule"),
        ({"gradient": "saga", "schedule": "1/sqrt"}, r"step_size='auto' has no schedule"),
        (
            {"step_size": "theory", "gradient": "svrg"},
            r"'theory' knows landing .* got .*gradient='svrg'. Give a number",
        ),
        ({"step_size": "theory", "method": "riemannian"}, r"got method='riemannian', gradient='full'. Give a number"),
        ({"step_size": "theory", **gs.PAPER_OPTIONS, "safe_radius": 0.8}, r"safe_radius must be < 3/4"),
        ({"step_size": "theory"}, r"needs metric='canonical', .* got 'euclidean'. Pass \*\*gs.PAPER_OPTIONS"),
        ({"step_size": "theory", "metric": "canonical"}, r"needs a number as attraction; got 'auto'"),
    ],
)
def test_step_sizes_that_make_no_sense_are_refused_with_the_way_out(options, message):
    with pytest.raises(ValueError, match=message):
        gs.minimize(pca(), **options)


def test_theory_without_known_constants_is_refused():
    with pytest.raises(ValueError, match="needs constants that FiniteSum does not know"):
        gs.minimize(quartic_pair()[1], step_size="theory", **gs.PAPER_OPTIONS)
    with pytest.raises(ValueError, match="needs constants that Function does not know"):
        gs.minimize(lambda X: X.square().sum(), stiefel(6, 2), step_size="theory", **gs.PAPER_OPTIONS)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "sgd"}, "method must be one of 'landing', 'riemannian', 'penalty'; got 'sgd'"),
        ({"gradient": "batch"}, "gradient must be one of 'full', 'minibatch', 'saga', 'svrg'; got 'batch'"),
        ({"sampling": "random"}, "sampling must be one of 'iid', 'shuffle'"),
        ({"metric": "l2"}, "metric must be one of"),
        ({"retraction": "svd"}, "retraction must be one of"),
        ({"safe_radius": 1.0}, "safe_radius must be"),
        ({"max_epochs": 0}, "max_epochs must be finite and > 0"),
        ({"max_seconds": -1}, "max_seconds must be finite and > 0"),
        ({"tolerance": -1e-3}, "tolerance must be >= 0"),
        ({"tolerance": float("nan")}, "tolerance must be >= 0"),
        ({"method": "penalty"}, "method='penalty' needs penalty_weight > 0; got None"),
        ({"penalty_weight": 1.0}, "penalty_weight=1.0 needs method='penalty'; got method='landing'"),
        ({"retraction": "polar"}, "retraction='polar' needs method='riemannian'; got method='landing'"),
        ({"step_size": "auto", "attraction": 2.0}, "attraction=2.0 has no effect: it needs a number"),
        ({"step_size": "auto", "normal_step": "polar"}, "normal_step='polar' has no effect"),
        ({"method": "riemannian", "safeguard": None}, "safeguard=None has no effect: it needs method='landing'"),
        ({"method": "penalty", "penalty_weight": -1.0}, "penalty_weight must be finite and > 0"),
        ({"batch_size": 5}, "batch_size goes with gradient='minibatch'"),
        ({"batch_size": 61, "gradient": "saga", "step_size": 0.1}, "whole number from 1 to 60, the terms; got 61"),
        ({"batch_size": 2.0, "gradient": "saga", "step_size": 0.1}, "batch_size must be a whole number"),
        ({"record_every": 0}, "record_every must be a whole number >= 1; got 0"),
        ({"X0": [[1.0]]}, "X0 must be a torch tensor or a NumPy array; got list"),
        ({"X0": torch.eye(8, 2, dtype=torch.float64)}, r"X0 must have shape \(8, 3\); got \(8, 2\)"),
        ({"X0": torch.eye(8, 3)}, "X0 must have the type of the data, torch.float64; got torch.float32"),
        ({"X0": torch.full((8, 3), float("nan"), dtype=torch.float64)}, "X0 must be finite"),
        ({"X0": 2 * torch.eye(8, 3, dtype=torch.float64)}, r"distance .* = 5.2, beyond 0.5. Pass gs.project\(X0\)"),
        (
            {"X0": 2 * torch.eye(8, 3, dtype=torch.float64), "method": "riemannian"},
            r"distance .* = 5.2, beyond 0.5. Pass gs.project\(X0\)",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused_with_the_way_out(options, message):
    X0 = options.get("X0")
    with pytest.raises(ValueError, match=message):
        gs.minimize(pca(), X0, **{key: value for key, value in options.items() if key != "X0"})


def test_what_is_no_problem_is_refused():
    with pytest.raises(ValueError, match=r"one of gs.problems; got int. A sum of terms is gs.problems.FiniteSum"):
        gs.minimize(3)
    with pytest.raises(ValueError, match=r"needs a sum of terms; a function of X is one term. Give gs.problems.Finite"):
        gs.minimize(lambda X: X.sum(), stiefel(6, 2), gradient="saga", step_size=0.1)
    with pytest.raises(ValueError, match=r"a real scalar, a tensor of shape \(\); got torch.float64 of shape \(2,\)"):
        gs.minimize(lambda X: X.sum(0), stiefel(6, 2))
    with pytest.raises(ValueError, match=r"a real scalar, a tensor of shape.*; got float"):
        gs.minimize(lambda X: 1.0, stiefel(6, 2))
    with pytest.raises(ValueError, match="not finite at X0"):
        gs.minimize(lambda X: X.sum() * float("nan"), stiefel(6, 2))
    with pytest.raises(ValueError, match="not finite at X0"):
        gs.minimize(lambda X: X.sum() * float("nan"), stiefel(6, 2), step_size=0.1)
