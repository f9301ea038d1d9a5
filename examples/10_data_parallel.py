"""Data parallel training: DDP averages the gradients, so every rank takes the same landing step.

Nothing changes beside DDP itself. `torchrun --nproc-per-node=4 examples/10_data_parallel.py` starts four ranks; without
torchrun the script starts two. The state is saved as it goes, and a job that was killed goes on where it was.
"""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.run import main as torchrun
from torch.nn.parallel import DistributedDataParallel

import glideslope as gs

STEPS, BATCH = 120, 64


def train(folder):
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 4))
    gs.orthogonalize_(model)
    parallel = DistributedDataParallel(model)
    optimizer = gs.LandingSGD(gs.param_groups(model), lr=0.2, momentum=0.9)
    done = gs.load_checkpoint(folder, model, optimizer)
    for step in range(done, STEPS):
        generator = torch.Generator().manual_seed(step)
        inputs = torch.randn(BATCH, 16, generator=generator).chunk(ranks)[rank]
        loss = (parallel(inputs) - inputs[:, :4].sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (step + 1) % 40 == 0:
            gs.save_checkpoint(folder, step + 1, model, optimizer)
            if rank == 0:
                print(f"step {step + 1}  loss {loss.item():.4f}", flush=True)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    everyone = [torch.empty_like(weights) for _ in range(ranks)]
    dist.all_gather(everyone, weights)
    if rank == 0:
        print(f"ranks {ranks}")
        print(f"difference between ranks {max(float((one - weights).abs().max()) for one in everyone):.1e}")
        print(f"distance {gs.orthogonality(model).largest_distance:.1e}", flush=True)
    dist.barrier()  # none leaves while another still talks to it
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(sys.argv[1] if len(sys.argv) > 1 else "output/data_parallel")
    else:
        with tempfile.TemporaryDirectory() as folder:
            torchrun(["--standalone", "--nproc-per-node=2", __file__, folder])
