"""Orthonormal matrices as points, as views of parameters, and as marked weights of a model."""

from glideslope.stiefel.adoption import adopt_, release_
from glideslope.stiefel.models import orthogonalize_, param_groups, project_
from glideslope.stiefel.points import project, random_stiefel
from glideslope.stiefel.report import OrthogonalityReport, OrthogonalityRow, orthogonality
from glideslope.stiefel.sharding import shard_placement
from glideslope.stiefel.views import as_matrices, copy_matrices_, default_view, matrix_shape

__all__ = [
    "OrthogonalityReport",
    "OrthogonalityRow",
    "adopt_",
    "as_matrices",
    "copy_matrices_",
    "default_view",
    "matrix_shape",
    "orthogonality",
    "orthogonalize_",
    "param_groups",
    "project",
    "project_",
    "random_stiefel",
    "release_",
    "shard_placement",
]
