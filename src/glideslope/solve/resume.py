"""What a checkpoint of a run holds: all that a step reads and a step has changed, so that the next one is the same."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

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
