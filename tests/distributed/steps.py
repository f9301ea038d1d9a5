"""Steps of sharded parameters: each function runs on all ranks and returns what the tests compare."""

import itertools
import warnings
from functools import partial

import torch
import torch.distributed as dist
from distributed.agreement import checkpoint_disagreements, disagreements
from distributed.counting import Traffic
from distributed.spreading import SHARDS_MODELS, diagnosed, drawn, mesh, message_of, orthonormal, shard
from distributed.training import (
    MATRICES,
    OPTIMIZERS,
    gradient_at,
    network,
    starts,
    train_matrices,
    train_network,
    whole,
)
from literal import region_distance
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate

import glideslope as gs


def small_checks():
    """Everything that needs ranks but no long run, by name."""
    checks = (
        traffic_of_a_step,
        traffic_of_a_bundle,
        skipped_together,
        disagreements,
        models,
        half_precision,
        mixed_precision,
        safe_region,
        views,
        scales,
        unsupported,
        variance_reduction,
        states_of_others,
        hybrid,
        checkpoint_disagreements,
    )
    return {check.__name__: check() for check in checks if SHARDS_MODELS or check not in NEED_NEWER_TORCH}


def traffic_of_a_step():
    """Collectives of one step of 5000 x 64 and of gathering its X and G."""
    found = {}
    for n in (1000, 5000):
        X = shard(orthonormal(n, 64))
        optimizer = gs.LandingSGD([X], lr=0.1)
        X.grad = shard(drawn(n, 64)).data
        with Traffic() as traffic:
            optimizer.step()
        found[n] = traffic.calls
    with Traffic() as traffic:
        whole(X), whole(X.grad)
    found["gathered"] = traffic.calls
    return found


def traffic_of_a_bundle():
    """Collectives of one step of many parameters, by optimizer."""
    found = {}
    for name, make in OPTIMIZERS.items():
        params = [shard(orthonormal(9 + i, 3, seed=i)) for i in range(5)]
        params.append(shard(orthonormal(4, 6, 2), 0))
        optimizer = make(params)
        for step in range(2):  # state is made in the first
            for i, param in enumerate(params):
                param.grad = shard(drawn(*param.shape, seed=i + step)).data
            with Traffic() as traffic:
                optimizer.step()
        found[name] = traffic.calls
    return found


def skipped_together():
    """A gradient with a NaN on the last rank, then finite ones: per optimizer and shape, what moved, and counts."""
    found = {}
    for name, shape in itertools.product(OPTIMIZERS, ((12, 3), (8, 8))):
        X, Y = shard(orthonormal(*shape)), shard(orthonormal(10, 2))
        optimizer = OPTIMIZERS[name]([X, Y])
        moved = []
        for step in range(3):
            before = [whole(X), whole(Y)]
            X.grad, Y.grad = shard(drawn(*shape, seed=step)).data, shard(drawn(10, 2, seed=step)).data
            if step == 1 and dist.get_rank() == dist.get_world_size() - 1:
                X.grad.detach().to_local()[-1, 0] = float("nan")
            optimizer.step()
            moved.append([not torch.equal(whole(one), old) for one, old in zip((X, Y), before, strict=True)])
        found[name, shape] = (moved, whole(X), [row.skipped for row in diagnosed(optimizer)])
    return found


def models():
    """Reports and projections of a model that is sharded before and after it is made orthonormal."""
    found = {}
    for when in ("before", "after"):
        model = network(torch.float32)
        with torch.no_grad():
            for param in model.parameters():
                param.mul_(1.05 if when == "after" else 3.0)
        if when == "after":
            gs.orthogonalize_(model)
        fully_shard(model, mesh=mesh(), shard_placement_fn=gs.shard_placement(model))
        if when == "before":
            gs.orthogonalize_(model)
        first = gs.orthogonality(model)
        with torch.no_grad():
            for param in model.parameters():
                param.to_local().mul_(1.01)
        disturbed = gs.orthogonality(model)
        names = gs.project_(model)
        exact = gs.orthogonality(model)
        weights = [whole(param) for param in model.parameters()]
        found[when] = (list(first), list(disturbed), names, list(exact), weights)
    model = network(torch.float32)
    fully_shard(model, mesh=mesh(), shard_placement_fn=gs.shard_placement(model))
    bare = gs.LandingSGD(model.parameters())  # DTensors in place of the parameters that were marked
    found["bare"] = [
        [(group["orthogonal"], group.get("view"), len(group["params"])) for group in one.param_groups]
        for one in (bare, gs.LandingSGD(gs.param_groups(model)))
    ]
    model = network(torch.float32)
    fully_shard(model, mesh=mesh())
    if dist.get_rank() == 0:
        model[0].weight.detach().to_local()[0, 0] = float("nan")
    found["not finite"] = (message_of(lambda: gs.orthogonalize_(model)), str(gs.orthogonality(model)))
    return found


