from typing import ClassVar

from benchmark_utils.training import Orthogonal

import glideslope as gs


class Solver(Orthogonal):
    """A tangent step and one Newton-Schulz step; Euclidean metric."""

    name = "landing-two-step"
    kind: ClassVar = gs.LandingSGD
    options: ClassVar = {"metric": "euclidean", "normal_step": "newton-schulz"}
