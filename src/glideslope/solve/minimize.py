"""`minimize`: any method with any gradient source on any problem, with a history and a reason for stopping."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glideslope.engine.rule import StepRule
from glideslope.formulas.arguments import METRICS, REAL_TYPE, check_option, check_positive, check_whole_number
from glideslope.formulas.retraction import RETRACTIONS
from glideslope.ranks.columns import ColumnRanks
from glideslope.solve.checkpoint import Checkpoint
from glideslope.solve.history import Watch
from glideslope.solve.methods import METHODS, make_method
from glideslope.solve.problem import Problem, as_problem
from glideslope.solve.recognition import start_in_words
from glideslope.solve.rows_on_ranks import Together, check_arguments, first_rows, ranks_of
from glideslope.solve.run import Run
from glideslope.solve.search import Search
from glideslope.solve.solution import Record, Solution
from glideslope.solve.sources import SAMPLING, SOURCES, make_source
from glideslope.solve.step_sizes import Automatic, StepSize, step_size_of
from glideslope.stiefel.points import random_stiefel


@torch.no_grad()
def minimize(
    problem: Problem | Callable[[Tensor], Tensor],
    X0: Any = None,
    *,
    method: str = "landing",
    gradient: str = "full",
    step_size: StepSize = "auto",
    schedule: str | None = None,
    batch_size: int | None = None,
    sampling: str = "iid",
    attraction: float | str = "auto",
    safe_radius: float = 0.5,
    metric: str = "euclidean",
    normal_step: str = "landing",
    safeguard: str | None = "lemma",
    retraction: str = "qr",
    penalty_weight: float | None = None,
    max_epochs: float = 1000,
    max_seconds: float | None = None,
    tolerance: float = 1e-6,
    record_every: int | None = None,
    seed: int = 0,
    callback: Callable[[Record], object] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
) -> Solution:
    r"""Minimise f(X) = (1/N) Σ f_i(X) over matrices with X^H X = I.

    Args:
        problem: One of gs.problems, or a torch function of X.
        X0: First iterate, shape (n, p), torch or NumPy. Default: a random orthonormal matrix. Where the data are a
            DTensor with columns on many ranks, X0 and the solution are DTensors with their rows on the same ranks.
        method: "landing", "riemannian" (a retraction in every step) or "penalty" (f + λ N, section 3.4).
        gradient: "full", "minibatch", "saga" or "svrg".
        step_size: A number; a function of the step k = 0, 1, ...; "theory", the bound of the proposition where the
            problem knows its constants, for the paper's field (**gs.PAPER_OPTIONS); or "auto". For the full gradient:
            quasi-Newton steps (L-BFGS, which remembers 16 n p numbers) accepted by a non-monotone test, each ending on
            the manifold. For the other gradients: steps whose size follows from the angle between successive moves.
        schedule: With a number or "theory": "constant", "1/sqrt" (η_0 / sqrt(1+k)) or "1/sqrt(K)" (η_0 / sqrt(1+K)
            for all of the K steps to come). Default: "constant"; for "theory" with minibatches "1/sqrt".
        batch_size: Terms per step; for "saga" and "svrg" the size of the slots. Default: min(N, 128).
        sampling: "iid", as the propositions ask, or "shuffle": all terms in a new order in every pass.
        attraction: λ of the landing field, "auto" for 1/(2 step size); as `normal_step` and `safeguard` for
            method="landing" with a step size.
        safe_radius: ε of the safe region, from which "landing" and "riemannian" may start.
        metric: "euclidean", or "canonical", eq. (5); with "auto" only the norm of the gradient depends on it.
        normal_step: "landing", "newton-schulz" or "polar".
        safeguard: "lemma", eq. (14), "exact" or None.
        retraction: Of method="riemannian": "qr", "polar", "cayley" or "exponential".
        penalty_weight: λ > 0 of method="penalty".
        max_epochs: Passes over the data, counted in gradients of terms.
        max_seconds: Time limit, evaluation for the history not counted.
        tolerance: Stop when the gradient norm is at most this times ‖∇f(X0)‖_F, the norm of the whole Euclidean
            gradient at the start, and the distance at most this, or what rounding leaves of it (10 eps sqrt(p)).
        record_every: Steps between two records. Default: one pass; for the full gradient one step.
        seed: Of the random start and of the draws.
        callback: Called with every record (step, passes, seconds, value, gradient_norm, distance, step_size,
            shortened); a true result stops the run.
        progress: Show a line of progress on stderr.
        checkpoint: File to write the state of the run to, and to resume from where it exists: the solution is that of
            a run without a stop. The one before it is kept next to it. A file of other arguments, another X0 or another
            problem is refused; a problem is recognised by one evaluation next to X0, of a sum by 32 of its terms.
        checkpoint_every: Steps between two checkpoints. Default: one a minute.

    Returns:
        The best point met, with its value, gradient norm and distance, why the run stopped, what to try next, and
        the history. Ctrl-C ends a run with stop reason "interrupted" and loses nothing; a second one, while the run
        stops or in a run that follows within 2 seconds, raises KeyboardInterrupt.

    Examples:
        >>> A = torch.diag(torch.arange(1.0, 11.0))
        >>> solution = gs.minimize(lambda X: (X * (A @ X)).sum(), gs.random_stiefel(10, 2))
        >>> round(solution.value, 3)  # the two smallest eigenvalues, 1 + 2
        3.0
    """
    check_option("method", method, METHODS)
    check_option("gradient", gradient, SOURCES)
    check_option("sampling", sampling, SAMPLING)
    check_option("metric", metric, METRICS)
    check_option("retraction", retraction, tuple(RETRACTIONS))
    check_positive(max_epochs=max_epochs)
    if max_seconds is not None:
        check_positive(max_seconds=max_seconds)
    rule = StepRule(attraction, safe_radius, metric, normal_step, safeguard)
    if not tolerance >= 0:
        raise ValueError(f"tolerance must be >= 0; got {tolerance!r}")
    if record_every is not None:
        check_whole_number("record_every", record_every, least=1)
    problem = as_problem(problem)
    if gradient != "full" and problem.n_terms == 1:
        raise ValueError(
            f"gradient={gradient!r} needs a sum of terms; a function of X is one term. "
            "Give gs.problems.FiniteSum(function, n_terms) or use gradient='full'"
        )
    check_effect(rule, method, gradient, step_size, schedule, retraction, penalty_weight)
    ranks = ranks_of(problem, X0)
    X = first_iterate(problem, X0, seed) if ranks is None else first_rows(problem, ranks, X0, seed)
    if method != "penalty":
        check_first_iterate(problem.geometry.distance(X), X, safe_radius)
    batch = checked_batch_size(batch_size, problem.n_terms, gradient)
    source = make_source(gradient, problem, batch_size=batch, sampling=sampling, seed=seed)
    steps_per_pass = 1 if gradient == "full" else source.n_slots
    watch = Watch(
        problem,
        penalty_weight,
        metric,
        tolerance,
        record_every=record_every or steps_per_pass,
        callback=callback,
        progress=progress,
    )
    n_steps = round(max_epochs * steps_per_pass)
    problem.begin()
    description = {
        "problem": type(problem).__name__,
        "terms": problem.n_terms,
        "shape": tuple(X.shape),
        "dtype": str(X.dtype),
        "method": method,
        "gradient": gradient,
        "step_size": "a function" if callable(step_size) else str(step_size),
        "schedule": f"{schedule} with K = {n_steps}" if schedule == "1/sqrt(K)" else schedule,
        "batch_size": batch,
        "sampling": sampling,
        "rule": rule.options,
        "retraction": retraction,
        "penalty_weight": penalty_weight,
        "seed": int(seed),
    }
    if ranks is not None:
        called = {
            "max_epochs": max_epochs,
            "tolerance": tolerance,
            "record_every": record_every,
            "every": checkpoint_every,
        }
        given = {"callback": callback is not None, "max_seconds": max_seconds is not None, "checkpoint": checkpoint}
        description |= {"shape": (ranks.n_columns, X.shape[1]), "ranks": ranks.n_ranks}
        check_arguments(ranks, method, {**description, **called, **given})
    if checkpoint is not None:
        description["X0"] = start_in_words(X, X0 is not None)
    saved = checkpoint_of(checkpoint, checkpoint_every, description, ranks)
    run = Run(X, source, watch, steps_per_pass, max_passes=max_epochs, max_seconds=max_seconds, checkpoint=saved)
    if step_size == "auto" and gradient == "full":
        search = Search(
            problem,
            X,
            method=method,
            metric=metric,
            retraction=retraction,
            penalty_weight=penalty_weight,
        )
        solution = run.search(search)
    elif step_size == "auto":
        mover = make_method(method, X, rule, problem.geometry, retraction, penalty_weight)
        automatic = Automatic(mover, X, problem.geometry, gradient, source.n_slots, metric, penalty_weight)
        solution = run.iterate(automatic, automatic.step_size_at)
    else:
        step_size_at = step_size_of(
            step_size,
            schedule,
            problem,
            method=method,
            gradient=gradient,
            n_slots=source.n_slots,
            n_steps=n_steps,
            rule=rule,
        )
        mover = make_method(method, X, rule, problem.geometry, retraction, penalty_weight)
        solution = run.iterate(mover, step_size_at)
    if ranks is not None:
        solution.X = ranks.spread(solution.X, (ranks.n_columns, solution.X.shape[1]))
    if problem.from_numpy or isinstance(X0, np.ndarray):
        solution.X = solution.X.cpu().numpy()
    return solution


def check_effect(
    rule: StepRule,
    method: str,
    gradient: str,
    step_size: StepSize,
    schedule: str | None,
    retraction: str,
    penalty_weight: float | None,
) -> None:
    """Raise a ValueError for an option that this run would ignore, or one that it lacks."""
    if step_size == "auto" and schedule is not None:
        raise ValueError("step_size='auto' has no schedule")
    if method == "penalty":
        if penalty_weight is None:
            raise ValueError("method='penalty' needs penalty_weight > 0; got None")
        check_positive(penalty_weight=penalty_weight)
    elif penalty_weight is not None:
        raise ValueError(f"penalty_weight={penalty_weight!r} needs method='penalty'; got method={method!r}")
    if method != "riemannian" and retraction != "qr":
        raise ValueError(f"retraction={retraction!r} needs method='riemannian'; got method={method!r}")
    if method == "landing" and (step_size != "auto" or gradient != "full"):
        return
    needed = "a number, a function or 'theory' as step_size; with the full gradient 'auto' lands by itself"
    if method != "landing":
        needed = f"method='landing'; got method={method!r}"
    default = StepRule()
    for name in ("attraction", "normal_step", "safeguard"):
        if getattr(rule, name) != getattr(default, name):
            raise ValueError(f"{name}={getattr(rule, name)!r} has no effect: it needs {needed}. Leave it out")


def checkpoint_of(
    path: Any, every: int | None, description: dict[str, Any], ranks: ColumnRanks | None
) -> Checkpoint | None:
    """Where a run keeps its state, if it does."""
    if path is not None:
        return Checkpoint(path, every, description) if ranks is None else Together(path, every, description, ranks)
    if every is not None:
        raise ValueError(f"checkpoint_every={every!r} needs checkpoint, the file to write; got checkpoint=None")
    return None


def first_iterate(problem: Problem, X0: Any, seed: int) -> Tensor:
    """A copy of X0 as a tensor of the problem's type, or a random orthonormal matrix."""
    if X0 is None:
        if problem.shape is None:
            raise ValueError("the problem does not know its shape: give X0, e.g. gs.random_stiefel(n, p)")
        generator = torch.Generator().manual_seed(seed)
        wide = problem.dtype or torch.get_default_dtype()
        return random_stiefel(*problem.shape, generator=generator, dtype=wide).to(problem.device or "cpu")
    if not isinstance(X0, (Tensor, np.ndarray)):
        instead = ": give its X" if isinstance(X0, Solution) else ""
        raise ValueError(f"X0 must be a torch tensor or a NumPy array; got {type(X0).__name__}{instead}")
    X = torch.from_numpy(X0.copy()) if isinstance(X0, np.ndarray) else X0.detach().clone()
    X = X.contiguous()
    if X.ndim != 2 or X.shape[0] < X.shape[1] or (problem.shape is not None and tuple(X.shape) != problem.shape):
        wanted = "(n, p) with n >= p" if problem.shape is None else str(problem.shape)
        raise ValueError(f"X0 must have shape {wanted}; got {tuple(X.shape)}")
    if problem.dtype not in (None, X.dtype):
        raise ValueError(f"X0 must have the type of the data, {problem.dtype}; got {X.dtype}")
    if X.dtype not in REAL_TYPE:
        raise ValueError(f"X0 must be {', '.join(str(dtype)[6:] for dtype in REAL_TYPE)}; got {X.dtype}")
    if not bool(torch.isfinite(X).all()):
        raise ValueError("X0 must be finite")
    return X.to(problem.device) if problem.device is not None else X


def check_first_iterate(far: float, X: Tensor, safe_radius: float) -> None:
    """Raise a ValueError for a start outside the safe region, by more than rounding."""
    if far > safe_radius + 4 * torch.finfo(X.dtype).eps * X.shape[1] ** 0.5:
        raise ValueError(
            f"X0 is at distance ‖X^H X - I‖ = {far:.2g}, beyond {safe_radius:g}. "
            "Pass gs.project(X0) for the nearest orthonormal matrix"
        )


def checked_batch_size(batch_size: int | None, n_terms: int, gradient: str) -> int:
    """The batch size. Default: min(N, 128); N for the full gradient."""
    if batch_size is None:
        return n_terms if gradient == "full" else min(n_terms, 128)
    if gradient == "full":
        raise ValueError("batch_size goes with gradient='minibatch', 'saga' or 'svrg', not with 'full'")
    check_whole_number("batch_size", batch_size, least=1, most=n_terms, most_is="the terms")
    return batch_size
