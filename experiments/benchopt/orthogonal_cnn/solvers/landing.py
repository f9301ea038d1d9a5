from typing import ClassVar

from benchmark_utils.training import Orthogonal

import glideslope as gs


class Solver(Orthogonal):
    """Landing with the paper's options: canonical metric, λ = 1, ε = ½."""

    name = "landing"
    kind: ClassVar = gs.LandingSGD
    options: ClassVar = gs.PAPER_OPTIONS
