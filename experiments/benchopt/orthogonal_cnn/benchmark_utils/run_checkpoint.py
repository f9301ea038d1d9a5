"""The checkpoint of a run, written after every epoch: a run that was killed goes on from there to the same curve."""

import hashlib
import io
import json
import os
from pathlib import Path

import torch

from glideslope.files import write_whole

FOLDER = "GLIDESLOPE_RUN_CHECKPOINTS"


class RunCheckpoint:
    """One file per run in the folder that the environment variable names; without the variable nothing is written.

    Args:
        run: Everything that decides the run, as values of JSON; the name of the file comes from it.
    """

    def __init__(self, run):
        folder = os.environ.get(FOLDER)
        name = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:24]
        self.path = Path(folder) / f"{name}.pt" if folder else None

    def read(self):
        """What was written last, or None."""
        if self.path is None or not self.path.exists():
            return None
        return torch.load(self.path, map_location="cpu", weights_only=True)

    def write(self, state):
        """Replace the file by a dictionary of tensors, numbers, texts, lists and dictionaries."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_whole(self.path, [buffer.getvalue()])
