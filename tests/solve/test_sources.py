"""Gradient sources: no bias by exact enumeration, one slot each per pass of a shuffle, memory of two kinds alike."""

import pytest
import torch
from solve.sums import pca, procrustes, quartic_pair, stiefel

import glideslope as gs
from glideslope.engine.gradient import dense
from glideslope.solve import sources
from glideslope.solve.sources import make_source

UNEQUAL = {"batch_size": 5, "sampling": "iid", "seed": 0}  # 23 terms: four slots of 5 and one of 3


def enumerated(source, X):
    """The gradient at X of every slot, each from the same state."""
    names = [name for name in ("memory", "mean", "anchor", "anchor_gradient") if hasattr(source, name)]
    kept = {name: getattr(source, name).clone() for name in names}
    found = []
    for slot in range(source.n_slots):
        source._drawn = torch.tensor([slot])
        source.generator = torch.Generator().manual_seed(2)  # whose first number keeps the anchor
        found.append(dense(source.gradient(X)).clone())
        for name, value in kept.items():
            setattr(source, name, value.clone())
    return found


@pytest.mark.parametrize("which", [0, 1], ids=["rows", "general"])
@pytest.mark.parametrize("kind", ["saga", "svrg"])
def test_a_variance_reduced_gradient_averages_to_the_gradient_with_unequal_slots_too(kind, which):
    problem = quartic_pair(N=23)[which]
    source = make_source(kind, problem, **UNEQUAL)
    source.start(stiefel(6, 2, seed=1))
    assert [len(slot) for slot in source._slots] == [5, 5, 5, 5, 3]
    for seed in (2, 3):
        X = stiefel(6, 2, seed=seed)
        found = enumerated(source, X)
        torch.testing.assert_close(sum(found) / 5, problem.gradient(X))
        assert max((one - problem.gradient(X)).norm() for one in found) > 0.1
        source._drawn = torch.tensor([4, 0, 4])
        for _ in range(3):
            source.gradient(stiefel(6, 2, seed=9))  # the memory is now that of several points


@pytest.mark.parametrize("which", [0, 1], ids=["rows", "general"])
@pytest.mark.parametrize("kind", ["saga", "svrg"])
def test_where_the_memory_is_fresh_every_slot_gives_the_full_gradient(kind, which):
    problem = quartic_pair(N=23)[which]
    source = make_source(kind, problem, **UNEQUAL)
    X = stiefel(6, 2, seed=1)
    source.start(X)
    for G in enumerated(source, X):
        torch.testing.assert_close(G, problem.gradient(X))


@pytest.mark.parametrize("which", [0, 1], ids=["rows", "general"])
def test_the_mean_that_saga_updates_is_the_mean_of_its_memory(which, monkeypatch):
    problem = quartic_pair(N=23)[which]
    source = make_source("saga", problem, **UNEQUAL)
    source.start(stiefel(6, 2))
    for seed in range(40):
        source.gradient(stiefel(6, 2, seed=seed))
    updated = source.mean.clone()
    source._recompute_mean()
    torch.testing.assert_close(updated, source.mean)
    # It is recomputed from time to time: a mean that went wrong comes right.
    monkeypatch.setattr(sources, "PASSES_BETWEEN_MEANS", 1)
    source.mean += 1
    for seed in range(7):
        source.gradient(stiefel(6, 2, seed=seed))
    updated = source.mean.clone()
    source._recompute_mean()
    torch.testing.assert_close(updated, source.mean)


def test_sagas_memory_is_the_gradients_of_the_last_visits():
    rows, general = quartic_pair(N=23)
    pair = [make_source("saga", problem, **UNEQUAL) for problem in (rows, general)]
    for source in pair:
        source.start(stiefel(6, 2))
        source._drawn = torch.tensor([3, 1, 3])
        for seed in (1, 2, 3):
            source.gradient(stiefel(6, 2, seed=seed))
    assert pair[0].memory.shape == (23, 2)
    assert pair[1].memory.shape == (5, 6, 2)
    for slot, seed in enumerate([0, 2, 0, 3, 0]):
        index, X = pair[1]._slots[slot], stiefel(6, 2, seed=seed)
        torch.testing.assert_close(pair[1].memory[slot], general.batch_gradient(X, index))
        torch.testing.assert_close(pair[0].memory[index], rows.scores(rows.rows.take(index) @ X, index))


