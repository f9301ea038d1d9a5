"""Free parameters: torch's own SGD and AdamW, called with this package's groups and state."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw
from torch.optim.sgd import sgd

State = dict[str, Any]


def sgd_step(params: list[Tensor], grads: list[Tensor], states: list[State], group: dict[str, Any]) -> None:
    """One step of torch.optim.SGD."""
    buffers = [state.get("momentum_buffer") for state in states]
    sgd(
        params,
        grads,
        buffers,
        has_sparse_grad=any(grad.is_sparse for grad in grads),
        foreach=group["foreach"],
        weight_decay=group["weight_decay"],
        momentum=group["momentum"],
        lr=group["lr"],
        dampening=group["dampening"],
        nesterov=group["nesterov"],
        maximize=group["maximize"],
    )
    if group["momentum"]:
        for state, buffer in zip(states, buffers, strict=True):
            state["momentum_buffer"] = buffer


def adamw_step(params: list[Tensor], grads: list[Tensor], states: list[State], group: dict[str, Any]) -> None:
    """One step of torch.optim.AdamW."""
    for state, param in zip(states, params, strict=True):
        if "step" not in state:
            # On the parameter's device, so that a CUDA graph sees it change.
            device = param.device if param.device.type == "cuda" else "cpu"
            state["step"] = torch.zeros((), dtype=torch.float32, device=device)
            state["exp_avg"] = torch.zeros_like(param, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(param, memory_format=torch.preserve_format)
    adamw(
        params,
        grads,
        [state["exp_avg"] for state in states],
        [state["exp_avg_sq"] for state in states],
        [],
        [state["step"] for state in states],
        foreach=group["foreach"],
        capturable=params[0].device.type == "cuda",
        has_complex=any(param.is_complex() for param in params),
        amsgrad=False,
        beta1=group["betas"][0],
        beta2=group["betas"][1],
        lr=group["lr"],
        weight_decay=group["weight_decay"],
        eps=group["eps"],
        maximize=group["maximize"],
    )
