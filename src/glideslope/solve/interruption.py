"""Ctrl-C ends one run of `minimize`, which returns its best point; the second one ends the program around it."""

from __future__ import annotations

import math
import sys
import time
from typing import ClassVar

# A run that starts within this many seconds after an interrupted one belongs to the same program, e.g. a loop.
PAUSE = 2.0


class CtrlC:
    """The meaning of Ctrl-C in one run; make one when the run begins.

    The first Ctrl-C ends the run. A second one is passed on: in the same run while it stops, or in any of those that
    follow an interrupted run with no pause between them.
    """

    ended: ClassVar[float] = -math.inf
    """When the last of the runs ended that an interruption belongs to."""

    def __init__(self) -> None:
        self.is_second = time.monotonic() - CtrlC.ended < PAUSE

    def caught(self) -> None:
        """Call where KeyboardInterrupt was caught: says what happens, or raises it again."""
        if self.is_second:
            self.run_ended()
            raise KeyboardInterrupt
        self.is_second = True
        sys.stderr.write(
            "\nminimize: Ctrl-C ends this run and returns its best point. Press it again, now or in a run that follows "
            f"within {PAUSE:g} seconds, to stop the program.\n"
        )
        sys.stderr.flush()

    def run_ended(self) -> None:
        """Call before a run returns."""
        if self.is_second:
            CtrlC.ended = time.monotonic()
