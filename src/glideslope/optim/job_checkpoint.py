"""Checkpoints of a training job in a folder: complete or not there, with checksums, for any number of ranks.

`torch.distributed.checkpoint` writes and reads them; here is what it leaves open. A checkpoint is written under another
name and renamed when all ranks are done, the last ones are kept, and a file that is not what was written is refused.
Whatever goes wrong on one rank is raised on all.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from glideslope.files import digest_of, sync_folder, write_whole
from glideslope.formulas.arguments import check_whole_number
from glideslope.ranks.agreement import agree, failing_together, gathered, rank_and_ranks
from glideslope.variance.training_loop_memory import GradientMemory

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import Metadata

MANIFEST = "sha256.json"
COMPLETE = re.compile(r"step-\d{9,}")
UNFINISHED = re.compile(r"step-\d{9,}(\.old)?\.part")
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

    An OSError on every rank if one of them cannot write, or if a value is of a kind that `load_checkpoint` would not
    read; a ValueError if they were given different steps. What was there before is then still there.

    Args:
        folder: Where the checkpoints of this job are; seen by all ranks.
        step: Steps done, a whole number >= 0.
        model: The model, plain, under DDP or FSDP2.
        optimizer: Its optimizer.
        keep: How many checkpoints to keep up to this step, the newest ones; later ones are left, with a warning.
        **others: Anything with a state_dict, by name: gs.SAGA, gs.SVRG, a learning rate scheduler.

    Examples:
        >>> model = torch.nn.Linear(8, 4)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> gs.save_checkpoint("job", 100, model, optimizer).name
        'step-000000100'
    """
    from torch.distributed.checkpoint.state_dict_saver import save

    agree("save_checkpoint", {"step": repr(step), "keep": repr(keep)})
    check_whole_number("step", step, least=0)
    check_whole_number("keep", keep, least=1)
    place = Path(folder) / f"step-{step:09d}"
    beside = place.with_name(place.name + ".part")
    first = rank_and_ranks()[0] == 0
    failure = f"checkpoint {str(place)!r} was not written"
    with failing_together(OSError, failure), quietly():
        if first:
            make_room(beside)
        state = state_of(model, optimizer, others)
    with failing_together(OSError, failure), quietly():
        save(state, checkpoint_id=beside)
    with failing_together(OSError, failure):
        if first:
            complete(beside, place, keep)
    if first and (later := [steps_of(path) for path in checkpoints_in(folder) if steps_of(path) > step]):
        warnings.warn(
            f"{str(folder)!r} has later checkpoints than the one just written, of step {step}: {later}. "
            f"load_checkpoint takes the latest unless you give step={step}; delete those that are no longer meant",
            UserWarning,
            stacklevel=2,
        )
    return place


def make_room(beside: Path) -> None:
    """Delete what killed jobs left, and make the folder that is written to."""
    beside.parent.mkdir(parents=True, exist_ok=True)
    for path in beside.parent.iterdir():
        if UNFINISHED.fullmatch(path.name):
            shutil.rmtree(path)
    beside.mkdir()


