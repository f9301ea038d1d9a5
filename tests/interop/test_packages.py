"""Where the trainers must be installed, an absent one fails; elsewhere it skips."""

import pytest
from interop.packages import INSTALLED, needs


def test_an_absent_package_skips_a_test_and_fails_where_it_must_be_there(monkeypatch):
    monkeypatch.delenv(INSTALLED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no_such_trainer is not installed; `make test-interop`"):
        needs("no_such_trainer")
    monkeypatch.setenv(INSTALLED, "1")
    with pytest.raises(ModuleNotFoundError, match="no_such_trainer"):
        needs("no_such_trainer")
