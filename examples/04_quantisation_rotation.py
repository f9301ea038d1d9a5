"""A learned rotation that lowers the int4 error of a weight matrix with outliers, as SpinQuant does in language models.

For an orthogonal R, (W R)(Rᵀ x) = W x: the rotation changes nothing but what is rounded. A few large channels of W
force a coarse grid on every row; a random rotation spreads them out, and a learned one does better. R is trained
through the rounding, whose result Q is held fixed in the gradient of ‖W R - Q‖².
"""

import torch

import glideslope as gs

ROWS, N, STEPS = 256, 128, 300
generator = torch.Generator().manual_seed(0)
W = torch.randn(ROWS, N, generator=generator)
W[:, torch.randperm(N, generator=generator)[:4]] *= 15  # four outlier channels


def int4(M):
    scale = M.detach().abs().amax(dim=1, keepdim=True) / 7  # one grid per row, -7 ... 7
    return (M / scale).round() * scale


def error(R):
    return ((W @ R - int4(W @ R)).norm() / W.norm()).item()


R = torch.nn.Parameter(gs.random_stiefel(N, N, generator=generator))
without, at_random = error(torch.eye(N)), error(R.detach())
optimizer = gs.LandingAdam([R], lr=1e-3)
for step in range(1, STEPS + 1):
    rotated = W @ R
    loss = (rotated - int4(rotated).detach()).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step}  int4 error {error(R.detach()):.4f}")

with torch.no_grad():
    R.copy_(gs.project(R))  # exact, before Rᵀ is merged into the layer in front
print(f"without rotation {without:.4f}")
print(f"random rotation {at_random:.4f}")
print(f"learned rotation {error(R.detach()):.4f}")
print(f"distance {gs.formulas.distance(R.detach()).item():.1e}")
