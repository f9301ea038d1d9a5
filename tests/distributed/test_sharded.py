"""Parameters spread over ranks: what is sent, what is decided together, and what a user is told."""

import re

import pytest
import torch
from distributed import costs
from distributed.launch import run_on
from distributed.spreading import SHARDS_MODELS
from distributed.steps import NEED_NEWER_TORCH, VIEWS, small_checks
from distributed.training import network

import glideslope as gs

pytestmark = pytest.mark.filterwarnings("default")  # torchrun's own, in this process


@pytest.mark.xdist_group("two ranks")
def test_steps_of_parameters_sharded_over_two_ranks(on_two_ranks):
    assert_claims(on_two_ranks["steps"])


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 4])
def test_steps_of_parameters_sharded_over_other_numbers_of_ranks(ranks):
    assert_claims(run_on(ranks, small_checks))


def assert_claims(found):
    """Every claim is a function below, of the results of all ranks."""
    left_out = set() if SHARDS_MODELS else {check.__name__ for check in NEED_NEWER_TORCH}
    for name in CLAIMS.keys() - left_out:
        for claim in CLAIMS[name]:
            claim([rank[name] for rank in found])


def a_row_sharded_step_sends_p_by_p_numbers_whatever_n(found):
    for traffic in found:
        assert traffic[1000] == traffic[5000]
        fingerprint, grams, norms = traffic[5000]
        assert [name for name, _ in traffic[5000]] == ["allreduce_"] * 3
        assert (fingerprint[1], grams[1], norms[1]) == (4 * 32, 4 * 2 * 64**2, 8)
        assert sum(size for _, size in traffic[5000]) == costs.landing_sums(64)


def that_is_twenty_times_less_than_gathering(found):
    ranks = len(found)
    for traffic in found if ranks > 1 else []:
        gathered = sum(size for name, size in traffic["gathered"] if name == "all_gather_into_tensor")
        # Each rank sends its own part to r - 1 others.
        assert gathered * (ranks - 1) == costs.gathering(5000, 64, ranks)
        assert costs.gathering(5000, 64, ranks) >= 20 * costs.landing(5000, 64, ranks)


