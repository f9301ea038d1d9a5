"""A convolutional network for scikit-learn's 8 x 8 digits whose kernels, flattened to out x (in · 9), stay orthonormal.

The model is an ordinary one: `gs.orthogonalize_` chooses its convolutions, `gs.param_groups` tells the optimizer which
parameters are constrained and which are free, and the rest of the loop is what it would be with torch.optim.SGD.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import glideslope as gs

EPOCHS, BATCH, TEST = 6, 64, 360
torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 8 - 1
labels = torch.tensor(digits.target)
order = torch.randperm(len(images))
test, train = order[:TEST], order[TEST:]

model = nn.Sequential(
    nn.Conv2d(1, 12, 3, padding=1),  # 12 x 9: tall, so its columns are orthonormal
    nn.ReLU(),
    nn.Conv2d(12, 24, 3, padding=1),  # 24 x 108: wide, so its rows are
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(24, 48, 3, padding=1),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(192, 10),
)
gs.orthogonalize_(model, nn.Conv2d)
optimizer = gs.LandingSGD(gs.param_groups(model), lr=0.1, momentum=0.9)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)

for epoch in range(1, EPOCHS + 1):
    total = 0.0
    for batch in train[torch.randperm(len(train))].split(BATCH):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch)
    scheduler.step()
    print(f"epoch {epoch}  training loss {total / len(train):.4f}")

print(gs.orthogonality(model))
distance = gs.orthogonality(model).largest_distance  # as trained
gs.project_(model)  # exact, for evaluation or export; the state_dict is that of a plain model
with torch.no_grad():
    accuracy = (model(images[test]).argmax(1) == labels[test]).float().mean().item()
print(f"test accuracy {accuracy:.3f}")
print(f"distance {distance:.1e}")
