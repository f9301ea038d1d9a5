"""The method that quasi-Newton steps replace, as a literal reference: Barzilai-Borwein steps with polar factors."""

import torch


def evaluations_of_barzilai_borwein(function, X, *, reduction, most=20_000):
    """Evaluations of f and its gradient until the norm of the Riemannian gradient has fallen by a factor.

    Alternating long and short steps, accepted by the same non-monotone test as the steps of `minimize`.
    """
    count = 0

    def evaluate(X):
        nonlocal count
        count += 1
        point = X.clone().requires_grad_()
        value = function(point)
        (G,) = torch.autograd.grad(value, point)
        C = X.mH @ G
        return float(value.detach()), G - X @ (C + C.mH) / 2

    value, T = evaluate(X)
    goal = reduction * T.norm()
    reference, weight, step, odd = value, 1.0, 0.1 / float(T.norm()), False
    while T.norm() > goal and count < most:
        slope = float(T.norm()) ** 2
        while True:
            left, _, right = torch.linalg.svd(X - step * T, full_matrices=False)
            trial, (trial_value, trial_T) = left @ right, evaluate(left @ right)
            if trial_value <= reference - 1e-4 * step * slope + 1e-14 * abs(reference):
                break
            step /= 4
        s, y = trial - X, trial_T - T
        along = abs(float((s * y).sum()))
        step = float((s * s).sum()) / along if odd else along / float((y * y).sum())
        odd = not odd
        X, value, T = trial, trial_value, trial_T
        reference, weight = (0.85 * weight * reference + value) / (0.85 * weight + 1), 0.85 * weight + 1
    return count if count < most else most
