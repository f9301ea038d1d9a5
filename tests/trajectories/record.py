"""Summaries of all configurations: `python tests/trajectories/record.py` writes them to recorded.json.

Later versions are compared with that file by test_recorded.py. Record anew only where results are meant to change.
"""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

if __name__ == "__main__":  # a script has only its own folder on the path
    sys.path.insert(0, str(Path(__file__).parents[1]))

from trajectories.configurations import CONFIGURATIONS
from trajectories.runs import Inputs

RECORDED = Path(__file__).with_name("recorded.json")
TOLERANCE = {"float64": 1e-9, "complex128": 1e-9, "float32": 1e-4, "complex64": 1e-4, "bfloat16": 1e-2}
DIGITS = {"float64": 11, "complex128": 11, "float32": 7, "complex64": 7, "bfloat16": 5}
NUMBERS = 12
# Units of rounding that inputs are changed by, to see that a run does not amplify them to a share of the tolerance.
NUDGE, SHARE = 8.0, 0.5


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread inside the block, and as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def summary(name, nudge=0.0):
    """Type, projections of the final tensors, and counters of a configuration."""
    dtype, run = CONFIGURATIONS[name]
    with one_thread():
        tensors, counters = run(Inputs(dtype, nudge))
    return {
        "dtype": str(dtype).removeprefix("torch."),
        "tensors": {key: projected(values) for key, values in tensors.items()},
        "counters": counters,
    }


def projected(values):
    """At most 12 numbers that change when one of the values does."""
    flat = torch.as_tensor(values).detach()
    flat = (torch.view_as_real(flat) if flat.is_complex() else flat).double().flatten()
    if len(flat) <= NUMBERS:
        return flat.tolist()
    directions = torch.randn(NUMBERS, len(flat), generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    return (directions @ flat).tolist()


def differences(found, expected, share=1.0):
    """Where two summaries of a configuration differ by more than a share of the tolerance, in words."""
    if found["counters"] != expected["counters"]:
        yield f"counters {found['counters']}, recorded {expected['counters']}"
    if found["tensors"].keys() != expected["tensors"].keys():
        yield f"tensors {list(found['tensors'])}, recorded {list(expected['tensors'])}"
        return
    for key, numbers in expected["tensors"].items():
        now, then = (torch.tensor(one, dtype=torch.float64) for one in (found["tensors"][key], numbers))
        error = (now - then).norm().item() / then.norm().item() if now.shape == then.shape else float("nan")
        if not error <= share * TOLERANCE[expected["dtype"]]:
            yield f"{key} by {error:.1e} of its size, above {share * TOLERANCE[expected['dtype']]:.0e}"


def rounded(found):
    """A summary with as many digits as the comparison needs."""
    digits = DIGITS[found["dtype"]]
    tensors = {key: [float(f"{x:.{digits}g}") for x in numbers] for key, numbers in found["tensors"].items()}
    return {**found, "tensors": tensors}


def record():
    """Write recorded.json, unless a configuration amplifies rounding too much to be compared."""
    recorded, fragile = {}, []
    for name in CONFIGURATIONS:
        recorded[name] = rounded(summary(name))
        changed = "; ".join(differences(summary(name, NUDGE), recorded[name], SHARE))
        fragile += [f"{name}: {changed}"] if changed else []
    if fragile:
        sys.exit("\n".join(["Nothing written: rounding changes these runs. Give them fewer steps.", *fragile]))
    text = json.dumps(recorded, indent=1)
    text = re.sub(r"\[[^\[\]{}]+\]", lambda found: " ".join(found[0].split()), text)  # one line for each list
    RECORDED.write_text(text + "\n")
    print(f"{len(recorded)} configurations, {len(text) // 1000} kB")


if __name__ == "__main__":
    record()