def all_matrices_of_a_step_share_one_all_reduce_of_grams(found):
    p, batch = 3, 5
    grams, numbers, flags = 4 * 2 * p**2 * batch, 8 * batch, 4 * batch
    tangent = 4 * p**2 * batch + flags
    expected = {
        "sgd": [128, grams, numbers],
        "momentum": [128, grams + flags, numbers],
        "exact": [128, grams, numbers, grams],
        "newton-schulz": [128, grams + flags, numbers, grams // 2],
        "adam": [128, tangent, numbers, grams, numbers, grams // 2],
        "attached": [128, tangent, 128, grams, numbers, grams // 2],
    }
    for traffic in found:
        assert {name: [size for _, size in calls] for name, calls in traffic.items()} == expected


def a_gradient_that_is_not_finite_on_one_rank_is_skipped_on_all(found):
    for rank in found:
        for case, (moved, X, skipped) in rank.items():
            assert moved == [[True, True], [False, True], [True, True]], case
            assert skipped == [[1], [0]]
            assert torch.equal(X, found[0][case][1])


def ranks_that_disagree_end_with_an_error_that_names_the_difference(found):
    ranks = len(found)
    if ranks == 1:
        return
    last = f"on rank {ranks - 1} of the group"
    for messages in found:
        assert "parameter 0 is shape (12, 3), torch.float32, placed as (Shard(dim=0),) on rank 0" in messages["shape"]
        assert "shape (14, 3)" in messages["shape"]
        assert f"option safe_radius is 0.5 on rank 0 and 0.4 {last}" in messages["option"]
        assert "parameter 1 is missing on rank 0 and shape (14, 3)" in messages["number"]
        assert f"option lr of group 0 is 0.1 on rank 0 and 0.2 {last}" in messages["lr"]
        assert f"the gradient of parameter 1 of group 0 is given on rank 0 and None {last}" in messages["gradient"]
        assert f"option attraction is 0.5 on rank 0 and 0.3 {last}" in messages["attached"]
        assert re.search(
            rf"option lr is a torch.float32 tensor, 0\.1\d* on rank 0 and .* 0\.2\d* {last}", messages["tensor"]
        )
        assert f"a torch.float32 tensor, 0.5 on rank 0 and a torch.float64 tensor, 0.5 {last}" in messages["types"]
        message, moved = messages["filled tensor"]
        assert re.match(r"ValueError.*option lr of group 0 is .* 0\.1\d* on rank 0 and .* 0\.1\d*", message)
        assert not moved


def a_learning_rate_on_a_device_is_compared_there_without_a_wait(found):
    for messages in found if len(found) > 1 else []:
        message, moved = messages["tensor on a device"]
        assert messages["alike on a device"] is None
        assert re.match(r"RuntimeError.*LandingSGD: a tensor among the options .* differs between the ranks", message)
        assert not moved


def checkpoints_that_ranks_disagree_on_end_with_the_same_error_at_once(found):
    last = f"on rank {len(found) - 1} of the group"
    for messages, left, names in found if len(found) > 1 else []:
        said = {what: text for what, (text, _) in messages.items()}
        assert said == {what: text for what, (text, _) in found[0][0].items()}
        assert all(seconds < 20 for _, seconds in messages.values())
        assert f"save_checkpoint: the ranks must agree; step is 3 on rank 0 and 4 {last}" in said["saved step"]
        assert f"load_checkpoint: the ranks must agree; step is 2 on rank 0 and 1 {last}" in said["loaded step"]
        assert f"step is 3 on rank 0 and -1 {last}" in said["wrong step"]
        assert re.search(rf"is step-000000002 on rank 0 and (missing|none) {last}", said["one without"])
        assert "has no checkpoint of step 3" in said["none"]
        assert re.search(r"OSError: checkpoint '.*file/step-000000003' was not written: .*file", said["no folder"])
        assert re.search(r"OSError: .*step-000000003' was not written: .*all ranks", said["two folders"])
        for what in ("full disk", "full disk of the last"):
            assert re.search(r"OSError: .*step-000000003' was not written: .*No space left", said[what])
        assert "step-000000002' cannot be loaded: '.metadata' is not the file that was written" in said["damaged"]
        assert said["damaged"].endswith("step=1")
        assert left == 2
        assert names == ["step-000000002", "step-000000003"], "failures leave nothing behind"


def a_model_is_made_orthonormal_before_or_after_it_is_sharded(found):
    for rank in found:
        for when in ("before", "after"):
            first, disturbed, names, exact, weights = rank[when]
            assert names == [row.name for row in first] == ["0.weight", "2.weight", "4.weight"]
            assert all(row.distance < 1e-6 for row in [*first, *exact])
            assert all(0.03 < row.distance < 0.1 and row.smallest == pytest.approx(1.01) for row in disturbed)
            model = network(torch.float32)
            model.load_state_dict(dict(zip(model.state_dict(), weights, strict=True)))
            for row, plain in zip(exact, gs.orthogonality(model), strict=True):
                assert row[:4] == plain[:4]
                assert row[4:] == pytest.approx(plain[4:], abs=1e-12)
        message, table = rank["not finite"]
        assert "'0.weight' has infinite or NaN entries" in message
        assert re.search(r"0\.weight .* nan", table)
        bare, expected = rank["bare"]
        assert bare == expected == [(True, "matrix", 2), (False, None, 3), (True, "conv", 1)]
    for when in ("before", "after"):
        expected = network(torch.float32)
        for weight, (name, plain) in zip(found[0][when][4], expected.named_parameters(), strict=True):
            if name in found[0][when][2]:
                torch.testing.assert_close(weight, plain.detach(), rtol=0, atol=1e-6)


def half_precision_keeps_float32_masters_in_which_small_steps_add_up(found):
    for master, rounded, distances in found:
        assert (master.dtype, rounded.dtype) == (torch.float32, torch.bfloat16)
        assert torch.equal(master.bfloat16(), rounded)
        assert distances[0][0] < 0.1
        assert torch.equal(master, found[0][0])
        start = gs.random_stiefel(24, 4, generator=torch.Generator().manual_seed(0)).bfloat16().float()
        assert 0.005 < (master - start).norm() < 0.05  # twenty steps of 1e-3, each below the rounding of bfloat16


def mixed_precision_of_fsdp_keeps_float32_masters(found):
    for types, distances, moved in found:
        assert types == {"torch.float32"}
        assert max(distances) < 1e-6
        assert all(moved)


def no_gradient_and_no_learning_rate_leave_the_safe_region(found):
    for rank in found:
        assert all(0 < worst <= 0.5 * (1 + 1e-5) for worst in rank.values()), rank
        assert rank == found[0]


def every_view_is_stepped_alike_whatever_dimension_is_sharded(found):
    for rank in found:
        assert len(rank) == sum(len(shape) for _, shape in VIEWS)
        assert max(difference for *_, difference in rank) < 1e-14


def scaled_parameters_are_stepped_reported_and_projected_alike(found):
    for rank in found:
        assert len(rank) == 11
        for (_, name), (difference, (plain, spread)) in rank.items():
            assert difference < 1e-13, name
            if name == "network":
                for ours, expected in zip(spread, plain, strict=True):
                    assert torch.tensor(ours).allclose(torch.tensor(expected), rtol=1e-9, atol=1e-12)
                trained, exact = spread
                assert max(row[0] for row in exact) < 1e-12 < 1e-5 < max(row[0] for row in trained)
            else:
                for ours, expected in zip(spread, plain, strict=True):
                    assert ours == pytest.approx(expected, rel=1e-6, abs=1e-12)


def retractions_and_penalties_refuse_sharded_parameters(found):
    for messages in found:
        assert all("is a DTensor" in message and "LandingSGD" in message for message in messages)


def variance_reduction_knows_nothing_of_ranks(found):
    for rank in found:
        assert rank["saga"][0] < 1e-14
        assert rank["svrg"][0] < 1e-14
        assert rank["kept"]
        entries = (-(-11 // len(found)) * 3 + -(-9 // len(found)) * 2 * 2) * 8  # at most, on one rank
        assert 0 < rank["saga"][1] <= 3 * entries


def whole_and_sharded_optimizers_go_on_from_each_others_states(found):
    assert all(0 <= difference < 1e-13 for rank in found for difference in rank.values())


def shards_may_be_copied_too(found):
    assert all((rank is None) == (len(found) != 4) and (rank or 0) < 1e-13 for rank in found)


CLAIMS = {
    "traffic_of_a_step": [a_row_sharded_step_sends_p_by_p_numbers_whatever_n, that_is_twenty_times_less_than_gathering],
    "traffic_of_a_bundle": [all_matrices_of_a_step_share_one_all_reduce_of_grams],
    "skipped_together": [a_gradient_that_is_not_finite_on_one_rank_is_skipped_on_all],
    "disagreements": [
        ranks_that_disagree_end_with_an_error_that_names_the_difference,
        a_learning_rate_on_a_device_is_compared_there_without_a_wait,
    ],
    "checkpoint_disagreements": [checkpoints_that_ranks_disagree_on_end_with_the_same_error_at_once],
    "models": [a_model_is_made_orthonormal_before_or_after_it_is_sharded],
    "half_precision": [half_precision_keeps_float32_masters_in_which_small_steps_add_up],
    "mixed_precision": [mixed_precision_of_fsdp_keeps_float32_masters],
    "safe_region": [no_gradient_and_no_learning_rate_leave_the_safe_region],
    "views": [every_view_is_stepped_alike_whatever_dimension_is_sharded],
    "scales": [scaled_parameters_are_stepped_reported_and_projected_alike],
    "variance_reduction": [variance_reduction_knows_nothing_of_ranks],
    "states_of_others": [whole_and_sharded_optimizers_go_on_from_each_others_states],
    "hybrid": [shards_may_be_copied_too],
    "unsupported": [retractions_and_penalties_refuse_sharded_parameters],
}
