"""Test set-up: the same hypothesis examples on every machine, torch from one seed, peers imported without warnings."""

import peer_imports
import pytest
import torch
from hypothesis import settings

settings.register_profile("glideslope", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("glideslope")
peer_imports.install()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let `xdist_group` work: pytest-xdist 3.8 writes the group to `_nodeid`, and pytest 9.2 reads `_id` only."""
    for item in items:
        grouped = getattr(item, "_nodeid", item.nodeid)
        if grouped != item.nodeid:
            item._id = type(item._id).parse(grouped)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(20240517)
