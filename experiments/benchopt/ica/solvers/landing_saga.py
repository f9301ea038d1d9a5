from typing import ClassVar

from benchmark_utils.ica import Minimizer


class Solver(Minimizer):
    """Landing SAGA."""

    name = "landing-saga"
    options: ClassVar = {"method": "landing", "gradient": "saga"}
