"""Unitary matrix learning: recover an unknown unitary map from noisy inputs and outputs, in complex arithmetic.

Complex parameters need nothing special: the constraint is X^H X = I, and the gradient is the one torch gives.
"""

import torch

import glideslope as gs

N, PAIRS, BATCH, STEPS = 32, 2000, 50, 600
generator = torch.Generator().manual_seed(0)
truth = gs.random_stiefel(N, N, generator=generator, dtype=torch.complex64)
inputs = torch.randn(PAIRS, N, generator=generator, dtype=torch.complex64)
noise = 0.01 * torch.randn(PAIRS, N, generator=generator, dtype=torch.complex64)
outputs = inputs @ truth.mT + noise

X = torch.nn.Parameter(gs.random_stiefel(N, N, generator=generator, dtype=torch.complex64))
optimizer = gs.LandingSGD([X], lr=0.2, momentum=0.5)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.02, STEPS)
for step in range(1, STEPS + 1):
    batch = torch.randint(PAIRS, (BATCH,), generator=generator)
    loss = (inputs[batch] @ X.mT - outputs[batch]).abs().square().sum() / BATCH
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 100 == 0:
        error = (X.detach() - truth).norm() / truth.norm()
        print(f"step {step}  loss {loss.item():.1e}  error {error:.1e}")

print(f"error {(X.detach() - truth).norm() / truth.norm():.1e}")
print(f"distance {gs.formulas.distance(X.detach()).item():.1e}")