@pytest.mark.parametrize("method", ["landing", "riemannian", "penalty"])
@pytest.mark.parametrize("gradient", ["full", "minibatch", "saga", "svrg"])
def test_a_sum_over_rows_and_the_same_general_sum_have_the_same_iterates(gradient, method):
    options = {"step_size": 0.02, "max_epochs": 12, "tolerance": 0.0, "method": method, "gradient": gradient}
    options |= {} if gradient == "full" else {"batch_size": 5}
    options |= {"penalty_weight": 2.0} if method == "penalty" else {}
    by_rows, general = (gs.minimize(problem, stiefel(6, 2), **options) for problem in quartic_pair())
    assert by_rows.n_steps == general.n_steps > 5
    torch.testing.assert_close(by_rows.X, general.X, rtol=0, atol=1e-11)
    assert by_rows.n_gradients == general.n_gradients


def test_minibatches_drawn_at_random_have_no_bias():
    """Every term is as likely as any other: the mean over all single draws is the full gradient."""
    problem = procrustes(N=11)
    source = make_source("minibatch", problem, batch_size=4, sampling="iid", seed=0)
    X = stiefel(8, 3)
    drawn = torch.cat([source._next_batch() for _ in range(3000)])
    counts = torch.bincount(drawn, minlength=11)
    assert len(counts) == 11
    assert (counts - 12000 / 11).abs().max() < 5 * (12000 / 11) ** 0.5
    source._next_batch = iter([torch.tensor([i]) for i in range(11)]).__next__
    torch.testing.assert_close(sum(dense(source.gradient(X)) for _ in range(11)) / 11, problem.gradient(X))


def test_a_shuffle_visits_every_term_once_in_every_pass_in_another_order():
    problem = pca(N=23)
    source = make_source("minibatch", problem, batch_size=5, sampling="shuffle", seed=0)
    passes = [torch.cat([source._next_batch() for _ in range(5)]) for _ in range(3)]
    assert all(sorted(one.tolist()) == list(range(23)) for one in passes)
    assert not torch.equal(passes[0], passes[1])
    for kind in ("saga", "svrg"):
        source = make_source(kind, problem, batch_size=5, sampling="shuffle", seed=0)
        assert sorted(torch.cat(source._slots).tolist()) == list(range(23))
        orders = [[source._next_slot() for _ in range(5)] for _ in range(4)]
        assert all(sorted(order) == list(range(5)) for order in orders)
        assert len({tuple(order) for order in orders}) > 1


def test_slots_drawn_at_random_are_all_as_likely():
    source = make_source("saga", pca(N=23), **UNEQUAL)
    counts = torch.bincount(torch.tensor([source._next_slot() for _ in range(5000)]))
    assert (counts - 1000).abs().max() < 150


@pytest.mark.parametrize(("kind", "steps", "terms"), [("full", 3, 3 * 20), ("minibatch", 3, 15), ("saga", 3, 20 + 15)])
def test_gradients_of_terms_are_counted(kind, steps, terms):
    source = make_source(kind, pca(N=20), batch_size=5, sampling="iid", seed=0)
    X = stiefel(8, 3)
    source.start(X)
    for _ in range(steps):
        source.gradient(X)
    assert source.terms_used == terms


def test_svrg_counts_two_gradients_a_term_and_a_pass_for_every_anchor():
    source = make_source("svrg", pca(N=20), batch_size=5, sampling="iid", seed=0)
    source.start(stiefel(8, 3))
    anchors, steps = 0, 400
    for seed in range(steps):
        before = source.anchor
        source.gradient(stiefel(8, 3, seed=seed))
        anchors += source.anchor is not before
    assert source.terms_used == 20 + 20 * anchors + 10 * steps
    assert abs(anchors - steps / 4) < 5 * (steps * 3 / 16) ** 0.5
