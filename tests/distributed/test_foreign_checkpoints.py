"""Checkpoints of training jobs from strangers: loading runs nothing that a file asks for, and honest values load."""

import hashlib
import json
import os
import pickle

import pytest
import torch
from distributed.jobs import Job
from distributed.planting import LR, Bomb, changed_metadata, plant_entry, saved, sign
from distributed.spreading import message_of
from torch.distributed.checkpoint.metadata import MetadataIndex

import glideslope as gs

PLANTS = {
    "metadata": (
        lambda place, bomb: (place / ".metadata").write_bytes(pickle.dumps(bomb)),
        r"'\.metadata' .*mkdir",
    ),
    "inside the metadata": (
        lambda place, bomb: changed_metadata(place, lambda metadata: setattr(metadata, "planner_data", bomb)),
        r"'\.metadata' .*mkdir",
    ),
    "entry": (lambda place, bomb: plant_entry(place, LR, bomb), rf"'{LR}' .*mkdir"),
    "inside an entry": (lambda place, bomb: plant_entry(place, LR, [0.1, {"a": (bomb,)}]), rf"'{LR}' .*mkdir"),
    "metadata of one rank": (
        lambda place, bomb: [
            (place / ".metadata").write_bytes(b"broken"),
            (place / "__0.metadata").write_bytes(pickle.dumps(bomb)),
        ],
        r"'\.metadata'",
    ),
}


@pytest.mark.parametrize("where", PLANTS)
def test_a_planted_pickle_runs_nothing_and_is_refused_with_its_name(tmp_path, where):
    plant, words = PLANTS[where]
    place = saved(tmp_path / "folder")
    plant(place, Bomb(tmp_path / "exploded"))
    sign(place)
    job = Job("whole")
    before = [param.detach().clone() for param in job.model.parameters()]
    with pytest.raises(ValueError, match=rf"step-000000005' cannot be loaded: {words}"):
        job.load(tmp_path / "folder")
    assert not (tmp_path / "exploded").exists()
    assert all(map(torch.equal, job.model.parameters(), before))


def test_a_planted_pickle_does_not_change_classes_of_torch(tmp_path):
    place = saved(tmp_path)
    # An attribute of the class itself: the class, then a state for it.
    payload = (
        pickle.PROTO
        + b"\x02ctorch.distributed.checkpoint.metadata\nMetadataIndex\n(N}X\x07\x00\x00\x00plantedK\x01stb."
    )
    (place / ".metadata").write_bytes(payload)
    sign(place)
    with pytest.raises(ValueError, match=r"cannot be loaded: '\.metadata'"):
        Job("whole").load(tmp_path)
    assert not hasattr(MetadataIndex, "planted")


def elsewhere(metadata):
    for info in metadata.storage_data.values():
        info.relative_path = "../secret"


def unknown_transform(metadata):
    for info in metadata.storage_data.values():
        info.transform_descriptors = ["stream.zstd"]


SPOILED = {
    "nothing is named": (lambda place: (place / "sha256.json").write_text("{}"), "names no file"),
    "not JSON": (lambda place: (place / "sha256.json").write_bytes(b"{\xff"), "'sha256.json' is missing or"),
    "a list": (lambda place: (place / "sha256.json").write_text("[]"), "sha256.json"),
    "numbers for sums": (lambda place: (place / "sha256.json").write_text('{".metadata": 1}'), "sha256.json"),
    "a file too many": (lambda place: (place / "more").write_text("x"), "'more' is not named in it"),
    "a file that is not named": (
        lambda place: (place / "sha256.json").write_text(json.dumps(without_metadata(place))),
        r"'\.metadata' is not named in it",
    ),
    "a file of another folder": (
        lambda place: (place / "sha256.json").write_text(json.dumps(with_parent(place))),
        "'../outside' is not the file that was written",
    ),
    "a pipe for the manifest": (
        lambda place: ((place / "sha256.json").unlink(), os.mkfifo(place / "sha256.json")),
        "sha256.json",
    ),
    "data of another folder": (lambda place: (changed_metadata(place, elsewhere), sign(place)), "'../secret'"),
    "an extension": (lambda place: (changed_metadata(place, unknown_transform), sign(place)), "stream.zstd"),
    "not a metadata object": (
        lambda place: ((place / ".metadata").write_bytes(pickle.dumps({"a": 1})), sign(place)),
        r"'\.metadata'",
    ),
    "nested without end": (
        lambda place: (
            (place / ".metadata").write_bytes(b"\x80\x02" + b"]" * 10**5 + b"a" * (10**5 - 1) + b"."),
            sign(place),
        ),
        r"'\.metadata'",
    ),
}


def without_metadata(place):
    return {n: s for n, s in json.loads((place / "sha256.json").read_text()).items() if n != ".metadata"}


def with_parent(place):
    (place.parent / "outside").write_bytes(b"x")
    sums = json.loads((place / "sha256.json").read_text())
    return sums | {"../outside": hashlib.sha256(b"x").hexdigest()}


@pytest.mark.parametrize("how", SPOILED)
def test_a_manifest_names_exactly_what_is_in_the_folder_and_entries_lie_in_named_files(tmp_path, how):
    spoil, words = SPOILED[how]
    spoil(saved(tmp_path))
    message = message_of(lambda: Job("whole").load(tmp_path))
    assert "step-000000005' cannot be loaded" in message
    assert words.replace("\\", "") in message


def test_a_checkpoint_of_another_model_is_a_clear_error(tmp_path):
    saved(tmp_path)
    model = torch.nn.Linear(3, 2)
    with pytest.raises(ValueError, match=r"step-000000005' cannot be loaded: .*model\.weight"):
        gs.load_checkpoint(tmp_path, model, torch.optim.SGD(model.parameters()))
