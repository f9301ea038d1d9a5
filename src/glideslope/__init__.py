"""glideslope: optimise over orthonormal matrices in PyTorch without QR, SVD or matrix exponentials."""

from importlib.metadata import version

from glideslope import formulas, theory

__version__ = version("glideslope")

__all__ = ["__version__", "formulas", "theory"]
