from typing import ClassVar

from benchmark_utils.training import Orthogonal

import glideslope as gs


class Solver(Orthogonal):
    """SGD on the loss + 1000 N."""

    name = "penalty-1000"
    kind: ClassVar = gs.PenaltySGD
    options: ClassVar = {"penalty_weight": 1e3}
