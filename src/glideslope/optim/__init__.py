"""Optimizers with the interface of torch.optim whose constrained matrices stay orthonormal."""

from glideslope.optim.attaching import attach_landing
from glideslope.optim.checkpoint import load_checkpoint, save_checkpoint
from glideslope.optim.landing import LandingAdam, LandingSGD
from glideslope.optim.penalty import PenaltySGD
from glideslope.optim.riemannian import RiemannianSGD

__all__ = [
    "LandingAdam",
    "LandingSGD",
    "PenaltySGD",
    "RiemannianSGD",
    "attach_landing",
    "load_checkpoint",
    "save_checkpoint",
]
