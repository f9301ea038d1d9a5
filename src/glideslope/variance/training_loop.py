"""Variance reduction in a training loop: SAGA and SVRG rewrite `.grad` between backward() and an optimizer's step.

They write an estimate of the Euclidean gradient, of any parameters, for any optimizer: nothing here is of the manifold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from glideslope.variance.saga_and_svrg import mean_of_memory_, update_mean_, variance_reduced
from glideslope.variance.training_loop_memory import (
    GradientMemory,
    State,
    is_integer,
    numbers_of,
    readable_bytes,
    write_,
)


class SAGA(GradientMemory):
    r"""Gradient w_i (G - Φ_i) + Σ_j s_j Φ_j, then Φ_i <- G, with Φ_j the gradient last seen in slot j; Section 3.3.

    s_j is the share of slot j of all terms and w_i = slots · s_i (1 for equal slots). With slots drawn uniformly its
    expectation is the full gradient. Call `correct_` between backward() and the step of any optimizer.

    Without `start_`, gradients are left as they are and remembered until every slot has been seen. A gradient that is
    not finite, or is not in the type of the memory, leaves memory and mean of its parameter as they are.

    Args:
        params: Tensors, named parameters, or groups as from gs.param_groups; those without requires_grad are left out.
        slots: Number of slots: of fixed batches, or of single terms.
        sizes: Number of terms in each slot; None if they are equal.
        dtype: Type of the memory, e.g. torch.bfloat16; None for that of each parameter. The mean is float32 or wider.
        device: Device of the memory, e.g. "cpu"; None for that of each parameter, where the mean always is.

    Examples:
        >>> X = torch.nn.Parameter(gs.random_stiefel(20, 3))
        >>> optimizer, saga = gs.LandingSGD([X], lr=0.1), gs.SAGA([X], slots=10)
        >>> (X.sum() ** 2).backward(); saga.correct_(slot=0); optimizer.step()
    """

    def __init__(
        self,
        params: Any,
        slots: int,
        *,
        sizes: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        if not is_integer(slots, least=1):
            raise ValueError(f"SAGA: slots must be an integer >= 1; got {slots!r}")
        self.slots = int(slots)
        self.sizes = [1] * self.slots if sizes is None else list(sizes)
        if len(self.sizes) != self.slots or not all(is_integer(size, least=1) for size in self.sizes):
            raise ValueError(
                f"SAGA: sizes must be {self.slots} integers >= 1, one per slot; got {len(self.sizes)}: "
                f"{str(self.sizes)[:80]}"
            )
        self.sizes = [int(size) for size in self.sizes]
        terms = sum(self.sizes)
        self._shares = [size / terms for size in self.sizes]
        self._weights = [self.slots * size / terms for size in self.sizes]
        self._seen: set[int] = set()
        self._corrections = 0
        super().__init__(params, self.slots, dtype, device)

    def __repr__(self) -> str:
        size = readable_bytes(self.memory_bytes)
        return f"SAGA(slots={self.slots}, parameters={len(self._params)}, memory={size})"

    @torch.no_grad()
    def start_(self, gradients: Callable[[int], Any]) -> None:
        """Fill the memory by one pass at the present parameters; `.grad` is afterwards what it was.

        Args:
            gradients: gradients(i) does backward() of the loss of slot i, the mean over its terms.
        """
        self._allocate()
        with self._gradients_put_back():
            try:
                for slot in range(self.slots):
                    self._run(partial(gradients, slot))
                    found = dict(self._gradients())
                    agreed = self._finite_on_all_ranks(list(found.items()))
                    for k, memory in enumerate(self._memory):
                        row = memory.select(0, slot)
                        fresh = numbers_of(found[k]).to(row.device, row.dtype) if k in found else torch.zeros_like(row)
                        finite = agreed.get(k, torch.isfinite(fresh).all())
                        row.copy_(torch.where(finite.to(row.device), fresh, row))
                    self._seen.add(slot)
            finally:
                self._refresh_means()
        self._corrections = 0

    @torch.no_grad()
    def correct_(self, slot: int) -> None:
        """Replace `.grad`, the gradient of slot `slot`, by its variance-reduced estimate, in place; remember it."""
        if not is_integer(slot, least=0) or slot >= self.slots:
            raise ValueError(f"SAGA: slot must be an integer from 0 to {self.slots - 1}; got {slot!r}")
        found = self._gradients()
        self._allocate()
        reducing = len(self._seen) == self.slots
        agreed = self._finite_on_all_ranks(found)
        for k, grad in found:
            estimate = self._estimate(k, int(slot), grad, agreed.get(k))
            if reducing:
                write_(grad, estimate)
        self._seen.add(int(slot))
        self._corrections += 1
        if self._corrections % self.slots == 0:
            self._refresh_means()

    def load_state_dict(self, state: State) -> None:
        """Load what state_dict() returned, in the type and on the device of this object, or raise and change nothing.

        Into another type than the saved one, the mean is computed anew from the memory as it is now rounded.
        """
        self._check_keys(state, ("sizes", "seen", "corrections"))
        if list(state["sizes"]) != self.sizes:
            raise ValueError(
                f"SAGA: the state has {len(state['sizes'])} slots of sizes {str(state['sizes'])[:60]}; this object has "
                f"{self.slots} of sizes {str(self.sizes)[:60]}"
            )
        memory, means = self._loaded(state)
        seen, corrections = {int(slot) for slot in state["seen"]}, int(state["corrections"])
        if not seen <= set(range(self.slots)):
            raise ValueError(f"SAGA: the state has seen slot {max(seen)}; this object has slots 0 to {self.slots - 1}")
        same_type = [saved.dtype for saved in state["memory"]] == [saved.dtype for saved in memory]
        self._memory, self._means = memory, means
        self._seen, self._corrections = seen, corrections
        if not same_type:
            self._refresh_means()

    def state_dict(self) -> State:
        """The state as a dictionary of numbers, lists and tensors; the tensors are not copied."""
        return {
            **super().state_dict(),
            "sizes": list(self.sizes),
            "seen": sorted(self._seen),
            "corrections": self._corrections,
        }

    def _estimate(self, k: int, slot: int, grad: Tensor, agreed: Tensor | None) -> Tensor:
        """The estimate from a gradient of parameter k, which is then remembered if it is finite, on all ranks."""
        row, share, wide = self._memory[k].select(0, slot), self._shares[slot], self._wide[k]
        mean = self._means[k] = self._means[k].to(grad.device)
        fresh, old = numbers_of(grad).to(wide), row.to(grad.device, wide)
        change = fresh - old
        estimate = variance_reduced(mean, change, weight=self._weights[slot])
        # The mean follows the memory as it was rounded, so that the expectation stays exact.
        kept = fresh.to(row.dtype).to(wide)
        torch.sub(kept, old, out=change)
        finite = torch.isfinite(change).all() if agreed is None else agreed
        update_mean_(mean, torch.where(finite, change, 0.0), share=share)
        row.copy_(torch.where(finite, kept, old))
        return estimate

    def _refresh_means(self) -> None:
        """Compute the means anew, so that rounding of their updates does not accumulate."""
        for memory, mean, wide in zip(self._memory, self._means, self._wide, strict=True):
            total = torch.empty(mean.shape, dtype=wide, device=memory.device)
            mean.copy_(mean_of_memory_(total, zip(self._shares, memory.unbind(0), strict=True)))


class SVRG(GradientMemory):
    r"""Gradient ∇f_i(X) - ∇f_i(Y) + ∇f(Y) with an anchor Y, at which the full gradient ∇f(Y) is known.

    Call `anchor_` at the start and then at regular intervals, or with a small probability in each step (loopless SVRG),
    and `correct_` between backward() and the step of any optimizer.

    Args:
        params: Tensors, named parameters, or groups as from gs.param_groups; those without requires_grad are left out.
        dtype: Type of the anchor; None for that of each parameter. The full gradient is float32 or wider, and taken
            at the anchor as it was rounded.
        device: Device of the anchor, e.g. "cpu"; None for that of each parameter, where the full gradient always is.

    Examples:
        >>> X = torch.nn.Parameter(gs.random_stiefel(20, 3))
        >>> optimizer, svrg = gs.LandingSGD([X], lr=0.1), gs.SVRG([X])
        >>> svrg.anchor_(lambda: (X.sum() ** 2).backward())  # of all terms
        >>> (X.sum() ** 2).backward(); svrg.correct_(lambda: (X.sum() ** 2).backward()); optimizer.step()
    """

    def __init__(
        self, params: Any, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> None:
        super().__init__(params, 1, dtype, device)

    def __repr__(self) -> str:
        return f"SVRG(parameters={len(self._params)}, memory={readable_bytes(self.memory_bytes)})"

    @torch.no_grad()
    def anchor_(self, closure: Callable[[], Any]) -> None:
        """Make the present parameters the anchor; parameters and `.grad` are afterwards what they were.

        Args:
            closure: Does backward() of the full loss, the mean over all terms, in one or several calls.
        """
        anchor = [
            numbers_of(param).to(self._device or param.device, kept, copy=True).unsqueeze(0)
            for param, kept in zip(self._params, self._types, strict=True)
        ]
        full = self._gradients_at(anchor, closure)
        self._memory = anchor
        self._means = [
            torch.zeros(shape, dtype=wide, device=param.device)
            if grad is None
            else numbers_of(grad).to(wide, copy=True)
            for param, grad, shape, wide in zip(self._params, full, self._shapes, self._wide, strict=True)
        ]

    @torch.no_grad()
    def correct_(self, closure: Callable[[], Any]) -> None:
        """Replace `.grad`, the gradient of a batch, by its variance-reduced estimate, in place.

        The closure is run at the anchor. If it raises, parameters and `.grad` are what they were.

        Args:
            closure: Does backward() of the loss of the same batch.
        """
        if not self._memory:
            raise RuntimeError("SVRG: there is no anchor yet; call anchor_(closure of the full loss) before correct_")
        found = self._gradients()
        at_anchor = self._gradients_at(self._memory, closure)
        for k, grad in found:
            mean = self._means[k] = self._means[k].to(grad.device)
            base = at_anchor[k]
            change = numbers_of(grad).to(mean.dtype) - (0.0 if base is None else numbers_of(base))
            write_(grad, variance_reduced(mean, change, out=change))

    def load_state_dict(self, state: State) -> None:
        """Load what state_dict() returned, in the type and on the device of this object, or raise and change nothing.

        If that type is narrower than the saved one, anchor_ should be called soon: the anchor is no longer quite
        where the full gradient was taken.
        """
        self._check_keys(state, ())
        self._memory, self._means = self._loaded(state)

    def _gradients_at(self, anchor: list[Tensor], closure: Callable[[], Any]) -> list[Tensor | None]:
        """The gradients of a closure at the anchor."""
        present = [param.detach().clone() for param in self._params]
        with self._gradients_put_back():
            try:
                for param, values in zip(self._params, anchor, strict=True):
                    write_(param, values.squeeze(0))
                self._run(closure)
                self._gradients()
                return [param.grad for param in self._params]
            finally:
                for param, values in zip(self._params, present, strict=True):
                    param.copy_(values)
