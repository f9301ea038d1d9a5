from typing import ClassVar

from benchmark_utils.ica import Minimizer

import glideslope as gs


class Solver(Minimizer):
    """Landing with loopless SVRG, beyond the paper."""

    name = "landing-svrg"
    options: ClassVar = {"method": "landing", "gradient": "svrg", **gs.PAPER_OPTIONS}
