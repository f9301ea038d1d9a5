from typing import ClassVar

from benchmark_utils.pca import Minimizer


class Solver(Minimizer):
    """SGD on f + 100 N."""

    name = "penalty-100"
    options: ClassVar = {"method": "penalty", "penalty_weight": 1e2}
