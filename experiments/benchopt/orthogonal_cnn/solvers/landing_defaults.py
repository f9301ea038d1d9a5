from typing import ClassVar

from benchmark_utils.training import Orthogonal

import glideslope as gs


class Solver(Orthogonal):
    """Landing with the library's defaults."""

    name = "landing-defaults"
    kind: ClassVar = gs.LandingSGD
