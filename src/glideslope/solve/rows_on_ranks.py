"""Runs of `minimize` whose X has its rows on many ranks: the first iterate, what cannot be asked for, checkpoints."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from glideslope.ranks.agreement import agree, gathered
from glideslope.ranks.columns import ColumnRanks
from glideslope.ranks.dtensors import is_sharded, local_part, placed
from glideslope.solve.checkpoint import Checkpoint, State, previous
from glideslope.solve.problem import Problem, RowSum
from glideslope.stiefel.geometry import gaussian_rows


def ranks_of(problem: Problem, X0: Any) -> ColumnRanks | None:
    """Where the rows of X are, None if in one place; a ValueError where X0, the problem or the ranks do not fit."""
    ranks = problem.rows.ranks if isinstance(problem, RowSum) else None
    if is_sharded(X0) and ranks is None:
        raise ValueError(
            "X0 is a DTensor, so the problem must be a sum over rows of data (gs.problems.PCA, ICA, Procrustes or a "
            "RowSum of your own) whose data are a DTensor with columns spread as the rows of X0"
        )
    if X0 is not None and ranks is not None and not is_sharded(X0):
        raise ValueError("the data are a DTensor, so X0 must be one too, placed as Shard(0); or leave it out")
    if ranks is not None:  # before the first sum, which would wait for ever for a rank with another p
        shape = problem.shape if X0 is None else tuple(X0.shape)
        words = {"the shape of X": str(shape), "the number of terms": str(problem.n_terms)}
        agree("minimize", words, ranks.groups)
    return ranks


def check_arguments(ranks: ColumnRanks, method: str, description: dict[str, Any]) -> None:
    """Raise a ValueError for what rows on many ranks do not have, or where the ranks were called differently."""
    if method != "landing":
        raise ValueError(f"rows on many ranks need method='landing', which is made of p x p sums; got {method!r}")
    words = {name: repr(value) for name, value in description.items()}
    agree("minimize", words, ranks.groups)


def first_rows(problem: Problem, ranks: ColumnRanks, X0: Any, seed: int) -> Tensor:
    """This rank's rows of X0, or of a random orthonormal matrix that is the same for any number of ranks."""
    if X0 is not None:
        if problem.shape is not None and tuple(X0.shape) != problem.shape:
            raise ValueError(f"X0 must have shape {problem.shape}; got {tuple(X0.shape)}")
        if X0.dtype != problem.dtype:
            raise ValueError(f"X0 must have the type of the data, {problem.dtype}; got {X0.dtype}")
        return local_part(placed(X0.detach(), ranks.mesh, ranks.placements)).clone().contiguous()
    if problem.shape is None:
        raise ValueError("the problem does not know its shape: give n_components, or X0")
    assert problem.dtype is not None
    n, p = problem.shape
    wide = torch.complex128 if problem.dtype.is_complex else torch.float64
    X = gaussian_rows(problem.geometry.held(n), p, seed, wide).to(problem.device or "cpu")
    return problem.geometry.orthonormal(X).to(problem.dtype)


class Together(Checkpoint):
    """The checkpoint of a run on many ranks: a file for each, `<path>.<rank>-of-<ranks>`, of the same step.

    A crash may leave some ranks one checkpoint further than others: the last step that all of them have counts.

    Args:
        path: What the names of the files begin with.
        every: Steps between two checkpoints. Default: 100, since the clocks of the ranks differ.
        description: The arguments a run must share with the one it resumes.
        ranks: The ranks.
    """

    def __init__(self, path: Any, every: int | None, description: dict[str, Any], ranks: ColumnRanks) -> None:
        (self.group,) = ranks.groups
        rank = torch.distributed.get_rank(self.group)
        super().__init__(f"{path}.{rank}-of-{ranks.n_ranks}", 100 if every is None else every, description)

    def resume(self) -> State | None:
        """The state to go on from, or None where not all ranks have one; a ValueError on all ranks if one has."""
        newest, found, error = self.path, {}, None
        try:
            for path in (newest, previous(newest)):
                self.path = path
                state = super().resume()
                if state is not None:
                    found[state["step"]] = state
        except ValueError as refused:
            error = str(refused)
        self.path = newest
        everyone = gathered((sorted(found), error), self.group)
        errors = [text for _, text in everyone if text is not None]
        if errors:
            raise ValueError(errors[0])
        common = set.intersection(*(set(steps) for steps, _ in everyone))
        if not common and any(steps for steps, _ in everyone):
            raise ValueError(
                f"checkpoint {str(newest)!r} and those of the other ranks have no step in common; they have "
                f"{[steps for steps, _ in everyone]}. Delete them to start anew"
            )
        self._last_step = max(common, default=0)
        return found[max(common)] if common else None
