"""Tests of one `xdist_group` run in one worker, so that whatever they share is made once."""

import pytest


@pytest.mark.xdist_group("together")
def test_the_group_of_a_test_is_in_its_id_by_which_workers_are_chosen(request):
    assert request.node.nodeid.endswith("@together") == request.config.getoption("loadgroup", False)
