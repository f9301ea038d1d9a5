from typing import ClassVar

from benchmark_utils.pca import Minimizer

import glideslope as gs


class Solver(Minimizer):
    """Landing SGD with λ = 10, as in the authors' published runs."""

    name = "landing-10"
    options: ClassVar = {"method": "landing", **gs.PAPER_OPTIONS, "attraction": 10.0}
