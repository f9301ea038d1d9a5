"""Progress of a fit on stderr."""

from __future__ import annotations

import sys
import time


class Progress:
    """One line on stderr that says how far a fit is; silent unless verbose.

    Args:
        name: Of the estimator.
        verbose: Its parameter.
    """

    def __init__(self, name: str, verbose: int) -> None:
        self.name, self.verbose, self._started, self._last = name, verbose, time.perf_counter(), 0.0

    def say(self, text: str) -> None:
        """Show a state of the fit, at most ten times a second."""
        now = time.perf_counter()
        if self.verbose and now - self._last > 0.1:
            self._last = now
            self._write(text)

    def end(self, text: str) -> None:
        """Show the last state and end the line."""
        if self.verbose:
            self._write(text)
            sys.stderr.write("\n")

    def _write(self, text: str) -> None:
        line = f"{self.name}: {text}, {time.perf_counter() - self._started:.1f} s"
        sys.stderr.write(f"\r{line:<78}")
        sys.stderr.flush()
