"""Optimizers of other packages through attach_landing: schedule-free ones, which evaluate at averages, and Prodigy."""

import copy

import pytest
from interop.networks_and_data import assert_constrained, assert_equal, network, total_loss, train
from interop.packages import needs

import glideslope as gs


def schedule_free(model, kind):
    schedulefree = needs("schedulefree")
    options = {"SGDScheduleFree": {"lr": 0.5, "momentum": 0.9}, "AdamWScheduleFree": {"lr": 0.05}}[kind]
    optimizer = getattr(schedulefree, kind)(model.parameters(), **options)
    return gs.attach_landing(optimizer, model.parameters())


@pytest.mark.parametrize("kind", ["SGDScheduleFree", "AdamWScheduleFree"])
def test_schedule_free_weights_for_evaluation_are_made_exact_on_a_copy(kind):
    model, undisturbed = network(), network()
    optimizer, other = schedule_free(model, kind), schedule_free(undisturbed, kind)
    for one in (optimizer, other):
        one.train()
    start = total_loss(model)
    train(model, optimizer, 40)
    train(undisturbed, other, 40)
    assert_constrained(model)
    optimizer.eval()
    other.eval()
    assert gs.orthogonality(model).largest_distance > 1e-2  # an average
    exact = copy.deepcopy(model)
    gs.project_(exact)
    assert gs.orthogonality(exact).largest_distance < 1e-5
    assert total_loss(exact) < 0.5 * start
    optimizer.train()
    other.train()
    train(model, optimizer, 5, first=40)
    train(undisturbed, other, 5, first=40)
    assert_equal(model, undisturbed)  # evaluation has left no trace
    assert_constrained(model)


def test_prodigy_stays_close():
    model = network()
    prodigyopt = needs("prodigyopt")
    optimizer = prodigyopt.Prodigy(model.parameters(), lr=1.0)
    gs.attach_landing(optimizer, model.named_parameters())
    start = total_loss(model)
    train(model, optimizer, 200)
    assert total_loss(model) < start
    assert gs.orthogonality(model).largest_distance < 0.05
