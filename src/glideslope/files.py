"""Files that are complete or absent, whenever a process dies (written aside, synced, renamed), and their checksums."""

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
    """Create a file or replace it, atomically; any number of processes may do so, and the last one wins.

    Args:
        path: The file.
        parts: Its new contents, in pieces.
        former: Where to keep the file that is replaced.
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
    """A name in the same folder that no other process uses."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}.part")


def clear_unfinished(path: Path) -> None:
    """Delete temporary files of this file left by killed processes; those still being written stay."""
    name = re.compile(re.escape(path.name) + r"\.[0-9a-f]{32}\.part")
    with contextlib.suppress(OSError):  # another process clears too, or the folder may not be listed
        for left in path.absolute().parent.iterdir():
            if name.fullmatch(left.name) and time.time() - left.stat().st_mtime > STALE_SECONDS:
                left.unlink()


def keep_as(former: Path, path: Path) -> None:
    """Give a file a second name, so that it never goes missing; a copy on disks without hard links."""
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


def sha256(parts: Iterable[bytes | memoryview]) -> str:
    """SHA-256 of bytes in pieces, in hexadecimal digits."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return sha256(iter(lambda: file.read(2**20), b""))


def special_kind(path: Path) -> str | None:
    """The kind of a path that is not a regular file, in words; None for a regular file or nothing."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    return None if stat.S_ISREG(mode) else KINDS.get(stat.S_IFMT(mode), "no regular file")
