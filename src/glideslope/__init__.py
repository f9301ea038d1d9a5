"""Optimise over orthonormal matrices in PyTorch without QR, SVD or matrix exponentials.

A model     orthogonalize_  chooses weights, makes them orthonormal and marks them
            LandingSGD, LandingAdam  step marked weights by landing, the others as torch does
            attach_landing  does the same for any other torch optimizer
            orthogonality, project_  report distances; make the weights exact
            adopt_, release_, param_groups  take over parametrizations; take marks away; groups with options
            RiemannianSGD, PenaltySGD  the methods to compare with
            SAGA, SVRG  variance reduction in a training loop
            save_checkpoint, load_checkpoint, shard_placement  jobs on many machines
A problem   minimize, Solution, check_gradient, problems
Data        estimators.OnlinePCA, estimators.OnlineICA (need scikit-learn)
A matrix    landing_step, random_stiefel, project
The paper   formulas, theory, PAPER_OPTIONS
"""

from importlib import import_module
from importlib.metadata import version
from types import ModuleType

from glideslope import formulas, theory
from glideslope.engine import PAPER_OPTIONS, landing_step
from glideslope.optim import (
    LandingAdam,
    LandingSGD,
    PenaltySGD,
    RiemannianSGD,
    attach_landing,
    load_checkpoint,
    save_checkpoint,
)
from glideslope.solve import Solution, check_gradient, minimize, problems
from glideslope.stiefel import (
    adopt_,
    orthogonality,
    orthogonalize_,
    param_groups,
    project,
    project_,
    random_stiefel,
    release_,
    shard_placement,
)
from glideslope.variance import SAGA, SVRG

__version__ = version("glideslope")

__all__ = [
    "PAPER_OPTIONS",
    "SAGA",
    "SVRG",
    "LandingAdam",
    "LandingSGD",
    "PenaltySGD",
    "RiemannianSGD",
    "Solution",
    "__version__",
    "adopt_",
    "attach_landing",
    "check_gradient",
    "formulas",
    "landing_step",
    "load_checkpoint",
    "minimize",
    "orthogonality",
    "orthogonalize_",
    "param_groups",
    "problems",
    "project",
    "project_",
    "random_stiefel",
    "release_",
    "save_checkpoint",
    "shard_placement",
    "theory",
]


def __dir__() -> list[str]:
    """The public names."""
    return sorted([*__all__, "estimators"])


def __getattr__(name: str) -> ModuleType:
    """`glideslope.estimators`, imported when first used: it needs scikit-learn."""
    if name == "estimators":
        return import_module("glideslope.estimators")
    raise AttributeError(f"module 'glideslope' has no attribute {name!r}")