def complete(beside: Path, place: Path, keep: int) -> None:
    """Give a checkpoint its manifest and its name, and delete the oldest; later ones than this are left alone."""
    from glideslope.optim.pickled_metadata import check_stored_values, read_metadata, value_names

    known = read_metadata(beside)
    for name in {info.relative_path for info in known.storage_data.values()}:
        if not (beside / name).is_file():
            raise FileNotFoundError(f"{name!r} is not there; the folder must be seen by all ranks")
    check_stored_values(beside, known, value_names(known))  # or it could never be loaded
    sums = {path.name: digest_of(path) for path in sorted(beside.iterdir())}
    write_whole(beside / MANIFEST, [json.dumps(sums).encode()])
    aside = [set_aside(place)] if place.exists() else []
    os.replace(beside, place)
    sync_folder(place.absolute().parent)
    own = [path for path in checkpoints_in(place.parent) if steps_of(path) <= steps_of(place)]
    aside += [set_aside(old) for old in own[:-keep]]
    for old in aside:
        shutil.rmtree(old)


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
    name and that of the one before it, and nothing is loaded; so are ranks that do not find the same one. No code in a
    file is run: see `pickled_values` for the kinds of values that are read.

    Args:
        folder: As for `save_checkpoint`.
        model: The model, sharded as it is to be.
        optimizer: Its optimizer.
        step: Which checkpoint. Default: the newest.
        **others: All else that was saved, by the same names.

    Examples:
        >>> model = torch.nn.Linear(8, 4)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> gs.load_checkpoint("job", model, optimizer)
        100
    """
    from torch.distributed.checkpoint.state_dict import set_state_dict
    from torch.distributed.checkpoint.state_dict_loader import load

    from glideslope.optim.pickled_metadata import Planner, Reader

    agree("load_checkpoint", {"step": repr(step)})
    if step is not None:
        check_whole_number("step", step, least=0)
    with failing_together(OSError, f"the checkpoints in {str(folder)!r} cannot be listed"):
        found = [path for path in checkpoints_in(folder) if step is None or steps_of(path) <= step]
    newest = found[-1] if found and step in (None, steps_of(found[-1])) else None
    agree("load_checkpoint", {f"the checkpoint found in {str(folder)!r}": newest.name if newest else "none"})
    if newest is None:
        if step is not None:
            raise ValueError(f"{str(folder)!r} has no checkpoint of step {step}")
        return 0
    known = checked_metadata(newest, found[-2] if len(found) > 1 else None)
    failure = f"checkpoint {str(newest)!r} cannot be loaded"
    with failing_together(ValueError, failure), quietly():
        for name, other in others.items():
            held = any(key.startswith(f"others.{name}.memory.") for key in known.state_dict_metadata)
            if held and isinstance(other, GradientMemory):
                other._allocate()
        state = state_of(model, optimizer, others)
    with failing_together(ValueError, failure), quietly():
        load(state, storage_reader=Reader(newest, known), planner=Planner())
    with quietly():
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    for name, other in others.items():
        other.load_state_dict(state["others"][name])
    return steps_of(newest)


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
    """The complete checkpoints of a folder, oldest first; anything else in it is left alone."""
    place = Path(folder)
    found = [path for path in place.iterdir() if COMPLETE.fullmatch(path.name)] if place.is_dir() else []
    return sorted((path for path in found if path.is_dir()), key=steps_of)


def steps_of(place: Path) -> int:
    """The steps done when a checkpoint was written, from its name."""
    return int(place.name.partition("-")[2])


def checked_metadata(place: Path, before: Path | None) -> Metadata:
    """The metadata of a checkpoint, or a ValueError on every rank unless every file is what was written and is safe.

    Each rank reads its share of the files, and of the entries that are not tensors.
    """
    from glideslope.optim.pickled_metadata import check_stored_values, read_metadata, value_names

    rank, ranks = rank_and_ranks()
    problem = None
    try:
        expected = read_manifest(place)
        for name in sorted(expected)[rank::ranks]:
            if not (place / name).is_file() or digest_of(place / name) != expected[name]:
                raise ValueError(f"{name!r} is not the file that was written")
        known = read_metadata(place, expected)
        check_stored_values(place, known, value_names(known)[rank::ranks])
    except Exception as error:
        problem = str(error) or type(error).__name__
    problems = [text for text in gathered(problem) if text is not None]
    if problems:
        way_out = f"Go on from the one before it: step={steps_of(before)}" if before else "There is none before it"
        raise ValueError(f"checkpoint {str(place)!r} cannot be loaded: {problems[0]}. {way_out}")
    return known


def read_manifest(place: Path) -> dict[str, str]:
    """The checksums of a checkpoint by name; a ValueError unless they are those of the files in its folder."""
    sums = None
    with contextlib.suppress(ValueError, RecursionError):
        sums = json.loads((place / MANIFEST).read_bytes()) if (place / MANIFEST).is_file() else None
    if not isinstance(sums, dict) or not all(isinstance(digest, str) for digest in sums.values()):
        raise ValueError(f"{MANIFEST!r} is missing or is not the file that was written")
    if not sums:
        raise ValueError(f"{MANIFEST!r} names no file")
    extra = sorted({path.name for path in place.iterdir()} - {MANIFEST, *sums})
    if extra:
        raise ValueError(f"{MANIFEST!r} is not that of this folder: {extra[0]!r} is not named in it")
    foreign = [name for name in sums if Path(name).name != name]
    if foreign:
        raise ValueError(f"{foreign[0]!r} is not the file that was written")
    return sums


def set_aside(place: Path) -> Path:
    """Rename a checkpoint that is to be deleted: it is whole or gone whenever the process dies."""
    gone = place.with_name(place.name + ".old.part")
    os.replace(place, gone)
    return gone


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Without the warnings of torch.distributed.checkpoint about there being one process, and about its own insides."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
