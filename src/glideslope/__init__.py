"""glideslope: optimise over orthonormal matrices in PyTorch without QR, SVD or matrix exponentials."""

from importlib.metadata import version

from glideslope import formulas, theory
from glideslope.optim import LandingAdam, LandingSGD, PenaltySGD, RiemannianSGD, attach_landing
from glideslope.stiefel import orthogonality, orthogonalize_, param_groups, project, project_, random_stiefel

__version__ = version("glideslope")

__all__ = [
    "LandingAdam",
    "LandingSGD",
    "PenaltySGD",
    "RiemannianSGD",
    "__version__",
    "attach_landing",
    "formulas",
    "orthogonality",
    "orthogonalize_",
    "param_groups",
    "project",
    "project_",
    "random_stiefel",
    "theory",
]
