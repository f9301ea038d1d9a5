from typing import ClassVar

from benchmark_utils.training import Orthogonal

import glideslope as gs


class Solver(Orthogonal):
    """Riemannian SGD with the Euclidean metric and QR retractions."""

    name = "riemannian-qr"
    kind: ClassVar = gs.RiemannianSGD
    options: ClassVar = {"retraction": "qr", "metric": "euclidean"}
