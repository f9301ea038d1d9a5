"""Runs a function on several ranks of this machine through torchrun's API, bounded in time."""

import contextlib
import faulthandler
import os
import tempfile
import uuid
from datetime import timedelta
from pathlib import Path

import torch

SECONDS = 120


def run_on(ranks, function, *arguments, restarts=0, seconds=SECONDS):
    """Results of function(*arguments) by rank, each in a process with gloo; an error of a rank is raised here."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # Without the second, restarted ranks may read the addresses of dead ones from the store that attempts share.
    variables = {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with tempfile.TemporaryDirectory() as logs, environment(**variables):
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std

        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=ranks,
            run_id=uuid.uuid4().hex,
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            max_restarts=restarts,
            monitor_interval=0.1,
            logs_specs=DefaultLogsSpecs(log_dir=logs, redirects=Std.ALL),
        )
        try:
            found = elastic_launch(config, on_this_rank)(function, arguments, seconds)
        except Exception as error:
            texts = [path.read_text()[-3000:] for path in sorted(Path(logs).rglob("stderr.log"))]
            raise RuntimeError("\n".join([str(error), *texts])) from None
    return [found[rank] for rank in range(ranks)]


def on_one_rank(function, *arguments):
    """The result of function(*arguments) in this process, as the only rank of a group."""
    import torch.distributed as dist

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        return function(*arguments)
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def environment(**values):
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def on_this_rank(function, arguments, seconds):
    """One rank: a hang ends the process, so that torchrun ends the job."""
    import torch.distributed as dist

    faulthandler.dump_traceback_later(seconds, exit=True)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=seconds / 2))
    result = function(*arguments)
    faulthandler.cancel_dump_traceback_later()
    dist.barrier()  # none leaves while another still talks to it
    dist.destroy_process_group()
    return result
