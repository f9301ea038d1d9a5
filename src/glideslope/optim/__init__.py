"""Optimizers with the interface of torch.optim whose constrained matrices stay orthonormal; the third layer."""

from glideslope.optim.checkpoint import load_checkpoint, save_checkpoint
from glideslope.optim.hook import attach_landing
from glideslope.optim.landing import LandingAdam, LandingSGD
from glideslope.optim.penalty import PenaltySGD
from glideslope.optim.riemannian import RiemannianSGD
from glideslope.optim.variance import SAGA, SVRG

__all__ = [
    "SAGA",
    "SVRG",
    "LandingAdam",
    "LandingSGD",
    "PenaltySGD",
    "RiemannianSGD",
    "attach_landing",
    "load_checkpoint",
    "save_checkpoint",
]
