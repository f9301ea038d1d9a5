"""The recorded runs by name. Options are given where a default could change, which is not to change these runs."""

from functools import partial
from itertools import product

import torch
from trajectories.runs import (
    attached,
    components,
    finite_sum,
    function,
    ica,
    pca,
    procrustes,
    rule,
    solve,
    steps_of_formula,
    train,
    variance_reduced,
    with_free,
)

import glideslope as gs

F32, F64, C64, C128, BF16 = torch.float32, torch.float64, torch.complex64, torch.complex128, torch.bfloat16
FEW = {"tall": (9, 3), "square": (5, 5), "batch": (3, 6, 2)}
# The first is large enough for steps by Gram matrices, the second for Gram matrices by blocks.
LARGE = {"very tall": (2000, 50), "many columns": (160, 140)}
NEWTON, POLAR = rule("newton-schulz", metric="euclidean"), rule("polar")
NORMAL_STEPS = {"landing": rule(), "exact": rule(safeguard="exact"), "newton-schulz": NEWTON, "polar": POLAR}
SGD, ADAM = partial(gs.LandingSGD, **rule()), partial(gs.LandingAdam, **rule())
HEAVY = partial(SGD, momentum=0.9)
RIEMANNIAN = partial(gs.RiemannianSGD, retraction="qr", metric="canonical")
PENALTY = partial(gs.PenaltySGD, penalty_weight=2.0)
ATTACHED = attached(torch.optim.AdamW, **rule(metric="euclidean", attraction=0.5))
RETRACTIONS = ("qr", "polar", "cayley", "exponential")

CONFIGURATIONS = {}
"""Name -> (type, run of `Inputs`)."""


def add(name, run, *dtypes, **options):
    """One configuration for each type, float64 by default."""
    for dtype in dtypes or (F64,):
        CONFIGURATIONS[f"{name}, {str(dtype).removeprefix('torch.')}"] = (dtype, partial(run, **options))


# Every rule, with steps that the safeguard shortens now and then
for normal_step, safeguard, metric in product(
    ("landing", "newton-schulz", "polar"), ("lemma", "exact", None), ("canonical", "euclidean")
):
    make = partial(gs.LandingSGD, **rule(normal_step, safeguard, metric))
    options = {} if safeguard == "lemma" else {"shapes": FEW, "steps": 15}
    name = f"LandingSGD {normal_step} {safeguard} {metric}"
    lr = 0.04 if safeguard is None else 0.2 if normal_step == "landing" else 0.6
    add(name, train, make=make, lr=lr, **options)

# Types and gradient estimates
add("LandingSGD momentum", train, F64, C64, C128, make=HEAVY)
add("LandingSGD momentum", train, F32, BF16, make=HEAVY, steps=10)
add("LandingSGD nesterov", train, F64, make=partial(SGD, momentum=0.9, nesterov=True))
add("LandingSGD dampening", train, F64, make=partial(SGD, momentum=0.8, dampening=0.3))
add("LandingSGD newton-schulz momentum", train, C128, F32, BF16, make=partial(gs.LandingSGD, momentum=0.5, **NEWTON))
add("LandingSGD polar", train, C64, BF16, make=partial(gs.LandingSGD, **POLAR), shapes=FEW)
add("LandingAdam", train, F64, F32, C128, make=ADAM)
add("LandingAdam", train, BF16, make=ADAM, steps=12)
add("LandingAdam newton-schulz", train, make=partial(gs.LandingAdam, betas=(0.8, 0.99), **NEWTON), shapes=FEW)
add("LandingAdam polar", train, F64, C64, make=partial(gs.LandingAdam, **POLAR), shapes=FEW)
add("maximize", train, make=partial(SGD, maximize=True, momentum=0.9), shapes=FEW)
add("one by one", train, make=partial(SGD, foreach=False, momentum=0.9), shapes=FEW)
add("with a free parameter", train, make=with_free, shapes=FEW)
for name, options in NORMAL_STEPS.items():
    add(f"large matrices {name}", train, make=partial(gs.LandingSGD, **options), shapes=LARGE, steps=6, lr=0.01)
add("large matrices", train, F32, make=partial(gs.LandingSGD, momentum=0.9, **NEWTON), shapes=LARGE, steps=6, lr=0.01)

# Other optimizers
for retraction in RETRACTIONS:
    add(f"RiemannianSGD {retraction}", train, make=partial(RIEMANNIAN, retraction=retraction), shapes=FEW)
add("RiemannianSGD momentum", train, F64, F32, C128, BF16, make=partial(RIEMANNIAN, momentum=0.9), shapes=FEW)
add("RiemannianSGD euclidean", train, make=partial(RIEMANNIAN, metric="euclidean", momentum=0.5, nesterov=True))
add("PenaltySGD", train, F64, F32, C128, BF16, make=PENALTY, shapes=FEW)
add("PenaltySGD momentum", train, make=partial(PENALTY, momentum=0.8, weight_decay=0.1), lr=0.02)
add("attached AdamW", train, F64, C64, make=ATTACHED)
add("attached AdamW", train, BF16, make=ATTACHED, steps=5)
add("attached SGD", train, F64, F32, make=attached(torch.optim.SGD, **NEWTON), shapes=FEW)
add("attached RMSprop", train, make=attached(torch.optim.RMSprop, **POLAR), lr=0.02, shapes=FEW)

