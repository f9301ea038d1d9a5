"""Ranks that disagree, or of which one cannot go on: what each of them is told, and how soon."""

import os
import shutil
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import torch
import torch.distributed as dist
from distributed.jobs import Job
from distributed.spreading import drawn, message_of, orthonormal, shard
from distributed.training import whole

import glideslope as gs
from glideslope.ranks.agreement import check_fingerprint


def disagreements():
    """Messages where the last rank differs from the others."""
    odd = dist.get_rank() == dist.get_world_size() - 1
    types = (torch.float32, torch.float64)
    X, wide = shard(orthonormal(12, 3)), shard(orthonormal(14, 3))
    found = {
        "shape": message_of(lambda: gs.LandingSGD([wide if odd else X])),
        "option": message_of(lambda: gs.LandingSGD([X], safe_radius=0.4 if odd else 0.5)),
        "number": message_of(lambda: gs.LandingSGD([X, wide] if odd else [X])),
    }
    optimizer = gs.LandingSGD([X, wide], lr=0.1)
    X.grad, wide.grad = shard(drawn(12, 3)).data, shard(drawn(14, 3)).data
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.2 if odd else 0.1
    found["lr"] = message_of(optimizer.step)
    optimizer.param_groups[0]["lr"] = 0.1
    if odd:
        wide.grad = None
    found["gradient"] = message_of(optimizer.step)
    found["tensor"] = message_of(lambda: gs.LandingSGD([X], lr=torch.tensor(0.2 if odd else 0.1)))
    found["types"] = message_of(lambda: gs.LandingSGD([X], lr=torch.tensor(0.5, dtype=types[odd])))
    found["filled tensor"] = disagreeing_tensor(X, odd)
    found["tensor on a device"] = disagreeing_tensor(X, odd, OnDevice)
    groups = [{**optimizer.param_groups[0], "lr": torch.tensor(0.1).as_subclass(OnDevice)}]
    found["alike on a device"] = message_of(lambda: check_fingerprint("", groups, lambda params: [None]))
    host = torch.optim.SGD([X], lr=0.1)
    found["attached"] = message_of(lambda: gs.attach_landing(host, [X], attraction=0.3 if odd else 0.5))
    return found


class OnDevice(torch.Tensor):
    """Stands for a tensor on an accelerator, as all that is computed from it: it must not be read."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        assert name not in ("item", "tolist", "__bool__", "__float__", "cpu", "numpy", "equal", "__repr__"), name
        return super().__torch_function__(function, types, args, kwargs)


def disagreeing_tensor(X, odd, kind=torch.Tensor):
    """A learning rate in a tensor that differs by its last bit: what a step says, and whether X moved."""
    lr = torch.tensor(0.1)
    optimizer = gs.LandingSGD([X], lr=lr)
    X.grad = shard(drawn(12, 3)).data
    optimizer.step()
    before = whole(X)
    if odd:
        lr.copy_(torch.nextafter(lr, torch.tensor(1.0)))
    optimizer.param_groups[0]["lr"] = lr.as_subclass(kind)
    try:
        optimizer.step()
    except (ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}", bool((whole(X) != before).any())
    return None, None


def told(function):
    """The error of a call, in words, and the seconds until it came."""
    started = time.monotonic()
    try:
        function()
    except (ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}", time.monotonic() - started
    return None, time.monotonic() - started


def common_folder():
    names = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(names)
    return Path(names[0])


def full_disk(*_):
    raise OSError(28, "No space left on device")


def checkpoint_disagreements():
    """Messages where the last rank differs from the others, or one rank fails; None for one rank."""
    rank, odd = dist.get_rank(), dist.get_rank() == dist.get_world_size() - 1
    if dist.get_world_size() == 1:
        return None
    folder = common_folder()
    job = Job()
    job.train(1)
    for step in (1, 2):
        job.save(folder, step)
    if rank == 0:
        (folder / "file").write_text("")
    (folder / f"empty{rank}").mkdir()
    found = {
        "saved step": told(lambda: job.save(folder, 4 if odd else 3)),
        "loaded step": told(lambda: job.load(folder, step=1 if odd else 2)),
        "wrong step": told(lambda: job.save(folder, -1 if odd else 3)),
        "one without": told(lambda: job.load(folder / f"empty{rank}" if odd else folder)),
        "none": told(lambda: job.load(folder, step=3)),
        "no folder": told(lambda: job.save(folder / "file", 3)),
        "two folders": told(lambda: job.save(folder / f"empty{rank}", 3)),
    }
    with patch("os.replace", full_disk if rank == 0 else os.replace):
        found["full disk"] = told(lambda: job.save(folder, 3))
    with patch("torch.save", full_disk if odd else torch.save):
        found["full disk of the last"] = told(lambda: job.save(folder, 3))
    broken = folder / "step-000000002" / ".metadata"
    if rank == 0:
        content = broken.read_bytes()
        broken.write_bytes(content[:-1])
    dist.barrier()
    found["damaged"] = told(lambda: job.load(folder))
    dist.barrier()
    if rank == 0:
        broken.write_bytes(content)
    dist.barrier()
    left = job.load(folder)
    job.save(folder, 3)
    names = sorted(path.name for path in folder.glob("step-*"))
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    return found, left, names
