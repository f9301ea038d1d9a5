"""Files that are complete or not there, whenever a process dies: written under another name, synced, then renamed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import time
import uuid
from collections.abc import Iterable
from pathlib import Path

# A temporary file that nothing was written to for this long belongs to a process that was killed.
STALE_SECONDS = 3600.0
KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def write_whole(path: Path, parts: Iterable[bytes | memoryview], *, former: Path | None = None) -> None:
    """Replace a file by another one, in one moment; any number of processes may do so, and the last one counts.

    Args:
        path: The file, there or not.
        parts: Its new contents, in pieces.
        former: Where the file that is replaced stays.
    """
    clear_unfinished(path)
    unfinished = unique_beside(path)
    try:
        with open(unfinished, "xb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        if former is not None and path.exists():
            keep_as(former, path)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_folder(path.absolute().parent)


def unique_beside(path: Path) -> Path:
    """A name in the same folder that no other process takes."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")


def clear_unfinished(path: Path) -> None:
    """Delete what killed processes left of this file; those that still write keep theirs."""
    name = re.compile(re.escape(path.name) + r"\.[0-9a-f]{32}\.part")
    with contextlib.suppress(OSError):  # another process clears too, or the folder may not be listed
        for left in path.absolute().parent.iterdir():
            if name.fullmatch(left.name) and time.time() - left.stat().st_mtime > STALE_SECONDS:
                left.unlink()


def keep_as(former: Path, path: Path) -> None:
    """Give a file a second name, so that there is no moment without it; a copy where a disk has no such names."""
    unfinished = unique_beside(path)
    try:
        try:
            os.link(path, unfinished)
        except OSError:
            shutil.copyfile(path, unfinished)
        with contextlib.suppress(FileNotFoundError):  # a link is as old as the file: another process may clear it
            os.replace(unfinished, former)
    finally:
        unfinished.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename in a folder survive a loss of power, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def special_kind(path: Path) -> str | None:
    """The kind of thing at a path where it is no regular file, in words; None for a regular file or nothing."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    return None if stat.S_ISREG(mode) else KINDS.get(stat.S_IFMT(mode), "no regular file")
