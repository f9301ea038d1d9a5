"""The step of one matrix on the CPU, where the numbers that belong to a matrix are Python floats.

The decisions are those of every other step, without a hundred operations on tensors of one entry. Memory, views and
constants are prepared once. Rare cases (a start outside the safe region, a gradient that is not finite or almost
normal) are left to `batch`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glideslope.engine.decision import (
    Plan,
    admissible_share,
    admissible_step,
    follows,
    plan_step,
    rounding_margin,
    trial_step,
)
from glideslope.engine.eigenvalues import upper_eigenvalue
from glideslope.engine.gradient import Factored, add_product_, cancelled_size
from glideslope.engine.point import cross_of, norm_of_square, slope_and_square
from glideslope.engine.products import LEAST_WORK, Pair, Workspace, gram_product, product
from glideslope.engine.rounding import drift_rate, product_precision, smallest_norm
from glideslope.engine.rule import StepOutcome, StepRule
from glideslope.formulas.field import tangent_coefficients
from glideslope.formulas.normal import inverse_square_root, newton_schulz_factor, newton_schulz_iterations
from glideslope.formulas.orthogonality import frobenius, subtract_identity_

# From this ratio n / p on, a Gram matrix of G and some p x p products cost less than a Gram matrix of the moved X.
TALL = 10
# A scalar product of n p numbers sums some n p / 64 of them in a row, and the margin is that of a sum of n + p.
SHORT_ROWS = 128
# Largest ratio of the terms of a moved X, which cancel, to X itself, in the norm ‖A‖_4² = ‖A^H A‖_F: rounding in its
# Gram matrix, computed term by term, grows with the square of that ratio.
LONGEST_TERMS = 3.0


def has_host_step(rule: StepRule) -> bool:
    """Whether a rule is known here: not the exact safeguard of landing, nor a normal step without any safeguard."""
    return rule.safeguard == "lemma" or rule.lands == (rule.safeguard is None)


def step_on_host(
    X: Tensor,
    G: Tensor | Factored,
    step_size: float | Tensor,
    rule: StepRule,
    out: Tensor | None,
    workspace: Workspace,
    active: Tensor | None,
    products: Pair | None,
) -> StepOutcome | None:
    """The step of one matrix from inside the safe region along a finite gradient; None in any other case."""
    prepared = workspace.prepared
    square = isinstance(G, Tensor) and rule.has_square_form(*X.shape)
    key = (X.shape, X.dtype, rule, square, product_precision())
    if not isinstance(prepared, HostStep) or prepared.key != key:
        if not isinstance(rule.attraction, str) and not 2 * rule.attraction < torch.finfo(X.dtype).max:
            return None  # a number that X's type does not have
        prepared = workspace.prepared = HostStep(X, rule, square, workspace)
    if active is not None and not active:
        return None
    return prepared.step(X, G, max(float(step_size), 0.0), out, products)


class HostStep:
    """Everything about the steps of one shape, type and rule that is the same in each.

    Args:
        X: An iterate.
        rule: The step's options.
        square: Whether F = (skew(G X^H) + λ (X X^H - I)) X, three products, is to be used.
        workspace: Its memory for the two products a step begins with.
    """

    def __init__(self, X: Tensor, rule: StepRule, square: bool, workspace: Workspace) -> None:
        n, p = X.shape
        self.key = (X.shape, X.dtype, rule, square, product_precision())
        self.rule, self.square, self.lands = rule, square, rule.lands
        pair = workspace.pair(X)
        assert pair is not None
        assert pair.both is not None
        self.Delta, self.C, self.pair = pair.gram, pair.cross, pair.both
        self.diagonal = self.Delta.diagonal()
        self.K, self.F = X.new_empty(p, p), X.new_empty(n, p)
        self.entries = self.F.view(-1)
        self.identity = torch.eye(p, dtype=X.dtype, device=X.device)
        # In the square form A = skew(G X^H) is skew to the last bit, so there is no drift.
        self.rate = 0.0 if square else drift_rate(X, rule.metric)
        self.margin = rounding_margin(X, rule)
        self.floor = smallest_norm(X)
        self.tiny, self.largest = torch.finfo(X.dtype).tiny, torch.finfo(X.dtype).max
        self.rounding = torch.finfo(X.dtype).eps
        self.by_grams = not self.lands and not square and n >= TALL * p and n * p * p >= LEAST_WORK
        self.H = X.new_empty(p, p) if self.by_grams else self.K

    def step(
        self, X: Tensor, G: Tensor | Factored, step_size: float, out: Tensor | None, products: Pair | None
    ) -> StepOutcome | None:
        """The step, or None where it is not for this path."""
        rule, Delta, C = self.rule, self.Delta, self.C
        if products is None:
            gram_product(X.mH if self.square else X, out=Delta)
            cross_of(X, G, square=self.square, out=C)
        elif products.gram is not Delta:
            Delta.copy_(products.gram)
            C.copy_(products.cross)
        self.diagonal.sub_(1)
        distance, size = frobenius(self.pair).tolist()
        drift = size * self.rate
        if isinstance(G, Factored):
            drift = float(cancelled_size(G, self.diagonal)) * self.rate
        if not distance <= rule.safe_radius or not size + drift < self.largest:
            return None
        plan = plan_step(distance, size, drift, rule, rule.reach - self.margin, step_size, self.tiny)
        if not follows(plan):
            return None
        if self.by_grams and isinstance(G, Tensor):
            outcome = self.step_by_grams(X, G, plan, distance, size, step_size, out)
            if outcome is not None:
                return outcome
        F = self.field(X, G, plan.share, plan.attraction)
        field_norm = self.field_norm()
        wanted = step_size * plan.scale
        certain, bound = self.bounds(plan, distance, field_norm)
        step = min(wanted, bound)
        if not step * field_norm * step * field_norm < self.largest:
            return None
        moved = torch.sub(X, F, alpha=step, out=X if self.lands and out is X else F)
        if not self.lands:
            E = subtract_identity_(gram_product(moved, out=self.K))
            share = 1.0 if step <= certain else self.share(E)
            if share < 1:
                step *= math.sqrt(share)
                E.lerp_(Delta, 1 - share)
                moved = torch.lerp(X, moved, math.sqrt(share), out=moved)
            moved = product(moved, self.normal_factor(E), out=out)
        elif out is not X:
            moved = moved.clone() if out is None else out.copy_(moved)
        return StepOutcome(moved, distance, step < wanted, False, False)

    def step_by_grams(
        self, X: Tensor, G: Tensor, plan: Plan, distance: float, size: float, step_size: float, out: Tensor | None
    ) -> StepOutcome | None:
        """The two-step variant in five products instead of six: neither field nor moved X are formed.

        The moved X is X (I - η K) - η G M, and its normal factor, p x p, goes into these coefficients. None where
        terms cancel so much that the Gram matrix would lose digits, or are not finite.
        """
        K, factor = tangent_coefficients(self.Delta, self.C, self.rule.metric, out=self.K)
        factor *= plan.share
        wanted, root = step_size * plan.scale, math.sqrt(len(K))
        if wanted * factor * size > LONGEST_TERMS * root:  # ‖C M‖_F is at most about ‖G M‖_4 p^¼
            return None
        K.mul_(factor)
        S = torch.add(self.Delta, self.identity)
        M = S * factor
        spread = M.mH @ (gram_product(G, out=self.H) @ M)
        slope, square = slope_and_square(self.Delta, K, self.C @ M, spread)
        field_norm = norm_of_square(square, (2 * factor * size) ** 2 + spread.diagonal().real.sum().item())
        if not field_norm < self.largest:
            return None
        certain, bound = self.bounds(plan, distance, field_norm)
        step = min(wanted, bound)
        if not step**2 * torch.linalg.vector_norm(spread).item() <= LONGEST_TERMS**2 * root:
            return None
        E = torch.sub(self.Delta, slope + slope.mH, alpha=step).add_(square, alpha=step**2)
        share = 1.0 if step <= certain else self.share(E)
        if share < 1:
            step *= math.sqrt(share)
            E = torch.sub(self.Delta, slope + slope.mH, alpha=step).add_(square, alpha=step**2)
        normal = self.normal_factor(E)
        moved = torch.mm(X, torch.addmm(normal, K, normal, alpha=-step), out=self.F)
        moved.addmm_(G, M @ normal, alpha=-step)
        return StepOutcome(moved.clone() if out is None else out.copy_(moved), distance, step < wanted, False, False)

    def field_norm(self) -> float:
        """‖F‖: of few columns by a scalar product, whose rounding the margin covers, at half the time of a norm."""
        if self.F.shape[1] > SHORT_ROWS:
            return frobenius(self.F).item()
        return math.sqrt(torch.vdot(self.entries, self.entries).real.item())

    def bounds(self, plan: Plan, distance: float, field_norm: float) -> tuple[float, float]:
        """How far a step along the scaled field is certainly safe, and how far it may try to go."""
        rule, field_norm = self.rule, max(field_norm, self.floor)
        if rule.safeguard is None:
            return math.inf, math.inf
        if not self.lands:
            return trial_step(plan, distance, field_norm, self.F.shape[1], rule, self.margin)
        bound: float = admissible_step(plan, distance, field_norm, rule.reach - self.margin)
        return bound, bound

    def share(self, E: Tensor) -> float:
        """The share r² of the tangent step's square that the eigenvalues of E = Y^H Y - I after it admit."""
        reach = self.rule.upper_reach - self.margin
        before = upper_eigenvalue(self.Delta, 0.5 * reach).item()
        growth = upper_eigenvalue(E - self.Delta, reach - before, square=True).item()
        share: float = admissible_share(before, growth, reach)
        return share

    def normal_factor(self, E: Tensor) -> Tensor:
        """The factor that a moved X of Gram matrix I + E is multiplied with; E is overwritten."""
        if self.rule.normal_step != "polar":
            return newton_schulz_factor(E.add_(self.identity))
        error = frobenius(E).item() + self.margin
        iterations = max(1, newton_schulz_iterations(error, self.rounding)) if error < 0.5 else None
        return inverse_square_root(E.add_(self.identity), (1 + self.rule.safe_radius) / 2, iterations=iterations)

    def field(self, X: Tensor, G: Tensor | Factored, share: float, attraction: float) -> Tensor:
        """The scaled field in the fewest operations: factors go into the products, not into p x p matrices."""
        Delta, C, F = self.Delta, self.C, self.F
        K, factor = tangent_coefficients(Delta, C, self.rule.metric, square=self.square, out=self.K)
        factor *= share
        if self.lands:
            K.add_(Delta, alpha=attraction / factor)
        if self.square:
            return torch.addmm(F, K, X, beta=0, alpha=factor, out=F)
        torch.addmm(F, X, K, beta=0, alpha=factor, out=F)
        return add_product_(F, G, torch.add(Delta, self.identity, out=C), alpha=factor)
