from typing import ClassVar

from benchmark_utils.pca import Minimizer


class Solver(Minimizer):
    """Riemannian SGD with the Euclidean metric and a retraction in every step."""

    name = "riemannian-qr"
    options: ClassVar = {"method": "riemannian", "retraction": "qr", "metric": "euclidean"}
