"""A low-rank adapter with orthonormal factors: a frozen layer plus U diag(s) Vᵀ, trained by AdamW with landing.

U and V stay orthonormal and s is free, so the adapter is its own singular value decomposition: its rank and size can be
read from s. The task differs from the frozen layer by an update of rank 4; the adapter may use rank 8.
"""

import torch
from torch import nn

import glideslope as gs

FEATURES, RANK, TRUE_RANK, BATCH, STEPS = 128, 8, 4, 64, 1000
torch.manual_seed(0)


class OrthonormalAdapter(nn.Module):
    """A frozen linear layer plus U diag(s) Vᵀ."""

    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.U = nn.Parameter(gs.random_stiefel(layer.out_features, rank))
        self.V = nn.Parameter(gs.random_stiefel(layer.in_features, rank))
        self.s = nn.Parameter(torch.zeros(rank))

    def forward(self, x):
        """Rows x of the batch through the layer and the adapter."""
        return self.layer(x) + ((x @ self.V) * self.s) @ self.U.mT


layer = nn.Linear(FEATURES, FEATURES)
true_sizes = torch.tensor([2.0, 1.5, 1.0, 0.5])
shift = gs.random_stiefel(FEATURES, TRUE_RANK) * true_sizes @ gs.random_stiefel(FEATURES, TRUE_RANK).mT

model = OrthonormalAdapter(layer, RANK)
gs.orthogonalize_(model, ["U", "V"])
optimizer = torch.optim.AdamW([model.U, model.V, model.s], lr=0.03, weight_decay=0)
gs.attach_landing(optimizer, [model.U, model.V])
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
for step in range(1, STEPS + 1):
    x = torch.randn(BATCH, FEATURES)
    loss = (model(x) - layer(x) - x @ shift.mT).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 200 == 0:
        print(f"step {step}  loss {loss.item():.1e}")

print("singular values of the update:", *(f"{size:.2f}" for size in model.s.abs().sort(descending=True).values))
update = (model.U * model.s) @ model.V.mT
print(f"relative error of the update {(update - shift).norm() / shift.norm():.1e}")
print(f"distance {gs.orthogonality(model).largest_distance:.1e}")
