from typing import ClassVar

from benchmark_utils.ica import Minimizer


class Solver(Minimizer):
    """Riemannian SGD."""

    name = "riemannian-sgd-exponential"
    options: ClassVar = {"method": "riemannian", "gradient": "minibatch", "retraction": "exponential"}
