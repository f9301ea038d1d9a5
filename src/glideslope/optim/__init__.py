"""Optimizers with the interface of torch.optim whose constrained matrices stay orthonormal."""

from glideslope.optim.attaching import attach_landing
from glideslope.optim.job_checkpoint import load_checkpoint, save_checkpoint
from glideslope.optim.landing import LandingAdam, LandingSGD
from glideslope.optim.penalty_sgd import PenaltySGD
from glideslope.optim.riemannian_sgd import RiemannianSGD

__all__ = [
    "LandingAdam",
    "LandingSGD",
    "PenaltySGD",
    "RiemannianSGD",
    "attach_landing",
    "load_checkpoint",
    "save_checkpoint",
]
