"""A training job with checkpoints, which may lose a rank."""

import torch
import torch.distributed as dist
from distributed.spreading import diagnosed, mesh
from distributed.training import (
    OPTIMIZERS,
    network,
    whole,
)
from torch.distributed.fsdp import fully_shard

import glideslope as gs


def prepared(kind="fsdp", name="adam"):
    """The network, its optimizer and a SAGA memory of all its parameters, on the ranks there are."""
    model = network(torch.float64)
    if kind == "fsdp":
        fully_shard(model, mesh=mesh(), shard_placement_fn=gs.shard_placement(model))
    optimizer = OPTIMIZERS[name](gs.param_groups(model))
    return model, optimizer, gs.SAGA(model.parameters(), slots=3)


def train_with_saga(model, optimizer, saga, steps, first=0, rank=0, ranks=1, after=None):
    from distributed.training import batch

    for step in range(first, first + steps):
        inputs, targets = (part.chunk(ranks)[rank] for part in batch(step % 3, torch.float64))
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        saga.correct_(step % 3)
        optimizer.step()
        if after is not None:
            after(step + 1)


def train_in_parts(folder, until, name):
    """Go on from the last checkpoint until a step, with a checkpoint every five; the parameters."""
    model, optimizer, saga = prepared("fsdp", name)
    done = gs.load_checkpoint(folder, model, optimizer, saga=saga)

    def after(step):
        if step % 5 == 0:
            gs.save_checkpoint(folder, step, model, optimizer, saga=saga)

    train_with_saga(model, optimizer, saga, until - done, done, dist.get_rank(), dist.get_world_size(), after)
    return done, [whole(param) for param in model.parameters()], diagnosed(optimizer)


def train_and_die(folder, until, name, at):
    """The same, but the last rank of the first attempt is killed with SIGKILL at a step."""
    import os
    import signal

    model, optimizer, saga = prepared("fsdp", name)
    done = gs.load_checkpoint(folder, model, optimizer, saga=saga)
    first_attempt = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"

    def after(step):
        if step % 5 == 0:
            gs.save_checkpoint(folder, step, model, optimizer, saga=saga)
        if step == at and first_attempt and dist.get_rank() == dist.get_world_size() - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    train_with_saga(model, optimizer, saga, until - done, done, dist.get_rank(), dist.get_world_size(), after)
    return done, [whole(param) for param in model.parameters()], diagnosed(optimizer)