def half_precision():
    """Parameters in bfloat16 with float32 masters: small steps add up."""
    X = shard(orthonormal(24, 4).bfloat16())
    direction = orthonormal(24, 4).roll(1, 0).bfloat16()
    optimizer = gs.LandingSGD([X], lr=1e-3)
    for _ in range(20):
        X.grad = shard(direction).data
        optimizer.step()
    master = optimizer.state[X]["master"]
    return whole(master), whole(X), [row.distance for row in diagnosed(optimizer)]


def mixed_precision():
    """The network with bfloat16 computation: types of parameters and gradients, and the distances after steps."""
    model = network(torch.float32)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    place = gs.shard_placement(model)
    fully_shard(model, mesh=mesh(), mp_policy=policy, shard_placement_fn=place)
    optimizer = gs.LandingSGD(gs.param_groups(model), lr=1e-4)
    before = [whole(param) for param in model.parameters()]
    train_network(model, optimizer, torch.float32, dist.get_rank(), dist.get_world_size(), steps=3)
    types = {str(one.dtype) for param in model.parameters() for one in (param, param.grad)}
    moved = [not torch.equal(whole(a), b) for a, b in zip(model.parameters(), before, strict=True)]
    return types, [max(row.distance) for row in diagnosed(optimizer)], moved


def safe_region():
    """Largest distance, in the region's norm, ever met with gradients and learning rates of any size, by optimizer."""
    found = {}
    for name, make in OPTIMIZERS.items():
        worst = 0.0
        X = shard(orthonormal(14, 3))
        optimizer = make([X])
        for step, size in enumerate((1e-30, 1.0, 1e8, 1e18, 1e30, 1e37)):
            for group in optimizer.param_groups:
                group["lr"] = 10.0 ** (step - 2)
            X.grad = shard(size * drawn(14, 3, seed=step)).data
            optimizer.step()
            group = getattr(optimizer, "landing", optimizer).param_groups[0]
            worst = max(
                worst, region_distance(X.full_tensor().detach(), group["normal_step"], group["safeguard"]).item()
            )
        found[name] = worst
    return found


VIEWS = [
    ("conv", (12, 3, 2)),
    ("conv", (3, 8, 2)),
    ("grouped_conv:4", (8, 3, 2)),
    ("grouped_conv:4", (8, 1, 2)),
    ("split:4", (20, 4)),
    ("split:3", (12, 4)),
    ("split_columns:4", (8, 20)),
    ("split_columns:2", (3, 16)),
    ("matrix", (4, 5, 6, 2)),
]


def views():
    """Every view on every dimension that can be sharded, after a few steps up or down: distance from the whole's."""
    found = []
    for view, shape in VIEWS:
        for dim in range(len(shape)):
            X = torch.nn.Parameter(start_of_view(view, shape))
            sharded = shard(X.detach().clone(), dim)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                groups = [[{"params": [one], "view": view}] for one in (X, sharded)]
                optimizers = [gs.LandingAdam(group, lr=0.05, maximize=dim == 0) for group in groups]
            for step in range(3):
                gradient = drawn(*shape, dtype=torch.float64, seed=step)
                X.grad, sharded.grad = gradient, shard(gradient, dim).data
                for optimizer in optimizers:
                    optimizer.step()
            found.append((view, shape, dim, float((whole(sharded) - X.detach()).abs().max())))
    return found


def scales():
    """Scaled parameters against whole ones: matrices by optimizer, then a network under FSDP2 with its reports."""
    found = {}
    for scale, name in itertools.product((0.5, "modular", "free"), ("momentum", "adam", "attached")):
        if (scale, name) == ("free", "attached"):
            continue
        made = []
        for i, (shape, dim, _) in enumerate(MATRICES):
            sigma = (shape[-2] / shape[-1]) ** 0.5 if scale == "modular" else 0.5 * (i + 1 if scale == "free" else 1)
            made.append((sigma * starts(torch.float64)[i], dim))
        kinds = [torch.nn.Parameter(X.clone()) for X, _ in made], [shard(X, dim) for X, dim in made]
        rows = []
        for params in kinds:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                optimizer = OPTIMIZERS[name](params, scale=scale)
            train_matrices(params, optimizer, steps=4)
            rows.append([row.distance for row in diagnosed(optimizer)])
        pairs = zip(*kinds, strict=True)
        found[scale, name] = max(float((whole(a) - whole(b)).abs().max()) for a, b in pairs), rows
    for scale in (0.5, "modular", "free"):
        nets = [network(torch.float64) for _ in range(2)]
        reports = []
        for net, ranks in zip(nets, (1, dist.get_world_size()), strict=True):
            gs.orthogonalize_(net, scale=scale)
            if net is nets[1]:
                fully_shard(net, mesh=mesh(), shard_placement_fn=gs.shard_placement(net))
            optimizer = gs.LandingAdam(net.parameters(), lr=0.02)
            train_network(net, optimizer, torch.float64, dist.get_rank() if ranks > 1 else 0, ranks, steps=4)
            trained = [row[4:] for row in gs.orthogonality(net)]
            gs.project_(net)
            reports.append((trained, [row[4:] for row in gs.orthogonality(net)]))
        pairs = zip(*(net.parameters() for net in nets), strict=True)
        found[scale, "network"] = max(float((whole(a) - whole(b)).abs().max()) for a, b in pairs), reports
    return found


