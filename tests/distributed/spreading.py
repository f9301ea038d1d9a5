"""Parameters spread over the ranks of a test, and what their steps say."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard

from glideslope.ranks.dtensors import placed

SHARDS_MODELS = torch.__version__ >= (2, 7)  # before, FSDP2 trains on accelerators alone


def mesh():
    return init_device_mesh("cpu", (dist.get_world_size(),))


def shard(X, dim=0, over=None):
    return torch.nn.Parameter(placed(X, over or mesh(), [Shard(dim)]))


def orthonormal(*shape, dtype=torch.float32, seed=0):
    from distributed.training import start

    return start(shape, dtype, seed)


def drawn(*shape, dtype=torch.float32, seed=1):
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def diagnosed(optimizer):
    return [row._replace(name="") for row in getattr(optimizer, "landing", optimizer).diagnostics()]


def message_of(function):
    try:
        function()
    except ValueError as error:
        return str(error)
    return None
