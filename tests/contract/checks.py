"""What an optimizer must do where its peers fail: one check per defect, each a function of a factory."""

import inspect
import io
import re

import literal
import torch
from contract.factories import SHAPES, assert_same, copies_of, distances, feed, parameters, random_gradients, seeded
from literal import point_at_distance, random_matrix


def check_permuting_parameters_does_not_change_the_result(make, **options):
    """Defect 1. Gradients of very different sizes, so that the steps of some are shortened."""
    sizes = [10.0 ** (i % 3) for i in range(len(SHAPES))]
    params = parameters()
    gradients = [[s * g for s, g in zip(sizes, given, strict=True)] for given in random_gradients(params, 4)]
    order = [3, 6, 0, 5, 2, 1, 4]
    permuted = copies_of([params[i] for i in order])
    feed(make(permuted, lr=0.3, **options), permuted, [[given[i] for i in order] for given in gradients])
    feed(make(params, lr=0.3, **options), params, gradients)
    assert_same(permuted, [params[i] for i in order], tolerance=1e-11)


def check_a_strong_attraction_does_not_collapse_the_matrix(make, converges=True):
    """Defect 2. Two starts: one at distance .1, where a step of lr = 1 along λ = 10 would give exactly zero."""
    column = torch.zeros(4, 1, dtype=torch.float64)
    column[0] = 1.1**0.5
    params = [torch.nn.Parameter(column), torch.nn.Parameter(point_at_distance(6, 3, 0.2, generator=seeded()))]
    optimizer = make(params, lr=1.0, attraction=10.0)
    for _ in range(20):
        feed(optimizer, params, [[torch.zeros_like(param) for param in params]])
        for param in params:
            assert torch.linalg.svdvals(param.detach()).min() > 0.5
    assert not converges or all(distances(param).max() < 1e-3 for param in params)


def check_an_exact_stationary_point_stays_put(make, normal=2.0):
    """Defect 3. An orthonormal start; a zero gradient and one normal to the manifold."""
    identity = torch.zeros(5, 3, dtype=torch.float64)
    identity[:3] = torch.eye(3)
    for start in [identity, identity.mT.contiguous(), torch.eye(4, dtype=torch.float64)]:
        X = torch.nn.Parameter(start.clone())
        optimizer = make([X], lr=0.1)
        for _ in range(3):
            feed(optimizer, [X], [[torch.zeros_like(start)]])
            assert_same([X], [start], tolerance=1e-14)
            feed(optimizer, [X], [[normal * start]])
            assert_same([X], [start], tolerance=1e-8)


def check_a_start_from_outside_comes_back(make):
    """Defect 3. Built inside, then overwritten from outside, as by a bad load."""
    for factor in (1.6, 30.0, 0.2):
        params = parameters([(6, 3), (3, 4), (1, 1)])
        optimizer = make(params, lr=0.1)
        for param in params:
            param.data.mul_(factor)
        feed(optimizer, params, random_gradients(params, 20))
        for param in params:
            assert torch.isfinite(param).all()
            assert distances(param, optimizer=optimizer).max() <= 0.5 + 1e-12


def check_wide_matrices_have_orthonormal_rows(make):
    """Defect 3."""
    (wide,) = parameters([(3, 7)])
    feed(make([wide], lr=0.1), [wide], random_gradients([wide], 10))
    assert torch.isfinite(wide).all()
    assert literal.exact_distance(wide.detach().mT) <= 0.5
    assert torch.linalg.svdvals(wide.detach()).min() > 0.5


def literal_landing(X, G, lr):
    """One landing step with the default options."""
    return literal.landing_step(X, G, lr, 1.0, 0.5)


def forget_normal_part(source, follower, X, D, momentum=0, nesterov=False, **_):
    """Take the normal part X sym(X^H D) of a direction off torch's buffer, as much of it as the buffer has."""
    buffer = source.state[follower]["momentum_buffer"]
    buffer.sub_(X @ literal.sym(X.mH @ D) / (1 + momentum if nesterov else 1))


def check_momentum_is_that_of_torch(make, literal_step, tangent=True, **momentum_options):
    """Defect 4. torch.optim.SGD turns gradients into estimates; a literal loop steps along them.

    With `tangent` its buffer loses the normal part of every estimate.
    """
    lr = 0.01
    X = torch.nn.Parameter(point_at_distance(6, 3, 0.1, generator=seeded()))
    expected, follower = X.detach().clone(), torch.nn.Parameter(torch.zeros_like(X))
    optimizer = make([X], lr=lr, **momentum_options)
    source = torch.optim.SGD([follower], lr=1.0, **momentum_options)
    for (gradient,) in random_gradients([X], 5):
        before = follower.detach().clone()
        feed(source, [follower], [[gradient]])
        D = before - follower.detach()
        if tangent and "momentum" in momentum_options:
            forget_normal_part(source, follower, expected, D, **momentum_options)
        expected = literal_step(expected, D, lr)
        feed(optimizer, [X], [[gradient]])
        assert_same([X], [expected], tolerance=1e-13)


