from typing import ClassVar

from benchmark_utils.pca import Minimizer


class Solver(Minimizer):
    """A tangent step and one Newton-Schulz step; Euclidean metric."""

    name = "landing-two-step"
    options: ClassVar = {"method": "landing", "metric": "euclidean", "normal_step": "newton-schulz"}
