"""Literal n x n definitions of the paper's formulas: slow, obvious, and the oracle of every optimised one."""

import torch

REAL_OF = {torch.complex64: torch.float32, torch.complex128: torch.float64}
WIDE_OF = {torch.float32: torch.float64, torch.complex64: torch.complex128}


def sym(M):
    return (M + M.mH) / 2


def skew(M):
    return (M - M.mH) / 2


def eye_like(M):
    return torch.eye(M.shape[-1], dtype=M.dtype).expand(M.shape)


def norm(M):
    return torch.linalg.matrix_norm(M)


def residual(X):
    S = X.mH @ X
    return S - eye_like(S)


def exact_distance(X):
    """Distance computed in double precision, whatever the type of X."""
    return norm(residual(X.to(WIDE_OF.get(X.dtype, X.dtype))))


def region_distance(X, normal_step="landing", safeguard="lemma"):
    """Distance in the norm of the safe region: Frobenius for the paper's step, spectral for the others, in double."""
    if normal_step == "landing" and safeguard != "exact":
        return exact_distance(X)
    return torch.linalg.matrix_norm(residual(X.to(WIDE_OF.get(X.dtype, X.dtype))), ord=2)


def skew_matrix(X, G, metric="canonical"):
    """The n x n skew matrix A with tangent part A X, eq. (5) or its Euclidean counterpart; one for both if n = p."""
    if metric == "canonical" or X.shape[-2] == X.shape[-1]:
        return skew(G @ X.mH)
    return 2 * skew(G @ X.mH) - X @ skew(X.mH @ G) @ X.mH


def landing_field(X, G, attraction, metric="canonical"):
    return skew_matrix(X, G, metric) @ X + attraction * X @ residual(X)


def safeguard(d, g, attraction, safe_radius):
    """Eq. (14) as printed."""
    pull = attraction * d * (1 - d)
    first = (pull + torch.sqrt(pull**2 + g**2 * (safe_radius - d))) / g**2
    return torch.clamp(first, max=1 / (2 * attraction))


def landing_step(X, G, step_size, attraction, safe_radius, metric="canonical", safeguarded=True):
    F = landing_field(X, G, attraction, metric)
    step = torch.full(X.shape[:-2], step_size, dtype=norm(F).dtype)
    if safeguarded:
        step = torch.minimum(step, safeguard(norm(residual(X)), norm(F), attraction, safe_radius))
    return X - step[..., None, None] * F


def inner(A, B):
    return (A.conj() * B).sum(dim=(-2, -1)).real


def random_matrix(*shape, dtype=torch.float64, generator=None):
    return torch.randn(*shape, dtype=dtype, generator=generator)


def point_at_distance(n, p, distance, *, batch=(), dtype=torch.float64, generator=None):
    """A random X with ‖X^H X - I‖_F equal to `distance` up to the rounding of its type, and not above it."""
    wide = WIDE_OF.get(dtype, dtype)
    Q = torch.linalg.qr(random_matrix(*batch, n, p, dtype=wide, generator=generator))[0]
    M = sym(random_matrix(*batch, p, p, dtype=wide, generator=generator))
    M = M / norm(M)[..., None, None]
    eigenvalues, V = torch.linalg.eigh(M)

    def at(radius):
        root = (1 + radius * eigenvalues).clamp(min=0).sqrt()
        return (Q @ ((V * root[..., None, :]) @ V.mH)).to(dtype)

    X = at(distance)
    margin = 1e-7 if dtype != wide else 1e-15
    while margin < distance and (exact_distance(X) > distance).any():
        X = at(distance - margin)
        margin *= 2
    return X
