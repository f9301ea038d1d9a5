"""Threads of a fit: pieces of the data side by side, each on one thread, where torch's own threads would wait.

A piece that fits a cache is too small to be worth sharing among threads, but there are many of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import chain
from typing import Any, TypeAlias

import torch

Apply: TypeAlias = Callable[[Callable[..., Any], Sequence[Any]], Iterable[Any]]
"""Like `map`: a function of every piece, results in the order of the pieces."""
# More threads than this would wait for the interpreter.
MOST_THREADS = 8
# Fewer pieces are done before other threads are awake.
LEAST_PIECES = 16
# A thread takes this many pieces at a time: handing over takes a tenth of a millisecond, half of what a small one does.
IN_A_ROW = 4


@contextmanager
def one_thread_if(little: bool) -> Iterator[None]:
    """Compute with one thread of torch inside the block if there is little to compute, and as before after it.

    Threads that wait for each other, and for those of NumPy's library, would cost more than they save.
    """
    before = torch.get_num_threads()
    if not little or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def side_by_side(device: torch.device, pieces: int) -> Iterator[Apply]:
    """A `map` over pieces of data that runs as many calls at a time as torch has threads, each on one thread.

    Sums of the results in their order do not depend on the number of threads. Few pieces, and those of other devices,
    are mapped one by one, by the threads there are.

    Args:
        device: Of the computation.
        pieces: Number of pieces of a pass over all data.
    """
    threads = min(torch.get_num_threads(), MOST_THREADS)
    if device.type != "cpu" or threads == 1 or pieces < LEAST_PIECES:
        yield map
        return
    with one_thread_if(True), ThreadPoolExecutor(threads) as pool:

        def spread(work: Callable[[Any], Any], pieces: Sequence[Any]) -> Iterable[Any]:
            if len(pieces) < threads:
                return map(work, pieces)
            groups = [pieces[start : start + IN_A_ROW] for start in range(0, len(pieces), IN_A_ROW)]
            return chain.from_iterable(pool.map(lambda group: [work(piece) for piece in group], groups))

        yield spread
