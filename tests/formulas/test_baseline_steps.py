"""The literal steps of the baselines (for the landing step see tests/engine/test_production.py)."""

import literal
import torch
from literal import point_at_distance, random_matrix

import glideslope as gs


def test_the_steps_of_the_baselines_are_their_formulas(generator):
    X = point_at_distance(9, 4, 0.0, dtype=torch.complex128, generator=generator)
    G = random_matrix(9, 4, dtype=torch.complex128, generator=generator)
    moved = X - 0.1 * literal.skew(G @ X.mH) @ X
    U, _, Vh = torch.linalg.svd(moved, full_matrices=False)
    options = {"metric": "canonical", "retraction": "polar"}
    torch.testing.assert_close(gs.formulas.riemannian_step(X, G, step_size=0.1, **options), U @ Vh)
    far = 1.2 * X
    expected = far - 0.1 * (G + 3.0 * far @ literal.residual(far))
    torch.testing.assert_close(gs.formulas.penalty_step(far, G, step_size=0.1, penalty_weight=3.0), expected)
