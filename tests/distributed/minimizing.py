"""`minimize` with the rows of X on all ranks."""

import contextlib

import torch
import torch.distributed as dist
from distributed.counting import Traffic
from distributed.spreading import drawn, mesh, message_of
from distributed.training import (
    whole,
)
from torch.distributed.tensor import Shard

import glideslope as gs
from glideslope.ranks.dtensors import placed


def minimized(folder, ways):
    """`minimize` with the rows of X on all ranks: solutions, messages and the largest tensor that was sent."""
    from distributed.sums import DATA, PROBLEMS, WAYS

    over = mesh()
    found = {}

    def spread(data):
        return placed(data, over, [Shard(1)])

    for way, options in {way: WAYS[way] for way in ways}.items():
        for name, make in PROBLEMS.items():
            solution = gs.minimize(make(spread), **options)
            assert isinstance(solution.X, type(spread(DATA)))
            X, local = whole(solution.X), solution.X.to_local().shape
            found[way, name] = (X, solution.value, solution.gradient_norm, solution.distance, solution.stop_reason)
            found[way, name] += (solution.n_steps, tuple(local))
    many = spread(drawn(30, 3000, dtype=torch.float64))
    with Traffic() as traffic:
        gs.minimize(gs.problems.PCA(many, 3), gradient="saga", step_size=1e-3, batch_size=10, max_epochs=3)
    found["many rows"] = max(size for _, size in traffic.calls)
    X0 = gs.random_stiefel(DATA.shape[1], 3, dtype=torch.float64, generator=torch.Generator().manual_seed(4))
    start = placed(X0, over, [Shard(0)])
    found["start"] = whole(gs.minimize(PROBLEMS["pca"](spread), start, step_size=0.05, max_epochs=4).X)
    found["stopped"] = resumed(lambda: PROBLEMS["pca"](spread), folder)
    found["another problem"] = refused(lambda data: gs.problems.PCA(spread(data), 3), DATA, start, folder)
    odd = dist.get_rank() == dist.get_world_size() - 1
    bad = DATA.clone()
    bad[3, -1] = float("inf")
    rows = placed(DATA, over, [Shard(0)])
    found["messages"] = {
        "seed": message_of(lambda: gs.minimize(PROBLEMS["pca"](spread), seed=int(odd), step_size=0.1)),
        "shape": message_of(lambda: gs.minimize(gs.problems.PCA(spread(DATA), 4 if odd else 3))),
        "method": message_of(lambda: gs.minimize(PROBLEMS["pca"](spread), method="riemannian")),
        "theory": message_of(lambda: gs.minimize(PROBLEMS["pca"](spread), step_size="theory", **gs.PAPER_OPTIONS)),
        "finite": message_of(lambda: gs.problems.PCA(spread(bad), 3)),
        "placement": message_of(lambda: gs.problems.PCA(rows, 3)),
        "function": message_of(lambda: gs.minimize(lambda X: X.sum(), start)),
        "plain": message_of(lambda: gs.minimize(PROBLEMS["pca"](spread), X0)),
    }
    return found


def refused(make, data, start, folder):
    """What a checkpoint says of other data, of which only the last rank has some, and of another X0, likewise."""
    options = {
        "step_size": 0.05,
        "max_epochs": 4,
        "checkpoint": folder / f"own{dist.get_world_size()}",
        "checkpoint_every": 2,
    }
    first = gs.minimize(make(data), start, **options)
    other = data.clone()
    other[:, -1] *= 2
    moved = whole(start)
    moved[-1] = -moved[-1]
    moved = placed(moved, start.device_mesh, [Shard(0)])
    return (
        message_of(lambda: gs.minimize(make(other), start, **options)),
        message_of(lambda: gs.minimize(make(data), moved, **options)),
        torch.equal(whole(gs.minimize(make(data), start, **options).X), whole(first.X)),
    )


def resumed(make, folder):
    """A run that is stopped, with one rank a checkpoint further than the others, and then resumed."""
    options = {"step_size": 0.05, "gradient": "saga", "batch_size": 10, "max_epochs": 6, "tolerance": 0}
    uninterrupted = whole(gs.minimize(make(), **options).X)

    class Stopped(BaseException):
        pass

    def stop(record):
        if record.step >= 12:
            raise Stopped

    path = folder / f"run{dist.get_world_size()}"
    with contextlib.suppress(Stopped):
        gs.minimize(make(), checkpoint=path, checkpoint_every=4, record_every=1, callback=stop, **options)
    own = path.with_name(f"{path.name}.{dist.get_rank()}-of-{dist.get_world_size()}")
    if dist.get_rank() == 0:  # as if it had died before it could write the last one
        own.with_name(own.name + ".previous").replace(own)
    again = gs.minimize(make(), checkpoint=path, checkpoint_every=4, **options)
    dist.barrier()
    if dist.get_rank() == 0:
        own.write_bytes(own.read_bytes()[:-5])
    dist.barrier()
    return (
        uninterrupted,
        whole(again.X),
        message_of(lambda: gs.minimize(make(), checkpoint=path, checkpoint_every=4, **options)),
    )
