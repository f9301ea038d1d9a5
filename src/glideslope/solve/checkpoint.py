"""Checkpoints of a run: the state of its parts, in a file that is written whole, checked when read, and one run's own.

A file is a line with the format, a line with the SHA-256 of the rest, and the rest: tensors and numbers as `torch.save`
writes them. It replaces the last file atomically, which stays as `<path>.previous`: whenever the process dies, one
complete checkpoint is there. Reading runs no code of the file: see `pickled_values`.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from glideslope.files import sha256, special_kind, write_whole
from glideslope.formulas.arguments import check_whole_number
from glideslope.pickled_values import read_value

FORMAT = b"glideslope checkpoint 1\n"
DIGEST_LENGTH = 65  # 64 hexadecimal digits and the end of the line
SECONDS_BETWEEN = 60.0
State = dict[str, Any]


class Resumable:
    """A part of a run whose state is the attributes it names."""

    kept: tuple[str, ...] = ()
    """Names of the attributes that change during a run: tensors, numbers, texts, generators, lists of these or None."""

    def state(self) -> State:
        """The kept attributes that are set, by name; tensors are not copied."""
        return {name: packed(getattr(self, name)) for name in self.kept if hasattr(self, name)}

    def resume(self, state: State, device: torch.device) -> None:
        """Take over a state, with its tensors on a device."""
        for name, value in state.items():
            own = getattr(self, name, None)
            if isinstance(own, torch.Generator):
                own.set_state(value)
            else:
                setattr(self, name, on_device(value, device))


def packed(value: Any) -> Any:
    """A value as it is saved: of a generator its state."""
    return value.get_state() if isinstance(value, torch.Generator) else value


def on_device(value: Any, device: torch.device) -> Any:
    """A value as it was saved, with tensors moved; also those in a dictionary."""
    if isinstance(value, dict):
        return {name: on_device(one, device) for name, one in value.items()}
    return value.to(device) if isinstance(value, Tensor) else value


class Checkpoint:
    """When to write the state of a run, where, and what the run was.

    Args:
        path: File to write, and to resume from where it exists.
        every: Steps between two checkpoints; None writes one whenever a minute has passed.
        description: The arguments a run must share with the one it resumes.
    """

    def __init__(self, path: str | os.PathLike[str], every: int | None, description: Mapping[str, Any]) -> None:
        if every is not None:
            check_whole_number("checkpoint_every", every, least=1)
        self.path, self.every, self.description = Path(path), every, dict(description)
        if not self.path.absolute().parent.is_dir():
            raise ValueError(f"checkpoint must be a file in a folder that exists; got {str(path)!r}")
        if kind := special_kind(self.path):
            raise ValueError(f"checkpoint must be a regular file or a name that is free; {str(path)!r} is {kind}")
        self._last_step = 0
        self._last_time = time.monotonic()

    def resume(self) -> State | None:
        """The state to go on from, or None where there is no file; a ValueError if it is another run's or damaged."""
        if not self.path.exists():
            return None
        saved = read_checkpoint(self.path)
        if not isinstance(saved, dict) or not all(
            isinstance(saved.get(part), dict) for part in ("description", "state")
        ):
            raise damaged(self.path, "its contents are not those of a run")
        for name, wanted in self.description.items():
            given = saved["description"].get(name)
            if given != wanted:
                raise ValueError(
                    f"checkpoint {str(self.path)!r} is of a run with {name}={given!r}; this one has {name}={wanted!r}. "
                    "Use the same arguments, or another file"
                )
        state: State = saved["state"]
        self._last_step = state["step"]
        return state

    def is_due(self, step: int) -> bool:
        """Whether a checkpoint is to be written before this step."""
        if step == self._last_step:
            return False
        if self.every is not None:
            return step % self.every == 0
        return time.monotonic() - self._last_time >= SECONDS_BETWEEN

    def write(self, state: State) -> None:
        """Replace the file by one with this state."""
        write_checkpoint(self.path, {"description": self.description, "state": state})
        self._last_step, self._last_time = state["step"], time.monotonic()


def previous(path: Path) -> Path:
    """Where the checkpoint before the last one is."""
    return path.with_name(path.name + ".previous")


def write_checkpoint(path: Path, content: State) -> None:
    """Write tensors, numbers and texts to a file that is complete or not there; the last one becomes the previous."""
    payload = io.BytesIO()
    torch.save(content, payload)
    data = payload.getbuffer()
    head = FORMAT + sha256([data]).encode() + b"\n"
    write_whole(path, [head, data], former=previous(path))


def read_checkpoint(path: Path) -> State:
    """The contents of a checkpoint; a ValueError that names the file, and the one before it, if it is damaged."""
    if kind := special_kind(path):
        raise damaged(path, f"it is {kind}")
    data = path.read_bytes()
    body = len(FORMAT) + DIGEST_LENGTH
    if not data.startswith(FORMAT):
        raise damaged(path, "it does not begin like a checkpoint of this version")
    digest = data[len(FORMAT) : body].strip()
    if sha256([memoryview(data)[body:]]).encode() != digest:
        raise damaged(path, "its contents do not have the checksum they were written with: truncated or altered")
    try:
        content: State = read_value(data[body:], device="cpu")
    except UnpicklingError as error:
        raise damaged(path, f"it {error}") from None
    return content


def damaged(path: Path, why: str) -> ValueError:
    """The error of a file that cannot be used, with the way out."""
    before = previous(path)
    way_out = (
        f"The one before it is {str(before)!r}: move it to {path.name!r} to go on from there"
        if before.exists()
        else "Delete it to start anew"
    )
    return ValueError(f"checkpoint {str(path)!r} cannot be read: {why}. {way_out}")
