"""The number of ranks changes nothing: DDP, FSDP2 and DTensor against one process that has everything."""

import pytest
import torch
from distributed.launch import run_on
from distributed.together import QUICK
from distributed.training import OPTIMIZERS, network, starts, train_matrices, train_network
from distributed.trajectories import KINDS, everything

import glideslope as gs
from glideslope.formulas import distance
from glideslope.stiefel.views import as_matrices

pytestmark = pytest.mark.filterwarnings("default")  # torchrun's own, in this process
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


@pytest.mark.xdist_group("two ranks")
def test_fifty_steps_on_two_ranks_are_the_fifty_steps_of_one_process(on_two_ranks):
    assert_as_in_one_process(on_two_ranks["trajectories"], QUICK["optimizers"], torch.float64)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_fifty_steps_of_every_optimizer_on_ranks_are_the_fifty_steps_of_one_process(ranks, dtype):
    found = run_on(ranks, everything, list(OPTIMIZERS), dtype, seconds=280)
    assert_as_in_one_process(found, OPTIMIZERS, dtype)


def assert_as_in_one_process(found, names, dtype):
    for name in names:
        params = [torch.nn.Parameter(X) for X in starts(dtype)]
        optimizer = OPTIMIZERS[name](params)
        train_matrices(params, optimizer)
        counts = [row[2:] for row in getattr(optimizer, "landing", optimizer).diagnostics()]
        model = network(dtype)
        train_network(model, OPTIMIZERS[name](gs.param_groups(model)), dtype)
        for rank, result in enumerate(found):
            matrices, diagnosis, said = result["matrices"][name]
            assert_close(matrices, params, dtype)
            assert all(distance(as_matrices(X, "matrix")).max() <= 0.5 for X in matrices)
            assert [row[2:] for row in diagnosis] == counts
            assert len(said) == (rank == 0)
            for kind in KINDS:
                weights, diagnosis = result["networks"][name, kind]
                assert_close(weights, list(model.parameters()), dtype)
                assert all(max(row.distance) <= 0.5 for row in diagnosis)
            for kind in KINDS:  # and every rank has the same to the last bit
                first = found[0]["networks"][name, kind][0]
                assert all(map(torch.equal, result["networks"][name, kind][0], first))


def assert_close(actual, expected, dtype):
    for a, b in zip(actual, expected, strict=True):
        assert (a - b.detach()).norm() <= TOLERANCE[dtype] * b.detach().norm()