def check_documented_defaults(cls, expected):
    """Defect 5. The signature has the defaults of the design; the docstring names every option and no other default."""
    signature = inspect.signature(cls.__init__ if inspect.isclass(cls) else cls).parameters
    defaults = {name: p.default for name, p in signature.items() if p.default is not inspect.Parameter.empty}
    assert defaults == expected
    assert list(defaults) == list(expected)
    assert all(type(defaults[name]) is type(value) for name, value in expected.items() if value is not None)
    documented = dict(re.findall(r"^\s+(\w+): (.*(?:\n\s{12,}.*)*)", inspect.getdoc(cls).partition("Args:")[2], re.M))
    assert set(documented) >= set(expected)
    for name, text in documented.items():
        stated = re.search(r"[Dd]efaults?(?: to)?:? `?([-\w.\"]+\w\"?)", text)
        assert stated is None or stated.group(1).strip('"') == str(expected[name])


def check_nothing_of_the_callers_is_written(make, **options):
    """Defect 6. Not .grad, not the random state, and the parameters only by step()."""
    params = parameters()
    starts = [param.detach().clone() for param in params]
    random_state = torch.get_rng_state()
    optimizer = make(params, lr=0.1, **options)
    assert_same(params, starts)
    assert all(param.grad is None for param in params)
    (gradients,) = random_gradients(params, 1)
    for _ in range(3):
        for param, gradient in zip(params, gradients, strict=True):
            param.grad = gradient.clone()
        given = [param.grad for param in params]
        optimizer.step()
        assert all(param.grad is grad for param, grad in zip(params, given, strict=True))
        assert_same(given, gradients)
    assert torch.equal(torch.get_rng_state(), random_state)


def check_a_closure_is_called_once_and_its_loss_returned(make):
    """Defect 7."""
    (X,) = parameters([(6, 3)])
    optimizer = make([X], lr=0.1)
    calls = []

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        loss = X.square().sum() * 3 + X.sum()
        loss.backward()
        calls.append(loss)
        return loss

    start = X.detach().clone()
    returned = optimizer.step(closure)
    assert len(calls) == 1
    assert returned is calls[0]
    assert not torch.equal(X, start)


def check_a_generator_of_parameters_is_accepted(make):
    """Defect 8."""
    params = parameters()
    expected = copies_of(params)
    gradients = random_gradients(params, 2)
    feed(make((param for param in params), lr=0.1), params, gradients)
    feed(make(expected, lr=0.1), expected, gradients)
    assert_same(params, expected)
    assert all(not torch.equal(a, b) for a, b in zip(params, parameters(), strict=True) if a.numel() > 1)


def check_a_state_can_be_saved(make):
    """Defect 9."""
    params = parameters()
    optimizer = make(params, lr=0.1)
    feed(optimizer, params, random_gradients(params, 2))
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert len(loaded["param_groups"][0]["params"]) == len(params)


def check_a_gradient_may_appear_later(make):
    """Defect 9. A late parameter moves as it would alone, and the others do not notice."""
    params = parameters()
    first, second = random_gradients(params, 2)
    late = {2, 5}
    early = [None if i in late else gradient for i, gradient in enumerate(first)]
    alone = copies_of(params)
    feed(make(params, lr=0.1), params, [early, second])
    for i, param in enumerate(alone):
        given = [[second[i]]] if i in late else [[first[i]], [second[i]]]
        feed(make([param], lr=0.1), [param], given)
    assert_same(params, alone, tolerance=1e-13)


def check_a_bad_matrix_does_not_change_the_others(make, bad):
    """Defect 11. One matrix of a batch, and one of several parameters, gets a gradient that spoils its own step."""
    shapes = [(4, 5, 3), (5, 3), (5, 3), (5, 3)]
    params, quiet = parameters(shapes), parameters(shapes)
    gradients = random_gradients(params, 4)
    feed(make(quiet, lr=0.1), quiet, gradients)
    for given in gradients:
        given[0][1] = given[0][1] * bad
        given[2] = given[2] * bad
    feed(make(params, lr=0.1), params, gradients)
    kept = [0, 2, 3]
    assert_same([params[0][kept], params[1], params[3]], [quiet[0][kept], quiet[1], quiet[3]], tolerance=1e-13)
    assert torch.isfinite(params[0]).all()
    assert not torch.equal(params[0][1], quiet[0][1])


def check_a_long_step_stays_finite(make, inside, **options):
    """Defect 13."""
    params = parameters()
    optimizer = make(params, lr=10.0, **options)
    for gradients in random_gradients(params, 15, scale=3.0):
        feed(optimizer, params, [gradients])
        for param in params:
            assert torch.isfinite(param).all()
            if inside:
                assert distances(param, optimizer=optimizer).max() <= 0.5 + 1e-12


def check_twenty_steps_follow_the_literal_formula(make, retraction):
    """Defect 14. grad = G - X sym(X^T G), then Q with positive diagonal of R, or the polar factor."""
    X = torch.nn.Parameter(parameters([(7, 3)])[0].detach())
    A, B = (random_matrix(7, k, generator=seeded(k)) for k in (7, 3))
    expected = X.detach().clone()
    optimizer = make([X], lr=0.05, metric="euclidean", retraction=retraction)
    for _ in range(20):
        feed(optimizer, [X], [[A.mT @ (A @ X.detach() - B)]])
        gradient = A.mT @ (A @ expected - B)
        moved = expected - 0.05 * (gradient - expected @ literal.sym(expected.mT @ gradient))
        if retraction == "qr":
            Q, R = torch.linalg.qr(moved)
            expected = Q * R.diagonal().sign()
        else:
            left, _, right = torch.linalg.svd(moved, full_matrices=False)
            expected = left @ right
        assert_same([X], [expected], tolerance=1e-10)
