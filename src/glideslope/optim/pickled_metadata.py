"""Checkpoints of `torch.distributed.checkpoint`, read without running anything that their files ask for.

torch itself reads `.metadata` by `pickle.load`, and values that are not tensors by `torch.load(weights_only=False)`:
either runs what a file says. Here the first makes objects of a handful of classes, by way of stand-ins, so that a file
cannot set attributes of torch's own classes either; the second is `pickled_values`.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import IO, Any

import torch
from torch.distributed.checkpoint import filesystem, metadata
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import ReadItem

from glideslope.pickled_values import read_value

METADATA = ".metadata"
CLASSES = (
    metadata.Metadata,
    metadata.MetadataIndex,
    metadata.StorageMeta,
    metadata.TensorStorageMetadata,
    metadata.TensorProperties,
    metadata.ChunkStorageMetadata,
    metadata.BytesStorageMetadata,
    filesystem._StorageInfo,
)
PATHS = ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath")


class StandIn:
    """An object of a class of torch, as its pickle describes it."""

    real: Any
    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class MetadataUnpickler(pickle.Unpickler):
    """An unpickler that knows what the metadata of a checkpoint are made of, and calls nothing else."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.stand_ins = {
            (real.__module__, real.__name__): type(real.__name__, (StandIn,), {"real": real}) for real in CLASSES
        }

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a class, or a function that makes one of a few values."""
        if (module, name) in self.stand_ins:
            return self.stand_ins[module, name]
        if (module, name) == ("torch", "Size"):
            return torch.Size
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        if (module, name) == ("torch.serialization", "_get_layout"):
            return lambda layout: torch.serialization._get_layout(layout)  # type: ignore[no-untyped-call]
        if (module, name) == (metadata.__name__, "_MEM_FORMAT_ENCODING"):
            return lambda value: metadata._MEM_FORMAT_ENCODING(value)
        if module in ("pathlib", "pathlib._local") and name in PATHS:
            return lambda *parts: os.path.join("", *parts)
        raise pickle.UnpicklingError(f"holds {module}.{name}, which the metadata of no checkpoint do")


def without_stand_ins(value: Any) -> Any:
    """The objects of torch that stand-ins describe."""
    if isinstance(value, StandIn):
        made = value.real.__new__(value.real)
        state = without_stand_ins(value.state)
        if hasattr(made, "__setstate__"):
            made.__setstate__(state)
        else:
            vars(made).update(state or {})
        return made
    if type(value) is dict:
        return {without_stand_ins(key): without_stand_ins(one) for key, one in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(without_stand_ins, value))
    return value


def read_metadata(place: Path, names: Collection[str] | None = None) -> Metadata:
    """The metadata of a checkpoint; an UnpicklingError that names the file unless all is what torch writes.

    Args:
        place: The folder of the checkpoint.
        names: The files in which entries may lie; default: any.
    """
    try:
        with open(place / METADATA, "rb") as file:
            found = without_stand_ins(MetadataUnpickler(file).load())
        check_places(found, names)
    except Exception as error:
        raise pickle.UnpicklingError(f"{METADATA!r} {error}") from None
    assert isinstance(found, Metadata)
    return found


def check_places(found: Any, names: Collection[str] | None) -> None:
    """Raise an UnpicklingError where metadata have entries without a place, or in a place they may not have."""
    if not isinstance(found, Metadata):
        raise pickle.UnpicklingError("is not the metadata of a checkpoint")
    for info in found.storage_data.values():
        if names is not None and info.relative_path not in names:
            raise pickle.UnpicklingError(f"places an entry in {info.relative_path!r}, no file of the checkpoint")
        if transforms := getattr(info, "transform_descriptors", None):  # older torch has none
            raise pickle.UnpicklingError(f"wants entries transformed by {transforms}, which is not supported")
    for name in value_names(found):
        if MetadataIndex(name) not in found.storage_data:
            raise pickle.UnpicklingError(f"has no place for {name!r}")


def value_names(known: Metadata) -> list[str]:
    """The names of all entries that are not tensors."""
    return sorted(name for name, kind in known.state_dict_metadata.items() if isinstance(kind, BytesStorageMetadata))


def check_stored_values(place: Path, known: Metadata, names: Sequence[str]) -> None:
    """Read entries that are not tensors, and raise an UnpicklingError that names the first that is refused."""
    for name in names:
        info = known.storage_data[MetadataIndex(name)]
        with open(place / info.relative_path, "rb") as file:
            file.seek(info.offset)
            data = file.read(info.length)
        try:
            read_value(data)
        except pickle.UnpicklingError as error:
            raise pickle.UnpicklingError(f"{name!r} {error}") from None


class Reader(FileSystemReader):
    """Reads a checkpoint whose metadata are known already."""

    def __init__(self, place: Path, known: Metadata) -> None:
        super().__init__(place)
        self.known = known

    def read_metadata(self, *args: Any, **options: Any) -> Metadata:
        """The metadata that were checked, whatever is in the folder by now."""
        self.known.storage_meta = StorageMeta(load_id=self.load_id)
        return self.known


class Planner(DefaultLoadPlanner):
    """Puts entries where they belong, with `read_value` for those that are not tensors."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Put a value where it belongs; torch's own reader sees only what was read safely and saved again."""
        again = io.BytesIO()
        torch.save(read_value(value.getvalue()), again)
        again.seek(0)
        super().load_bytes(read_item, again)
