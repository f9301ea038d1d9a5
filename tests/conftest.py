"""Test set-up: hypothesis draws the same examples on every machine, and torch starts from one seed."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("glideslope", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("glideslope")


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20240517)
