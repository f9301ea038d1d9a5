"""Every test here is marked `interop`, needs no network, and lets other packages warn."""

import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is imported


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.interop)
            item.add_marker(pytest.mark.filterwarnings("default"))


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
