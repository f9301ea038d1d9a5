from typing import ClassVar

from benchmark_utils.ica import Minimizer


class Solver(Minimizer):
    """Riemannian gradient descent."""

    name = "riemannian-gd-exponential"
    options: ClassVar = {"method": "riemannian", "gradient": "full", "retraction": "exponential"}
