"""A peer that warns while it is imported breaks no test; a warning of anything else is still an error."""

import importlib
import sys

import peer_imports
import pytest


@pytest.fixture
def warning_package(tmp_path, monkeypatch):
    """A package that warns at import as a peer does with a new torch, and again in a submodule that it imports."""
    package = tmp_path / "warns_at_import"
    package.mkdir()
    warn = "import warnings\nwarnings.warn('removed in the next release', {}, stacklevel=2)\n"
    (package / "__init__.py").write_text(warn.format("FutureWarning") + "from . import part\nanswer = part.answer\n")
    (package / "part.py").write_text(warn.format("DeprecationWarning") + "answer = 42\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield package.name
    for name in [name for name in sys.modules if name.partition(".")[0] == package.name]:
        del sys.modules[name]


def test_a_peer_that_warns_while_it_is_imported_is_imported(warning_package, monkeypatch):
    monkeypatch.setattr(peer_imports, "PEERS", (*peer_imports.PEERS, warning_package))
    assert importlib.import_module(warning_package).answer == 42


def test_a_warning_while_anything_else_is_imported_is_an_error(warning_package):
    with pytest.raises(FutureWarning, match="removed in the next release"):
        importlib.import_module(warning_package)


def test_our_own_package_is_none_of_the_peers():
    assert "glideslope" not in peer_imports.PEERS
