"""Finite sums, `minimize`, and the problems of the paper."""

from glideslope.solve import problems
from glideslope.solve.gradient_check import GradientCheck, check_gradient
from glideslope.solve.minimize import minimize
from glideslope.solve.solution import History, Record, Solution

__all__ = ["GradientCheck", "History", "Record", "Solution", "check_gradient", "minimize", "problems"]
