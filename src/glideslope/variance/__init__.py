"""Variance-reduced gradients of finite sums, section 3.3: SAGA and SVRG for training loops; `minimize` uses `estimate`."""

from glideslope.variance.training_loop import SAGA, SVRG

__all__ = ["SAGA", "SVRG"]
