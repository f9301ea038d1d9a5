"""Each check of test_peer_defects.py passes for a right peer and fails for a peer with the defect it is there for."""

from functools import partial

import pytest
from contract import checks
from contract.peer import PeerRiemannianSGD, PeerSGD


def check_defaults(make):
    """Defect 5 on a peer whose docstring and signature differ."""
    checks.check_documented_defaults(make, {"lr": 1e-3, "attraction": 1.0})


def drifted(params, lr=1e-3, attraction=0.0):
    """Plain SGD in disguise.

    Args:
        lr: Learning rate.
        attraction: Pull towards the manifold. Default: 1.0
    """


def drifted_docstring(params, lr=1e-3, attraction=1.0):
    """Landing.

    Args:
        lr: Learning rate.
        attraction: Pull towards the manifold. Default: 0.0
    """


def faithful(params, lr=1e-3, attraction=1.0):
    """Landing.

    Args:
        lr: Learning rate.
        attraction: Pull towards the manifold. Default: 1.0
    """


def peer(defect):
    return partial(PeerSGD, defect=defect)


momentum_check = checks.check_momentum_is_that_of_torch
CAUGHT = [
    ("leaks the clipped step", checks.check_permuting_parameters_does_not_change_the_result),
    ("no cap", checks.check_a_strong_attraction_does_not_collapse_the_matrix),
    ("NaN at a stationary point", checks.check_an_exact_stationary_point_stays_put),
    ("NaN outside", checks.check_a_start_from_outside_comes_back),
    ("forgets wide matrices", checks.check_wide_matrices_have_orthonormal_rows),
    ("momentum without effect", partial(momentum_check, literal_step=checks.literal_landing, momentum=0.9)),
    ("first momentum step twice too long", partial(momentum_check, literal_step=checks.literal_landing, momentum=0.9)),
    ("remembers the normal part", partial(momentum_check, literal_step=checks.literal_landing, momentum=0.9)),
    (
        "dampening without effect",
        partial(momentum_check, literal_step=checks.literal_landing, momentum=0.9, dampening=0.5),
    ),
    (
        "nesterov without effect",
        partial(momentum_check, literal_step=checks.literal_landing, momentum=0.9, nesterov=True),
    ),
    ("writes weight decay into .grad", partial(checks.check_nothing_of_the_callers_is_written, weight_decay=0.1)),
    ("moves parameters at construction", checks.check_nothing_of_the_callers_is_written),
    ("never calls the closure", checks.check_a_closure_is_called_once_and_its_loss_returned),
    ("does not return the loss", checks.check_a_closure_is_called_once_and_its_loss_returned),
    ("exhausts a generator", checks.check_a_generator_of_parameters_is_accepted),
    ("keeps a lambda in the group", checks.check_a_state_can_be_saved),
    ("one norm for the batch", partial(checks.check_a_bad_matrix_does_not_change_the_others, bad=1e6)),
    ("no way back", partial(checks.check_a_long_step_stays_finite, inside=False, safeguard=None)),
]


@pytest.mark.parametrize(("defect", "check"), CAUGHT, ids=[defect for defect, _ in CAUGHT])
def test_the_check_passes_for_a_right_peer_and_catches_the_defect(defect, check):
    check(peer(None))
    with pytest.raises(Exception):  # noqa: B017, PT011  an assertion, or whatever the defect makes torch raise
        check(peer(defect))


def test_the_check_catches_a_late_gradient_that_raises():
    check = checks.check_a_gradient_may_appear_later
    check(partial(PeerSGD, momentum=0.9))
    with pytest.raises(KeyError):
        check(partial(PeerSGD, momentum=0.9, defect="knows only the first gradients"))


@pytest.mark.parametrize("wrong", [drifted, drifted_docstring])
def test_the_check_catches_a_default_that_drifted(wrong):
    check_defaults(faithful)
    with pytest.raises(AssertionError):
        check_defaults(wrong)


@pytest.mark.parametrize("length", [0.04, -1.0, -0.04])
def test_the_check_catches_a_baseline_of_wrong_length_or_sign(length):
    check = partial(checks.check_twenty_steps_follow_the_literal_formula, retraction="qr")
    check(PeerRiemannianSGD)
    with pytest.raises(AssertionError):
        check(partial(PeerRiemannianSGD, length=length))
