from typing import ClassVar

from benchmark_utils.ica import Minimizer

import glideslope as gs


class Solver(Minimizer):
    """Landing SGD."""

    name = "landing-sgd"
    options: ClassVar = {"method": "landing", "gradient": "minibatch", **gs.PAPER_OPTIONS}
