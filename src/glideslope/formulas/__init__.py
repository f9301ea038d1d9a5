"""The formulas of the paper as pure functions on (*batch, n, p) tensors; the first layer, on torch alone."""

from glideslope.formulas.field import landing_field, riemannian_gradient, skew_field
from glideslope.formulas.merit import gradient_free_merit, merit, merit_gradient
from glideslope.formulas.orthogonality import distance, gram, residual, spectral_distance
from glideslope.formulas.penalty import penalised_gradient, penalty, penalty_gradient
from glideslope.formulas.retraction import (
    cayley_retraction,
    exponential_retraction,
    polar_retraction,
    qr_retraction,
    retract,
)
from glideslope.formulas.safeguard import exact_safeguard_step, safeguard_lower_bound, safeguard_step
from glideslope.formulas.step import landing_step, penalty_step, riemannian_step

__all__ = [
    "cayley_retraction",
    "distance",
    "exact_safeguard_step",
    "exponential_retraction",
    "gradient_free_merit",
    "gram",
    "landing_field",
    "landing_step",
    "merit",
    "merit_gradient",
    "penalised_gradient",
    "penalty",
    "penalty_gradient",
    "penalty_step",
    "polar_retraction",
    "qr_retraction",
    "residual",
    "retract",
    "riemannian_gradient",
    "riemannian_step",
    "safeguard_lower_bound",
    "safeguard_step",
    "skew_field",
    "spectral_distance",
]
