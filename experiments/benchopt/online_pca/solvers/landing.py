from typing import ClassVar

from benchmark_utils.pca import Minimizer

import glideslope as gs


class Solver(Minimizer):
    """Landing SGD with the paper's options: canonical metric, λ = 1, ε = ½."""

    name = "landing"
    options: ClassVar = {"method": "landing", **gs.PAPER_OPTIONS}
