"""Trainers as tests import them: absent ones skip a test, but not where `make test-interop` has installed them."""

import importlib
import importlib.util
import os

import pytest

INSTALLED = "GLIDESLOPE_INTEROP_INSTALLED"


def needs(name):
    """A package by its name; if it is absent, the test is skipped with the reason, or fails where it must be there."""
    if importlib.util.find_spec(name) is None and not os.environ.get(INSTALLED):
        pytest.skip(f"{name} is not installed; `make test-interop` installs it")
    return importlib.import_module(name)