# Gradients and starts out of the ordinary. From the boundary the exact safeguard's step grows with the root of the
# slack: huge gradients, which lead there, would turn rounding into eight digits, so it takes one step.
for name, options in NORMAL_STEPS.items():
    make, steps = partial(gs.LandingSGD, **options), 1 if name == "exact" else 6
    add(f"huge gradients {name}", train, F64, F32, make=make, gradients="huge", steps=steps, shapes=FEW)
    add(f"almost normal gradients {name}", train, make=make, gradients="almost normal", steps=12, shapes=FEW)
    rare = {"gradients": "huge, almost normal", "start": "inside", "steps": min(steps, 3)}
    add(f"huge, almost normal gradients {name}", train, make=make, shapes=FEW, **rare)
    for start in ("inside", "outside", "far"):
        add(f"start {start} {name}", train, make=make, start=start, steps=15, shapes=FEW)
add("huge gradients LandingAdam", train, F32, make=ADAM, gradients="huge", steps=8, shapes=FEW)
add("huge gradients momentum", train, make=HEAVY, gradients="huge", steps=8, shapes=FEW)
cayley = partial(RIEMANNIAN, retraction="cayley")
add("huge gradients RiemannianSGD cayley", train, make=cayley, gradients="huge", steps=4, shapes=FEW)
add("huge gradients attached AdamW", train, make=ATTACHED, gradients="huge", steps=8, shapes=FEW)
add("start outside attached AdamW", train, F64, BF16, make=ATTACHED, start="outside", steps=15, shapes=FEW)
add("start outside momentum", train, F32, C128, make=HEAVY, start="outside", steps=15, shapes=FEW)
for name, make in {
    "LandingSGD": SGD,
    "LandingSGD momentum": HEAVY,
    "LandingSGD newton-schulz": partial(gs.LandingSGD, **NEWTON),
    "LandingAdam": ADAM,
    "RiemannianSGD": RIEMANNIAN,
    "PenaltySGD": PENALTY,
    "attached AdamW": ATTACHED,
}.items():
    add(f"one gradient NaN {name}", train, make=make, nan_at=5, steps=15, shapes=FEW)

# The step as a function, variance reduction in a training loop
for name, options in NORMAL_STEPS.items():
    add(f"landing_step {name}", steps_of_formula, F64, C64, **options)
add("SAGA", variance_reduced, F64, F32, C128, kind="SAGA")
add("SVRG", variance_reduced, F64, C64, kind="SVRG")

# minimize
LANDING = {"method": "landing", **rule()}
AUTO = {"gradient": "full", "step_size": "auto", "metric": "canonical", "max_epochs": 10}
for name, options in NORMAL_STEPS.items():
    add(f"minimize pca full {name}", solve, problem=pca, step_size=0.1, **options)
for gradient in ("minibatch", "saga", "svrg"):
    fixed = {"gradient": gradient, "step_size": 0.05, "batch_size": 7, **LANDING}
    add(f"minimize pca {gradient}", solve, F64, F32, C128, problem=pca, **fixed)
    add(f"minimize sum {gradient}", solve, problem=finite_sum, **{**fixed, "step_size": 0.002}, sampling="shuffle")
    add(f"minimize ica {gradient}", solve, problem=partial(ica, score="adaptive"), **fixed)
wide = partial(pca, n=24, p=6)
few_terms = {"gradient": "minibatch", "batch_size": 4, "step_size": 0.05, "schedule": "1/sqrt"}
add("minimize low rank", solve, problem=wide, **few_terms, **LANDING)
add("minimize shortened", solve, problem=pca, gradient="full", step_size=2.0, **LANDING)
add("minimize theory", solve, problem=pca, gradient="saga", batch_size=10, step_size="theory", numpy=True, **LANDING)
for retraction in RETRACTIONS:
    options = {"problem": procrustes, "method": "riemannian", "retraction": retraction}
    fixed = {"gradient": "saga", "batch_size": 6, "step_size": 0.01, "metric": "canonical"}
    add(f"minimize riemannian {retraction}", solve, **options, **fixed)
    add(f"minimize auto riemannian {retraction}", solve, **options, **AUTO)
options = {"problem": pca, "method": "penalty", "penalty_weight": 3.0}
add("minimize penalty", solve, gradient="svrg", batch_size=6, step_size=0.02, **options)
add("minimize diverged", solve, gradient="full", step_size=5.0, **options)
add("minimize auto penalty", solve, **options, **AUTO)
add("minimize auto pca", solve, F64, F32, C128, problem=pca, **AUTO)
add("minimize auto procrustes", solve, problem=procrustes, **AUTO)
add("minimize auto ica", solve, problem=partial(ica, score="logcosh"), **AUTO)
add("minimize auto function", solve, problem=function, **AUTO)
add("minimize auto until converged", solve, problem=pca, **{**AUTO, "max_epochs": 200, "tolerance": 1e-3})

# Estimators
PCA = {"estimator": "OnlinePCA", "n_components": 3, "samples": lambda inputs: inputs.spread(1200, 40)}
PCA |= {"names": ("components_", "explained_variance_", "mean_")}
ICA = {"estimator": "OnlineICA", "samples": lambda inputs: inputs.mixed(1200, 4), "tol": 1e-5}
add("OnlinePCA fit", components, F64, F32, batch_size=100, **PCA)
add("OnlinePCA fit of one pass", components, batch_size=100, n_epochs=1, **PCA)
add("OnlinePCA fit with further passes", components, batch_size=100, n_epochs=6, tol=1e-5, **PCA)
add("OnlinePCA partial_fit", components, F64, F32, batches=12, **PCA)
add("OnlinePCA partial_fit forgetting", components, batches=40, forgetting=0.1, **PCA)
for fun in ("logcosh", "exp", "cube"):
    add(f"OnlineICA fit {fun}", components, fun=fun, **ICA)
add("OnlineICA fit", components, F32, n_components=3, **{**ICA, "tol": 1e-3})
add("OnlineICA partial_fit", components, F64, F32, batches=12, **ICA)
add("OnlineICA partial_fit forgetting", components, batches=12, forgetting=0.2, **ICA)
