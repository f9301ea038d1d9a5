"""OnlinePCA on ranks that have the columns of the samples: what the tests compare."""

import resource

import numpy as np
import torch
import torch.distributed as dist
from distributed.counting import Traffic
from distributed.spreading import mesh, message_of
from torch.distributed.tensor import DTensor, Shard

from glideslope import random_stiefel
from glideslope.estimators import OnlineICA, OnlinePCA
from glideslope.ranks.dtensors import placed

N, WIDTH, COMPONENTS = 300, 23, 3


def samples(seed=0, rows=N):
    """Rows whose entries are correlated, also between ranks."""
    generator = torch.Generator().manual_seed(seed)
    scales = torch.linspace(3.0, 0.3, WIDTH, dtype=torch.float64)
    turn = random_stiefel(WIDTH, WIDTH, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    return (torch.randn(rows, WIDTH, generator=generator, dtype=torch.float64) * scales) @ turn + 2


WAYS = {
    "one pass": lambda X: OnlinePCA(COMPONENTS, n_epochs=1, batch_size=40, random_state=0).fit(X(samples())),
    "passes": lambda X: OnlinePCA(COMPONENTS, n_epochs=30, tol=1e-9, random_state=0).fit(X(samples())),
    "stream": lambda X: OnlinePCA(COMPONENTS, random_state=0).fit_stream([X(samples(k, 50)) for k in range(5)]),
    "forgetting": lambda X: OnlinePCA(2, forgetting=0.3, random_state=0).fit_stream(
        [X(samples(k, 9)) for k in range(5)]
    ),
    "alike": lambda X: OnlinePCA(2, random_state=0).fit(X(torch.ones(5, WIDTH))),
}
ATTRIBUTES = ("components_", "mean_", "explained_variance_", "explained_variance_ratio_", "singular_values_")


def gathered(value):
    return value.full_tensor().numpy() if isinstance(value, DTensor) else value


def described(model, X):
    """Everything a user can read of a fitted model, in one place."""
    found = {name: gathered(getattr(model, name)) for name in ATTRIBUTES}
    found |= {"noise_variance_": model.noise_variance_, "n_iter_": model.n_iter_}
    Y = model.transform(X(samples(9, 20)))
    return found | {
        "transform": Y,
        "inverse": gathered(model.inverse_transform(Y)),
        "score": model.score(X(samples(9))),
    }


def learnt(ways):
    """Models of some ways, messages, and what one step sends for many features."""
    over = mesh()

    def spread(X):
        return placed(X, over, [Shard(1)])

    found = {way: described(WAYS[way](spread), spread) for way in ways}
    model = WAYS["one pass"](spread)
    found["local"] = tuple(model.components_.to_local().shape), tuple(model.mean_.to_local().shape)
    found["unseeded"] = gathered(OnlinePCA(2, n_epochs=30, batch_size=30).fit(spread(samples())).components_)
    odd = dist.get_rank() == dist.get_world_size() - 1
    bad = samples()
    bad[3, -1] = float("nan")
    found["messages"] = {
        "parameters": message_of(lambda: OnlinePCA(4 if odd else 3).fit(spread(samples()))),
        "samples": message_of(lambda: OnlinePCA(3).fit(spread(samples()[: 100 + odd]))),
        "finite": message_of(lambda: OnlinePCA(3).fit(spread(bad))),
        "width": message_of(lambda: model.partial_fit(spread(samples()[:, :-1]))),
        "place": message_of(lambda: model.transform(samples())),
        "cut": message_of(lambda: OnlinePCA(3).fit(placed(samples(), over, [Shard(0)]))),
        "ica": message_of(lambda: OnlineICA().fit(spread(samples()))),
    }
    found["sent"] = {n: sent(n, over) for n in (2000, 8000)}
    return found


def sent(n, over):
    """Bytes of the largest message, and of all, in one pass over 60 samples."""
    local = torch.randn(60, n // dist.get_world_size(), generator=torch.Generator().manual_seed(dist.get_rank()))
    data = DTensor.from_local(local, over, [Shard(1)], run_check=False)
    with Traffic() as traffic:
        OnlinePCA(5, n_epochs=1, batch_size=30, random_state=0).fit(data)
    sizes = [size for name, size in traffic.calls if name == "allreduce_"]
    return max(sizes), sum(sizes)


def memory_of_many_features(n, p):
    """How much the resident memory of a rank grows by a fit of n features, beside its columns of the data."""
    ranks = dist.get_world_size()
    OnlinePCA(p, random_state=0).fit(DTensor.from_local(torch.randn(40, 50), mesh(), [Shard(1)], run_check=False))
    local = torch.randn(2 * p, n // ranks, generator=torch.Generator().manual_seed(dist.get_rank()))
    data = DTensor.from_local(local, mesh(), [Shard(1)], run_check=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    OnlinePCA(p, batch_size=p, random_state=0).fit(data)
    return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before), local.numel() * local.element_size()


def in_one_place(way):
    """The same model of samples in one place, which begins at another random matrix."""
    return described(WAYS[way](lambda X: X), lambda X: X)


def exact_components(p):
    X = samples().numpy()
    return np.linalg.svd(X - X.mean(0), full_matrices=False)[2][:p]
