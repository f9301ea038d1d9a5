"""One start of two ranks for all quick tests that need them."""

import pytest
from distributed.launch import run_on
from distributed.together import quick_jobs


@pytest.fixture(scope="session")
def on_two_ranks(tmp_path_factory):
    """By job, the results of both ranks. Its tests are in one `xdist_group`, so that one worker starts the ranks."""
    found = run_on(2, quick_jobs, tmp_path_factory.mktemp("ranks"), seconds=280)
    return {job: [rank[job] for rank in found] for job in found[0]}
