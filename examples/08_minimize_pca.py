"""Principal components of data by minimize: minibatches and SAGA against the exact eigenvectors.

Minibatches with a constant step are cheap and stop improving on a plateau, where the batches disagree. SAGA remembers
N x p numbers, takes the disagreement away, and goes on to the optimum with the same step. The last run has no step
size at all: with the full gradient minimize finds its own. No run needs a QR or an SVD.
"""

import numpy as np

import glideslope as gs

SAMPLES, WIDTH, COMPONENTS = 5000, 100, 5
rng = np.random.default_rng(0)
directions = np.linalg.qr(rng.normal(size=(WIDTH, WIDTH)))[0]
scales = np.concatenate([np.linspace(2.0, 1.5, COMPONENTS), np.linspace(0.7, 0.1, WIDTH - COMPONENTS)])
data = rng.normal(size=(SAMPLES, WIDTH)) * scales @ directions.T
data -= data.mean(axis=0)

problem = gs.problems.PCA(data, COMPONENTS)
assert gs.check_gradient(problem)
exact = problem.optimum().X.numpy()  # by an eigendecomposition, to compare with

runs = {
    "minibatch": {"gradient": "minibatch", "step_size": 0.02, "batch_size": 50, "max_epochs": 30},
    "saga": {"gradient": "saga", "step_size": 0.02, "batch_size": 50, "max_epochs": 30},
    "auto": {},
}
for name, options in runs.items():
    solution = gs.minimize(problem, seed=1, **options)
    off = np.linalg.norm(solution.X - exact @ (exact.T @ solution.X))  # sine of the angles to the exact subspace
    print(f"{name}: {solution}")
    print(f"angle of {name} {off:.1e}")
    print(f"gradient norm of {name} {solution.gradient_norm:.1e}")
    print(f"distance of {name} {solution.distance:.1e}")
