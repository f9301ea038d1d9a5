"""Imports of peers: libraries tests compare with may warn while they are imported, e.g. with a newer torch.

Warnings are errors in this suite, and an import that fails would stop it before the first test.
"""

import sys
import warnings
from importlib.machinery import PathFinder

PEERS = ("geoopt", "geotorch", "picard", "pogo", "pymanopt")


class QuietFinder:
    """Finds the modules of peers as Python does; warnings while one is executed are ignored."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] not in PEERS:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = quietly(spec.loader.exec_module)
        return spec


def quietly(execute):
    def exec_module(module):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            execute(module)

    return exec_module


def install():
    """Use it for the rest of the process."""
    if QuietFinder not in sys.meta_path:
        sys.meta_path.insert(0, QuietFinder)
