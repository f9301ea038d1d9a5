from typing import ClassVar

from benchmark_utils.pca import Minimizer


class Solver(Minimizer):
    """Riemannian SGD with the Euclidean metric and a retraction in every step."""

    name = "riemannian-cayley"
    options: ClassVar = {"method": "riemannian", "retraction": "cayley", "metric": "euclidean"}
