"""Copy memory: a recurrent network with an orthogonal recurrent weight recalls ten symbols after a silence.

The input is ten random symbols of eight, BLANKS blanks and a cue; the target is blank until the cue, then the ten
symbols. Without memory the best mean loss is 10 ln 8 / (BLANKS + 20). The recurrent weight starts as rotations of pairs
of units and is trained by gs.LandingAdam: it stays orthogonal, and passes on what was seen without loss.
"""

import math

import torch
from torch import nn

import glideslope as gs

BLANKS, RECALL, SYMBOLS, UNITS, BATCH, STEPS = 20, 10, 8, 128, 32, 500
LENGTH = BLANKS + 2 * RECALL
BASELINE = RECALL * math.log(SYMBOLS) / LENGTH
torch.manual_seed(0)


def sample(batch):
    symbols = torch.randint(1, SYMBOLS + 1, (RECALL, batch))  # 0 is the blank, SYMBOLS + 1 the cue
    inputs, targets = torch.zeros(2, LENGTH, batch, dtype=torch.long)
    inputs[:RECALL], inputs[-RECALL], targets[-RECALL:] = symbols, SYMBOLS + 1, symbols
    return nn.functional.one_hot(inputs, SYMBOLS + 2).float(), targets


recurrent, readout = nn.RNN(SYMBOLS + 2, UNITS), nn.Linear(UNITS, SYMBOLS + 1)
model = nn.ModuleList([recurrent, readout])
angles = torch.rand(UNITS // 2) * math.pi / 2
generator = torch.block_diag(*(torch.tensor([[0, -angle], [angle, 0]]) for angle in angles))
with torch.no_grad():
    recurrent.weight_hh_l0.copy_(torch.matrix_exp(generator))
gs.orthogonalize_(model, nn.RNN)

optimizer = gs.LandingAdam(gs.param_groups(model), lr=0.01)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.02, STEPS)
for step in range(1, STEPS + 1):
    inputs, targets = sample(BATCH)
    loss = nn.functional.cross_entropy(readout(recurrent(inputs)[0]).flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
    if step % 100 == 0:
        print(f"step {step}  loss {loss.item():.4f}  (without memory {BASELINE:.4f})")

inputs, targets = sample(500)
with torch.no_grad():
    scores = readout(recurrent(inputs)[0])
recalled = (scores.argmax(-1) == targets)[-RECALL:].float().mean()
print(f"symbols recalled {recalled:.3f} (by chance {1 / SYMBOLS:.3f})")
print(f"loss {nn.functional.cross_entropy(scores.flatten(0, 1), targets.flatten()):.4f}")
print(f"distance {gs.orthogonality(model).largest_distance:.1e}")
