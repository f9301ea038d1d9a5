"""One process at a time writes to a folder of experiments: a lock that the system releases when its owner ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows, where two of them are not noticed
    fcntl = None  # type: ignore[assignment]

NAME = ".lock"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder and hold its lock; a ValueError if it cannot be written, or another process holds the lock.

    The file stays when the lock is gone. What counts is the lock on it, which ends with the process that has it,
    also with one that was killed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / NAME).open("a+", encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"--output {folder} cannot be written: {reason}. Give a folder of your own") from error
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                owner = file.read().strip() or "unknown"
                raise ValueError(
                    f"process {owner} is writing to {folder}: wait for it, or give another --output"
                ) from None
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        yield
