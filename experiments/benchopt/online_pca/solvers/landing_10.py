from typing import ClassVar

from benchmark_utils.pca import Minimizer


class Solver(Minimizer):
    """Landing SGD with λ = 10, as in the authors' published runs."""

    name = "landing-10"
    options: ClassVar = {"method": "landing", "attraction": 10.0}
