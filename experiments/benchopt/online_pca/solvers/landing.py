from typing import ClassVar

from benchmark_utils.pca import Minimizer


class Solver(Minimizer):
    """Landing SGD with the paper's options: canonical metric, λ = 1, ε = ½."""

    name = "landing"
    options: ClassVar = {"method": "landing", "attraction": 1.0, "safe_radius": 0.5, "metric": "canonical"}
