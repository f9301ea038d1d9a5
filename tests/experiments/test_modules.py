"""The modules outside of the package keep its rule: each can be read in one sitting."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("folder", ["benchmarks", "experiments"])
def test_every_module_is_short(folder):
    modules = list((ROOT / folder).rglob("*.py"))
    assert modules
    assert [path.name for path in modules if len(path.read_text(encoding="utf-8").splitlines()) >= 320] == []
