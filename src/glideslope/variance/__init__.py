"""Variance-reduced gradients of finite sums, section 3.3: the formulas, and SAGA and SVRG for training loops."""

from glideslope.variance.training_loop import SAGA, SVRG

__all__ = ["SAGA", "SVRG"]
