"""What is trained on ranks and, to compare with, in one piece: bare matrices, and a small network."""

import torch
from torch import nn
from torch.distributed.tensor import DTensor

import glideslope as gs
from glideslope.ranks.dtensors import placed

STEPS = 50
# Shape, dimension that is sharded, complex: rows unevenly, a wide matrix on the right and on the wrong side, a batch.
MATRICES = [
    ((37, 5), 0, False),
    ((4, 24), 1, False),
    ((4, 22), 0, False),
    ((6, 7, 3), 0, False),
    ((3, 9, 2), 1, False),
    ((3, 3), 0, False),
    ((11, 3), 0, True),
]

OPTIMIZERS = {
    "sgd": lambda params, **o: gs.LandingSGD(params, lr=0.1, **o),
    "momentum": lambda params, **o: gs.LandingSGD(params, lr=0.05, momentum=0.9, nesterov=True, **o),
    "exact": lambda params, **o: gs.LandingSGD(params, lr=0.05, safeguard="exact", metric="euclidean", **o),
    "newton-schulz": lambda params, **o: gs.LandingSGD(
        params, lr=0.1, momentum=0.5, dampening=0.1, normal_step="newton-schulz", **o
    ),
    "adam": lambda params, **o: gs.LandingAdam(params, lr=0.02, **o),
    "attached": lambda params, **o: attached(params, **o),
}


def attached(params, **options):
    params = list(params)
    tensors = [one for entry in params for one in (entry["params"] if isinstance(entry, dict) else [entry])]
    tensors = [one[1] if isinstance(one, tuple) else one for one in tensors]
    return gs.attach_landing(torch.optim.AdamW(tensors, lr=0.02), params, **options)


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def start(shape, dtype, seed):
    *batch, rows, columns = shape
    X = gs.random_stiefel(max(rows, columns), min(rows, columns), batch=batch, dtype=dtype, generator=seeded(seed))
    return (X if rows >= columns else X.mT).contiguous()


def starts(dtype):
    complex_type = {torch.float32: torch.complex64, torch.float64: torch.complex128}[dtype]
    return [start(shape, complex_type if is_complex else dtype, i) for i, (shape, _, is_complex) in enumerate(MATRICES)]


def gradient_at(i, param, step):
    """The gradient of <B, X> + ½ ‖X‖² weighted by rows, with noise of the step; spread as the parameter is."""
    shape, dtype = tuple(param.shape), param.dtype
    noise = torch.randn(shape, dtype=dtype, generator=seeded(1000 * i + step))
    B = torch.randn(shape, dtype=dtype, generator=seeded(77 + i))
    weights = torch.linspace(0.5, 2, shape[-2], dtype=dtype).unsqueeze(-1).expand(shape).contiguous()
    return like(B + 0.1 * noise, param) + like(weights, param) * param.detach()


def whole(tensor):
    detached = tensor.detach()
    if not hasattr(detached, "full_tensor"):
        return detached.clone()
    if not detached.is_complex():
        return detached.full_tensor().clone()
    # Pairs of real numbers, because gloo moves no complex ones with torch 2.6.
    local, shape = torch.view_as_real(detached.to_local()), (*detached.shape, 2)
    stride = torch.empty(shape, device="meta").stride()
    pairs = DTensor.from_local(local, detached.device_mesh, detached.placements, shape=torch.Size(shape), stride=stride)
    return torch.view_as_complex(pairs.full_tensor())


def train_matrices(params, optimizer, steps=STEPS, first=0):
    """Steps along gradients that are the same however the parameters are spread."""
    for step in range(first, first + steps):
        for i, param in enumerate(params):
            param.grad = gradient_at(i, param, step)
        optimizer.step()


def like(tensor, param):
    """The tensor, spread as the parameter is."""
    if not hasattr(param, "placements"):
        return tensor
    return placed(tensor, param.device_mesh, param.placements)


def network(dtype):
    torch.manual_seed(5)
    model = nn.Sequential(
        nn.Linear(12, 20), nn.Tanh(), nn.Linear(20, 8), nn.Unflatten(1, (2, 4)), nn.Conv1d(2, 6, 2), nn.Flatten()
    ).to(dtype)
    gs.orthogonalize_(model)
    return model


def batch(step, dtype):
    generator = seeded(step)
    return torch.randn(8, 12, dtype=dtype, generator=generator), torch.randn(8, 18, dtype=dtype, generator=generator)


def train_network(model, optimizer, dtype, rank=0, ranks=1, steps=STEPS, first=0):
    """Steps on batches of eight samples, of which every rank takes its share."""
    for step in range(first, first + steps):
        inputs, targets = (part.chunk(ranks)[rank] for part in batch(step, dtype))
        optimizer.zero_grad()
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
