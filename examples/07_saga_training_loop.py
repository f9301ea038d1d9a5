"""SAGA in a training loop: independent component analysis to convergence with a constant learning rate.

The sources are mixed by an orthogonal matrix, which is found by minimising the mean of log cosh over orthogonal X. The
batches are fixed, one slot of the memory each. Plain landing SGD ends on a plateau, where the batches disagree. One
line after backward(), saga.correct_(slot), takes the disagreement away, and both gradient and distance go to zero.
"""

import math

import torch

import glideslope as gs

N, SAMPLES, BATCH, EPOCHS, LR = 10, 10_000, 250, 40, 0.2
SLOTS = SAMPLES // BATCH
generator = torch.Generator().manual_seed(0)
uniform = torch.rand(SAMPLES, N, generator=generator, dtype=torch.float64) - 0.5
sources = -uniform.sign() * torch.log1p(-2 * uniform.abs()) / 2**0.5  # Laplace, of unit variance
mixing = gs.random_stiefel(N, N, generator=generator, dtype=torch.float64)
batches = (sources @ mixing.mT).split(BATCH)
start = gs.random_stiefel(N, N, generator=generator, dtype=torch.float64)


def loss_of(data, X):
    found = (data @ X).abs()
    return (found + torch.log1p(torch.exp(-2 * found)) - math.log(2)).sum(1).mean()  # log cosh, without overflow


def train(reduce_variance):
    X = torch.nn.Parameter(start.clone())
    optimizer = gs.LandingSGD([X], lr=LR)
    if reduce_variance:
        saga = gs.SAGA([X], slots=SLOTS)
        saga.start_(lambda slot: loss_of(batches[slot], X).backward())
        print(saga)
    for epoch in range(1, EPOCHS + 1):
        for slot in torch.randint(SLOTS, (SLOTS,), generator=generator).tolist():
            optimizer.zero_grad()
            loss_of(batches[slot], X).backward()
            if reduce_variance:
                saga.correct_(slot)
            optimizer.step()
        if epoch % 10 == 0:
            loss = loss_of(torch.cat(batches), X)
            gradient = gs.formulas.riemannian_gradient(X.detach(), torch.autograd.grad(loss, X)[0])
            print(f"epoch {epoch}  loss {loss.item():.6f}  gradient norm {gradient.norm().item():.1e}")
    return X.detach(), gradient.norm().item()


_, plateau = train(reduce_variance=False)
X, gradient_norm = train(reduce_variance=True)
print(f"gradient norm of SGD {plateau:.1e}")
print(f"gradient norm of SAGA {gradient_norm:.1e}")
print(f"distance {gs.formulas.distance(X).item():.1e}")
crosstalk = (mixing.mT @ X).abs().sort(dim=0).values[-2].max()  # 0 if every column is one source
print(f"crosstalk {crosstalk:.2f}")
