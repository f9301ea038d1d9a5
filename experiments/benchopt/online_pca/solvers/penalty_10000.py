from typing import ClassVar

from benchmark_utils.pca import Minimizer


class Solver(Minimizer):
    """SGD on f + 10000 N."""

    name = "penalty-10000"
    options: ClassVar = {"method": "penalty", "penalty_weight": 1e4}
