"""Every trajectory ends where it ended when recorded.json was written, up to rounding."""

import json

import pytest
import torch
from trajectories.configurations import CONFIGURATIONS
from trajectories.record import RECORDED, differences, summary

EXPECTED = json.loads(RECORDED.read_text())


def test_all_configurations_are_recorded():
    assert list(CONFIGURATIONS) == list(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_trajectory_is_as_recorded(name):
    threads = torch.get_num_threads()
    assert list(differences(summary(name), EXPECTED[name])) == []
    assert torch.get_num_threads() == threads
