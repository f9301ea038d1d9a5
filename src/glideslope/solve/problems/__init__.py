"""Problems with known gradients, constants and, where there are any, known solutions."""

from glideslope.solve.problem import FiniteSum, Function, Optimum, Problem, RowSum
from glideslope.solve.problems.ica import ICA
from glideslope.solve.problems.joint_diagonalization import JointDiagonalization
from glideslope.solve.problems.linear import LinearProblem
from glideslope.solve.problems.pca import PCA
from glideslope.solve.problems.procrustes import Procrustes
from glideslope.solve.problems.quadratic import Quadratic

__all__ = [
    "ICA",
    "PCA",
    "FiniteSum",
    "Function",
    "JointDiagonalization",
    "LinearProblem",
    "Optimum",
    "Problem",
    "Procrustes",
    "Quadratic",
    "RowSum",
]
