"""Plants pickles in checkpoints of training jobs, with manifests that fit."""

import hashlib
import io
import json
import os
import pickle

import torch
from distributed.jobs import Job
from torch.distributed.checkpoint.metadata import MetadataIndex


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def saved(folder, step=5):
    job = Job("whole")
    job.train(1)
    job.save(folder, step)
    return folder / f"step-{step:09d}"


def sign(place):
    """Write a manifest that fits what is in the folder, as an attacker would."""
    names = [path.name for path in place.iterdir() if path.name != "sha256.json"]
    sums = {name: hashlib.sha256((place / name).read_bytes()).hexdigest() for name in names}
    (place / "sha256.json").write_text(json.dumps(sums))


def changed_metadata(place, change):
    metadata = pickle.loads((place / ".metadata").read_bytes())
    change(metadata)
    (place / ".metadata").write_bytes(pickle.dumps(metadata))


def plant_entry(place, name, value):
    """Let an entry of the checkpoint be what torch.save makes of a value, appended to the data file."""
    payload = io.BytesIO()
    torch.save(value, payload)
    data = next(place.glob("*.distcp"))
    offset = data.stat().st_size
    data.write_bytes(data.read_bytes() + payload.getvalue())

    def change(metadata):
        info = metadata.storage_data[MetadataIndex(name)]
        info.offset, info.length = offset, len(payload.getvalue())

    changed_metadata(place, change)


LR = "optimizer.param_groups.0.lr"