def start_of_view(view, shape):
    from glideslope.stiefel.views import as_matrices, copy_matrices_

    X = drawn(*shape, dtype=torch.float64)
    return copy_matrices_(X, gs.project(as_matrices(X, view)), view)


def variance_reduction():
    """Sharded against whole parameters under SAGA and SVRG; and SAGA's memory after a NaN on one rank."""
    found = {}
    complex_type = torch.complex128
    for kind in ("saga", "svrg"):
        starts_of = [orthonormal(11, 3, dtype=torch.float64), orthonormal(9, 2, dtype=complex_type)]
        plain = [torch.nn.Parameter(X.clone()) for X in starts_of]
        spread = [shard(X) for X in starts_of]
        for params in (plain, spread):
            optimizer = gs.LandingSGD(params, lr=0.1)
            reducer = gs.SAGA(params, slots=2) if kind == "saga" else gs.SVRG(params)

            def backward(slot, params=params):
                for i, param in enumerate(params):
                    param.grad = gradient_at(i, param, slot)
                    if slot == 1 and isinstance(param, DTensor):  # spread differently from its parameter
                        param.grad = param.grad.redistribute(placements=[Replicate()])

            if kind == "svrg":
                reducer.anchor_(lambda: backward(0))
            for slot in (0, 1, 0, 1, 0, 1):
                backward(slot)
                reducer.correct_(slot if kind == "saga" else partial(backward, slot))
                optimizer.step()
            state = reducer.state_dict()
            other = gs.SAGA(params, slots=2) if kind == "saga" else gs.SVRG(params)
            other.load_state_dict(state)
            means = zip(state["means"], other.state_dict()["means"], strict=True)
            assert all(torch.equal(whole(a), whole(b)) for a, b in means)
        pairs = zip(plain, spread, strict=True)
        found[kind] = max(float((whole(a) - whole(b)).abs().max()) for a, b in pairs), reducer.memory_bytes
    X = shard(orthonormal(12, 3))
    saga = gs.SAGA([X], slots=1)
    X.grad = shard(drawn(12, 3)).data
    saga.correct_(0)
    before = whole(saga.state_dict()["means"][0])
    X.grad = shard(drawn(12, 3, seed=5)).data
    if dist.get_rank() == 0:
        X.grad.detach().to_local()[0, 0] = float("nan")
    saga.correct_(0)
    found["kept"] = torch.equal(before, whole(saga.state_dict()["means"][0]))
    return found


def states_of_others():
    """Whole and sharded optimizers go on from each other's state: the largest difference after more steps."""
    found = {}
    for name in ("momentum", "adam"):
        shapes = ((12, 3), (4, 5, 2))
        kinds = {"whole": torch.nn.Parameter, "sharded": shard}
        starts_of = [orthonormal(*shape, dtype=torch.float64) for shape in shapes]
        params = {kind: [make(X.clone()) for X in starts_of] for kind, make in kinds.items()}
        made = {kind: OPTIMIZERS[name](params[kind]) for kind in kinds}
        for kind in kinds:
            train_matrices(params[kind], made[kind], steps=3)
        crossed = {kind: OPTIMIZERS[name](params[kind]) for kind in kinds}
        crossed["whole"].load_state_dict(made["sharded"].state_dict())
        crossed["sharded"].load_state_dict(made["whole"].state_dict())
        for kind in kinds:
            train_matrices(params[kind], crossed[kind], steps=3, first=3)
        pairs = zip(params["whole"], params["sharded"], strict=True)
        found[name] = max(float((whole(a) - whole(b)).abs().max()) for a, b in pairs)
    return found


def hybrid():
    """Four ranks as two copies of two shards: the network against one process."""
    if dist.get_world_size() != 4:
        return None
    model, plain = network(torch.float64), network(torch.float64)
    over = init_device_mesh("cpu", (2, 2), mesh_dim_names=("copies", "shards"))
    fully_shard(model, mesh=over, shard_placement_fn=gs.shard_placement(model, ranks=2))
    for net, rank, ranks in ((model, dist.get_rank(), 4), (plain, 0, 1)):
        optimizer = gs.LandingAdam(gs.param_groups(net), lr=0.02)
        train_network(net, optimizer, torch.float64, rank, ranks, steps=8)
    pairs = zip(model.parameters(), plain.parameters(), strict=True)
    return max(float((whole(a) - b.detach()).abs().max()) for a, b in pairs)


def unsupported():
    X = shard(orthonormal(12, 3))
    return [message_of(lambda: gs.RiemannianSGD([X])), message_of(lambda: gs.PenaltySGD([X], penalty_weight=1.0))]


# With torch 2.6: FSDP2 on the CPU; gloo on complex numbers, which variance_reduction gathers.
NEED_NEWER_TORCH = (models, mixed_precision, scales, hybrid, variance_reduction, checkpoint_disagreements)
