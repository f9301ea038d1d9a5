"""Checkpoints of a training job in a folder: complete or not there, with checksums, for any number of ranks.

`torch.distributed.checkpoint` writes and reads them; here is what it leaves open. A checkpoint is written under another
name and renamed when all ranks are done, the last ones are kept, and a file that is not what was written is refused.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from glideslope.optim.memory import GradientMemory

MANIFEST = "sha256.json"
State = dict[str, Any]


def save_checkpoint(
    folder: str | os.PathLike[str],
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    keep: int = 2,
    **others: Any,
) -> Path:
    """Write model, optimizer and others as `<folder>/step-<step>`; on several ranks, to be called on all of them.

    Args:
        folder: Where the checkpoints of this job are; seen by all ranks.
        step: Steps done, a whole number >= 0.
        model: The model, plain, under DDP or FSDP2.
        optimizer: Its optimizer.
        keep: How many checkpoints to keep, the newest ones.
        **others: Anything with a state_dict, by name: gs.SAGA, gs.SVRG, a learning rate scheduler.
    """
    from torch.distributed.checkpoint.state_dict_saver import save

    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"step must be a whole number >= 0; got {step!r}")
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
        raise ValueError(f"keep must be a whole number >= 1; got {keep!r}")
    place = Path(folder) / f"step-{step:09d}"
    beside = place.with_name(place.name + ".part")
    rank, _ = rank_and_ranks()
    if rank == 0:
        for unfinished in Path(folder).glob("step-*.part"):
            shutil.rmtree(unfinished)
        beside.mkdir(parents=True)
    wait_for_all()
    with quietly():
        save(state_of(model, optimizer, others), checkpoint_id=beside)
    wait_for_all()
    if rank == 0:
        names = sorted(path.name for path in beside.iterdir())
        write_whole(beside / MANIFEST, json.dumps({name: digest_of(beside / name) for name in names}))
        aside = [set_aside(place)] if place.exists() else []
        os.replace(beside, place)
        aside += [set_aside(old) for old in checkpoints_in(folder)[:-keep]]
        for old in aside:
            shutil.rmtree(old)
    wait_for_all()
    return place


def load_checkpoint(
    folder: str | os.PathLike[str],
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    step: int | None = None,
    **others: Any,
) -> int:
    """Load the newest checkpoint, or that of a step, and return the steps done; 0 and nothing loaded if there is none.

    The number of ranks may be another than that which wrote it. A damaged checkpoint is refused on all ranks, with its
    name and that of the one before it, and nothing is loaded.

    Args:
        folder: As for `save_checkpoint`.
        model: The model, sharded as it is to be.
        optimizer: Its optimizer.
        step: Which checkpoint; the newest unless given.
        **others: What was saved beside them, by the same names.
    """
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.state_dict import set_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load

    found = checkpoints_in(folder)
    if step is not None:
        found = [path for path in found if steps_of(path) <= step]
        if not found or steps_of(found[-1]) != step:
            raise ValueError(f"{str(folder)!r} has no checkpoint of step {step}")
    if not found:
        return 0
    place = found[-1]
    refuse_if_damaged(place, found[-2] if len(found) > 1 else None)
    with quietly():
        saved = FileSystemReader(place).read_metadata().state_dict_metadata
        for name, other in others.items():
            if isinstance(other, GradientMemory) and any(key.startswith(f"others.{name}.memory") for key in saved):
                other._allocate()
        state = state_of(model, optimizer, others)
        load(state, checkpoint_id=place)
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    for name, other in others.items():
        other.load_state_dict(state["others"][name])
    return steps_of(place)


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer, others: State) -> State:
    """Everything a checkpoint holds, with the tensors that are loaded in place."""
    from torch.distributed.checkpoint.state_dict import get_state_dict

    weights, state = get_state_dict(model, optimizer)
    return {
        "model": weights,
        "optimizer": state,
        "others": {name: other.state_dict() for name, other in others.items()},
    }


def checkpoints_in(folder: str | os.PathLike[str]) -> list[Path]:
    """The complete checkpoints of a folder, oldest first."""
    found = [path for path in Path(folder).glob("step-*") if path.suffix != ".part" and path.is_dir()]
    return sorted(found, key=steps_of)


def steps_of(place: Path) -> int:
    """The steps done when a checkpoint was written, from its name."""
    return int(place.name.partition("-")[2])


def refuse_if_damaged(place: Path, before: Path | None) -> None:
    """Raise a ValueError on every rank unless every file is what was written; each rank reads its share of them."""
    rank, ranks = rank_and_ranks()
    try:
        expected: dict[str, str] = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
        names = sorted(expected)[rank::ranks]
        bad = [n for n in names if not (place / n).is_file() or digest_of(place / n) != expected[n]]
    except (OSError, ValueError):
        bad = [MANIFEST]
    everyone = [bad]
    if ranks > 1:
        everyone = [[] for _ in range(ranks)]
        torch.distributed.all_gather_object(everyone, bad)
    damaged = [name for names in everyone for name in names]
    if damaged:
        way_out = f"Go on from the one before it: step={steps_of(before)}" if before else "There is none before it"
        raise ValueError(
            f"checkpoint {str(place)!r} cannot be loaded: {damaged[0]!r} is not the file that was written. {way_out}"
        )


def set_aside(place: Path) -> Path:
    """Rename a checkpoint that is to be deleted: it is whole or gone whenever the process dies."""
    gone = place.with_name(place.name + ".old.part")
    os.replace(place, gone)
    return gone


def digest_of(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        digest = hashlib.sha256()
        while block := file.read(2**20):
            digest.update(block)
    return digest.hexdigest()


def write_whole(path: Path, text: str) -> None:
    """Write a small file and bring it to the disk."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def rank_and_ranks() -> tuple[int, int]:
    """This rank and the number of ranks; (0, 1) without torch.distributed."""
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


def wait_for_all() -> None:
    """Wait until all ranks have come here."""
    if rank_and_ranks()[1] > 1:
        torch.distributed.barrier()


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without the warnings of torch.distributed.checkpoint about there being one process, and about its own insides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
