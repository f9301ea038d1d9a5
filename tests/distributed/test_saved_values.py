"""Kinds of values in checkpoints of training jobs: what honest jobs save loads as it was, and nothing else is read."""

import collections
import copy
import datetime
import random

import numpy as np
import pytest
import torch
from distributed.jobs import Job
from distributed.planting import LR, plant_entry, saved, sign

import glideslope as gs


class Values:
    """Anything with a state_dict."""

    def __init__(self, **values):
        self.values = values

    def state_dict(self):
        return dict(self.values)

    def load_state_dict(self, values):
        self.values = values


def kinds_of_values():
    """Kinds of values that state_dicts hold; those in a list are pickled together."""
    now = datetime.datetime(2024, 5, 17, 12, 30, 1, 5, tzinfo=datetime.timezone.utc)
    return {
        "whole": 3,
        "large": 2**200,
        "negative": -1,
        "number": 0.1,
        "infinite": float("inf"),
        "complex": 1 + 2j,
        "flag": True,
        "nothing": None,
        "text": "täxt",
        "bytes": b"\x00\xff",
        "no bytes": b"",
        "bytearray": bytearray(b"ab"),
        "list": [1, [2.0, "three"], None],
        "tuple": (1, ("two", 3.0)),
        "set": {1, 2},
        "frozenset": frozenset({3}),
        "range": range(3, 9, 2),
        "ordered": collections.OrderedDict(b=1, a=2),
        "counter": collections.Counter("aab"),
        "default": collections.defaultdict(list, a=[1]),
        "dictionaries": (  # of which a tuple is pickled as a whole
            collections.defaultdict(int, a=1),
            collections.defaultdict(list, b=[collections.defaultdict(None)]),
            collections.OrderedDict(b=1, a={2: np.float32(3)}),
            collections.Counter("aab"),
        ),
        "tensor": torch.arange(6.0).reshape(2, 3),
        "tensors": [torch.ones(2), {"x": torch.zeros(1, dtype=torch.int64)}],
        "dtype": torch.bfloat16,
        "dtypes": [torch.float32, torch.device("cpu"), torch.Size([2, 3]), torch.strided],
        "rng": torch.Generator().manual_seed(3).get_state(),
        "python rng": random.Random(3).getstate(),
        "numpy rng": np.random.RandomState(3).get_state(),
        "numpy generator": np.random.default_rng(3).bit_generator.state,
        "numpy number": np.float64(0.1),
        "numpy numbers": [
            np.float32(2.5),
            np.int64(-3),
            np.bool_(True),
            np.complex64(1j),
            np.uint8(7),
            np.float16(0.5),
        ],
        "array": np.arange(6, dtype=np.int16).reshape(2, 3),
        "arrays": [
            np.asfortranarray(np.arange(6.0).reshape(2, 3)),
            np.arange(3, dtype=">f4"),
            np.zeros((0, 2)),
            np.array(4.0),
        ],
        "array type": np.dtype("float32"),
        "date": datetime.date(2024, 5, 17),
        "dates": [now, now.time(), datetime.timedelta(seconds=1.5), datetime.timezone(datetime.timedelta(hours=1))],
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return type(b) is np.ndarray and a.dtype.newbyteorder("=") == b.dtype and a.shape == b.shape and (a == b).all()
    if type(a) is not type(b):
        return False
    if isinstance(a, collections.defaultdict) and a.default_factory is not b.default_factory:
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def emptied(value):
    """A state to load into: the same structure where torch saves the parts one by one, with other values."""
    if isinstance(value, collections.abc.Mapping):
        blank = copy.copy(value)
        for key in value:
            blank[key] = emptied(value[key])
        return blank
    if isinstance(value, list) and any(isinstance(one, (dict, torch.Tensor)) for one in value):
        return [emptied(one) for one in value]
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else None


def test_all_kinds_of_values_that_state_dicts_hold_still_load(tmp_path):
    job = Job("whole")
    values = kinds_of_values()
    gs.save_checkpoint(tmp_path, 1, job.model, job.optimizer, values=Values(**values))
    found = Values(**emptied(kinds_of_values()))
    gs.load_checkpoint(tmp_path, job.model, job.optimizer, values=found)
    wrong = [name for name, value in values.items() if not same(value, found.values[name])]
    assert wrong == []
    array = found.values["array"]
    array += 1  # arrays may be written to


def test_an_optimizer_with_a_numpy_learning_rate_and_a_scheduler_goes_on(tmp_path):
    job = Job("whole")
    for group in job.optimizer.param_groups:
        group["lr"] = np.float64(0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(job.optimizer, 0.1, 10)
    job.optimizer.step()
    schedule.step()
    gs.save_checkpoint(tmp_path, 1, job.model, job.optimizer, schedule=schedule)
    other = Job("whole")
    again = torch.optim.lr_scheduler.OneCycleLR(other.optimizer, 0.2, 10)
    assert gs.load_checkpoint(tmp_path, other.model, other.optimizer, schedule=again) == 1
    assert again.state_dict() == schedule.state_dict()
    assert other.optimizer.param_groups[0]["lr"] == job.optimizer.param_groups[0]["lr"]


class Setting:
    """A class of a user's own."""

    def __init__(self, size=1):
        self.size = size


def test_a_class_of_ones_own_is_written_and_read_once_it_is_allowed(tmp_path):
    job = Job("whole")
    own, found = Values(own=Setting(3)), Values(own=None)
    with pytest.raises(OSError, match=r"not written: 'others\.values\.own' .*Setting.*add_safe_globals"):
        gs.save_checkpoint(tmp_path, 1, job.model, job.optimizer, values=own)
    assert gs.load_checkpoint(tmp_path, job.model, job.optimizer) == 0
    with torch.serialization.safe_globals([Setting, np.ndarray, collections.defaultdict]):
        before = set(torch.serialization.get_safe_globals())
        gs.save_checkpoint(tmp_path, 1, job.model, job.optimizer, values=own)
        gs.load_checkpoint(tmp_path, job.model, job.optimizer, values=found)
        assert set(torch.serialization.get_safe_globals()) == before, "what the user has allowed stays as it was"
    assert found.values["own"].size == 3
    with pytest.raises(ValueError, match=r"'others\.values\.own' .*Setting.*add_safe_globals"):
        gs.load_checkpoint(tmp_path, job.model, job.optimizer, values=found)


@pytest.mark.parametrize(
    "value",
    [
        np.array([None, "x"], dtype=object),
        np.array(["x"]),
        np.zeros(1, dtype=[("a", "f8")]),
        collections.deque([1]),
        Setting,
        len,
    ],
    ids=["objects", "texts", "fields", "deque", "class", "function"],
)
def test_what_is_not_on_the_list_is_neither_written_nor_read(tmp_path, value):
    job = Job("whole")
    with pytest.raises(OSError, match=r"not written: 'others\.values\.own' "):
        gs.save_checkpoint(tmp_path, 1, job.model, job.optimizer, values=Values(own=value))
    place = saved(tmp_path)
    plant_entry(place, LR, value)
    sign(place)
    with pytest.raises(ValueError, match=rf"cannot be loaded: '{LR}' "):
        job.load(tmp_path)
