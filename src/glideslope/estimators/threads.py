"""One thread for small data: waking up others costs more than they do, most of all after a fit of another library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

# Data of at most this many numbers are small.
SMALL_NUMBERS = 2**20


@contextmanager
def few_threads(n_numbers: int) -> Iterator[None]:
    """Compute with one thread inside the block if there are few numbers, and as before after it."""
    before = torch.get_num_threads()
    if n_numbers > SMALL_NUMBERS or before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
