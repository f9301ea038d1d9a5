from typing import ClassVar

from benchmark_utils.ica import Minimizer

import glideslope as gs


class Solver(Minimizer):
    """The base landing algorithm, with the full gradient."""

    name = "landing-gd"
    options: ClassVar = {"method": "landing", "gradient": "full", **gs.PAPER_OPTIONS}
