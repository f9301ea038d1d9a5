from typing import ClassVar

from benchmark_utils.ica import Minimizer

import glideslope as gs


class Solver(Minimizer):
    """Landing SAGA."""

    name = "landing-saga"
    options: ClassVar = {"method": "landing", "gradient": "saga", **gs.PAPER_OPTIONS}
