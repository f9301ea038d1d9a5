from typing import ClassVar

from benchmark_utils.training import Orthogonal

import glideslope as gs


class Solver(Orthogonal):
    """Landing with the Euclidean metric."""

    name = "landing-euclidean"
    kind: ClassVar = gs.LandingSGD
    options: ClassVar = {**gs.PAPER_OPTIONS, "metric": "euclidean"}
