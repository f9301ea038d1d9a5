"""A training job with checkpoints, which may lose a rank: a network, its optimizer, and a SAGA or SVRG memory."""

import os
import signal

import torch
import torch.distributed as dist
from distributed.spreading import diagnosed, mesh
from distributed.training import OPTIMIZERS, batch, network, whole
from torch.distributed.fsdp import fully_shard

import glideslope as gs

# By name: the optimizer and what reduces the variance of its gradients.
JOBS = {"adam": ("adam", "saga"), "momentum": ("momentum", "saga"), "svrg": ("adam", "svrg")}
TERMS = 3


class Job:
    """A training on the ranks there are, or in one place."""

    def __init__(self, kind="fsdp", name="adam"):
        optimizer, memory = JOBS[name]
        self.model = network(torch.float64)
        self.rank, self.ranks = 0, 1
        if kind == "fsdp":
            fully_shard(self.model, mesh=mesh(), shard_placement_fn=gs.shard_placement(self.model))
            self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.optimizer = OPTIMIZERS[optimizer](gs.param_groups(self.model))
        params = list(self.model.parameters())
        self.memory = gs.SAGA(params, slots=TERMS) if memory == "saga" else gs.SVRG(params)

    def load(self, folder, **options):
        return gs.load_checkpoint(folder, self.model, self.optimizer, memory=self.memory, **options)

    def save(self, folder, step):
        gs.save_checkpoint(folder, step, self.model, self.optimizer, memory=self.memory)

    def backward(self, term):
        inputs, targets = (part.chunk(self.ranks)[self.rank] for part in batch(term, torch.float64))
        (self.model(inputs) - targets).square().mean().backward()

    def backward_of_all(self):
        for term in range(TERMS):
            self.backward(term)
        for param in self.model.parameters():
            param.grad /= TERMS

    def train(self, steps, first=0, after=None):
        """So many steps; the anchor of SVRG moves every seven, so that a checkpoint lies between two of them."""
        for step in range(first, first + steps):
            term = step % TERMS
            if isinstance(self.memory, gs.SVRG) and step % 7 == 0:
                self.memory.anchor_(self.backward_of_all)
            self.optimizer.zero_grad()
            self.backward(term)
            self.memory.correct_(term if isinstance(self.memory, gs.SAGA) else lambda term=term: self.backward(term))
            self.optimizer.step()
            if after is not None:
                after(step + 1)


def train_in_parts(folder, until, name, at=None):
    """Go on from the last checkpoint until a step, with a checkpoint every five; the parameters.

    With `at`, the last rank of the first attempt is killed with SIGKILL after that step.
    """
    job = Job("fsdp", name)
    done = job.load(folder)

    def after(step):
        if step % 5 == 0:
            job.save(folder, step)
        if step == at and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and job.rank == job.ranks - 1:
            os.kill(os.getpid(), signal.SIGKILL)

    job.train(until - done, done, after)
    return done, [whole(param) for param in job.model.parameters()], diagnosed(job.optimizer)
