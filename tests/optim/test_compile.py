"""torch.compile of a whole step: one graph, equal to eager, no recompilation when a tensor lr changes."""

import pytest
import torch

import glideslope as gs

pytestmark = [
    pytest.mark.xdist_group("compiler"),  # to load it takes seconds: once, in one worker
    pytest.mark.skipif(torch.__version__ < (2, 7), reason="torch 2.6 cannot trace `is` between dictionaries in a step"),
]

OPTIONS = [
    (gs.LandingSGD, {}),
    (gs.LandingSGD, {"momentum": 0.9, "nesterov": True, "metric": "euclidean", "normal_step": "newton-schulz"}),
    pytest.param(gs.LandingSGD, {"safeguard": "exact", "normal_step": "polar"}, marks=pytest.mark.slow),
    (gs.LandingAdam, {}),
    (gs.LandingSGD, {"scale": "free", "momentum": 0.9}),
    pytest.param(gs.LandingAdam, {"scale": "free"}, marks=pytest.mark.slow),
    pytest.param(gs.LandingSGD, {"scale": 1.1}, marks=pytest.mark.slow),
    pytest.param(gs.PenaltySGD, {"momentum": 0.9}, marks=pytest.mark.slow),
    pytest.param(gs.RiemannianSGD, {"momentum": 0.9}, marks=pytest.mark.slow),
    pytest.param(gs.RiemannianSGD, {"retraction": "polar"}, marks=pytest.mark.slow),
    pytest.param(gs.RiemannianSGD, {"retraction": "exponential"}, marks=pytest.mark.slow),
]


def build(optimizer_class, options):
    """Matrices that are stacked, a wide one that is not, a bfloat16 one, and a free parameter."""
    generator = torch.Generator().manual_seed(3)
    params = [torch.nn.Parameter(gs.random_stiefel(8, 3, generator=generator)) for _ in range(2)]
    params.append(torch.nn.Parameter(gs.random_stiefel(9, 4, generator=generator).mT.contiguous()))
    params.append(torch.nn.Parameter(gs.random_stiefel(9, 4, generator=generator).bfloat16()))
    free = torch.nn.Parameter(torch.ones(4))
    groups = [{"params": params}, {"params": [free], "orthogonal": False}]
    return [*params, free], optimizer_class(groups, lr=torch.tensor(0.1), **options)


def set_gradients(params, seed):
    generator = torch.Generator().manual_seed(seed)
    for param in params:
        param.grad = torch.randn(param.shape, generator=generator).to(param.dtype)


# The compiler's own modules warn about each other.
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("optimizer_class", "options"), OPTIONS)
def test_a_compiled_step_is_one_graph_equals_eager_and_follows_a_tensor_lr(optimizer_class, options):
    from torch._dynamo.testing import CompileCounterWithBackend  # a second, for the worker that compiles

    torch._dynamo.reset()
    eager_params, eager = build(optimizer_class, options)
    params, optimizer = build(optimizer_class, options)
    for parameters, each in ((eager_params, eager), (params, optimizer)):
        set_gradients(parameters, 0)
        each.step()
    counter = CompileCounterWithBackend("aot_eager")
    compiled_step = torch.compile(optimizer.step, fullgraph=True, backend=counter)
    for k in range(1, 5):
        for parameters, each, step in ((eager_params, eager, eager.step), (params, optimizer, compiled_step)):
            set_gradients(parameters, k)
            for group in each.param_groups:
                group["lr"].fill_(0.1 / k)
            step()
    assert counter.frame_count == 1
    for ours, expected in zip(params, eager_params, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("optimizer_class", "options"),
    [(gs.LandingSGD, {"momentum": 0.9}), pytest.param(gs.LandingAdam, {}, marks=pytest.mark.slow)],
)
def test_the_first_step_can_be_a_compiled_one(optimizer_class, options):
    torch._dynamo.reset()
    eager_params, eager = build(optimizer_class, options)
    params, optimizer = build(optimizer_class, options)
    compiled_step = torch.compile(optimizer.step, fullgraph=True, backend="aot_eager")
    for k in range(3):
        set_gradients(eager_params, k)
        set_gradients(params, k)
        eager.step()
        compiled_step()
    for ours, expected in zip(params, eager_params, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("optimizer_class", "options"), OPTIONS)
def test_a_step_compiled_by_inductor_equals_eager(optimizer_class, options):
    torch._dynamo.reset()
    eager_params, eager = build(optimizer_class, options)
    params, optimizer = build(optimizer_class, options)
    for parameters, each in ((eager_params, eager), (params, optimizer)):
        set_gradients(parameters, 0)
        each.step()
    compiled_step = torch.compile(optimizer.step, fullgraph=True)
    for k in range(1, 5):
        set_gradients(eager_params, k)
        set_gradients(params, k)
        eager.step()
        compiled_step()
    for ours, expected in zip(params, eager_params, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
