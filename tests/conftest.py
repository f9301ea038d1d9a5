"""Test set-up: the same hypothesis examples on every machine, torch from one seed, peers imported without warnings."""

import peer_imports
import pytest
import torch
from hypothesis import settings

settings.register_profile("glideslope", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("glideslope")
peer_imports.install()


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20240517)
