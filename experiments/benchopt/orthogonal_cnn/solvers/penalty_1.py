from typing import ClassVar

from benchmark_utils.training import Orthogonal

import glideslope as gs


class Solver(Orthogonal):
    """SGD on the loss + N."""

    name = "penalty-1"
    kind: ClassVar = gs.PenaltySGD
    options: ClassVar = {"penalty_weight": 1.0}
