from typing import ClassVar

from benchmark_utils.pca import Minimizer

import glideslope as gs


class Solver(Minimizer):
    """Landing SGD with the Euclidean metric, whose steps are as long as those of the Riemannian methods."""

    name = "landing-euclidean"
    options: ClassVar = {"method": "landing", **gs.PAPER_OPTIONS, "metric": "euclidean"}
