"""Training on all ranks: final parameters under DDP, FSDP2 and DTensors."""

import warnings

import torch
import torch.distributed as dist
from distributed.spreading import SHARDS_MODELS, diagnosed, mesh
from distributed.training import (
    MATRICES,
    OPTIMIZERS,
    network,
    starts,
    train_matrices,
    train_network,
    whole,
)
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import glideslope as gs


def sharded_parameters(dtype):
    over = mesh()
    return [
        torch.nn.Parameter(distribute_tensor(X, over, [Shard(dim)]))
        for X, (_, dim, _) in zip(starts(dtype), MATRICES, strict=True)
    ]


def dtensor_trajectories(names, dtype):
    """Final parameters and diagnosis of each optimizer."""
    found = {}
    for name in names:
        params = sharded_parameters(dtype)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            optimizer = OPTIMIZERS[name](params)
        train_matrices(params, optimizer)
        found[name] = ([whole(param) for param in params], diagnosed(optimizer), [str(one.message) for one in said])
    return found


KINDS = ("ddp", "fsdp") if SHARDS_MODELS else ("ddp",)


def network_trajectories(names, dtype, kinds=KINDS):
    """Final parameters of the network under DDP and FSDP2."""
    found = {}
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for name in names:
        for kind in kinds:
            model = network(dtype)
            if kind == "ddp":
                trained = DistributedDataParallel(model)
            else:
                place = gs.shard_placement(model)
                fully_shard(model[0], mesh=mesh(), shard_placement_fn=place)
                trained = fully_shard(model, mesh=mesh(), shard_placement_fn=place)
            optimizer = OPTIMIZERS[name](gs.param_groups(model))
            train_network(trained, optimizer, dtype, rank, ranks)
            found[name, kind] = ([whole(param) for param in model.parameters()], diagnosed(optimizer))
    return found


def everything(names, dtype):
    return {"matrices": dtensor_trajectories(names, dtype), "networks": network_trajectories(names, dtype)}
