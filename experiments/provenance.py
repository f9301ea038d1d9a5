"""Where records come from: commit, versions, threads, machine and command, as columns of every record."""

from __future__ import annotations

import datetime
import hashlib
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from benchmarks.environment import Environment

DISTRIBUTIONS = ("benchopt", "numpy", "scikit-learn", "geoopt", "geotorch", "python-picard")


def provenance(root: Path) -> dict[str, Any]:
    """One value per column; `root` is the folder of the repository."""
    here = Environment.now("python -m experiments", "cpu", torch.float32)
    return {
        "commit": commit(root),
        "command": without_folders(here.command),
        "machine": here.processor,
        "threads": here.threads,
        "python": here.python,
        "torch": here.torch_version,
        "blas": here.blas,
        "glideslope": here.glideslope_version,
        "others": ", ".join(f"{name} {version(name)}" for name in DISTRIBUTIONS),
        "recorded": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


COLUMNS = ("commit", "command", "machine", "threads", "python", "torch", "blas", "glideslope", "others", "recorded")


def without_folders(command: str) -> str:
    """A command with the last part of every path alone: where files were on a machine is no fact about a run."""
    return " ".join(word.rstrip("/").rpartition("/")[2] for word in command.split(" "))


def version(distribution: str) -> str:
    """Version of a distribution, or that it is missing."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "(not installed)"


def commit(root: Path) -> str:
    """The commit of a folder, with a mark if files differ from it; "unknown" outside of git."""
    try:
        found = git(root, "rev-parse", "--short=12", "HEAD")
        changed = git(root, "status", "--porcelain", "--", "src", "experiments")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{found} with changes" if changed else found


def git(root: Path, *arguments: str) -> str:
    """What git prints."""
    done = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def digest_of_code(*folders: Path) -> str:
    """Twelve digits that change with any Python file in the folders: results of other code are not taken from cache."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.relative_to(folder).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
