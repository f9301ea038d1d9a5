"""The options of a step are checked once, when the rule is made."""

import dataclasses

import pytest

from glideslope.engine.rule import StepRule


@pytest.mark.parametrize("safe_radius", [0.91, 0.97, 0.999])
def test_a_radius_at_which_the_polar_factor_would_lose_digits_is_refused(safe_radius):
    with pytest.raises(ValueError, match=r'"polar" needs safe_radius <= 0.9.*got 0.9.*"newton-schulz"'):
        StepRule(normal_step="polar", safe_radius=safe_radius)


def test_a_rule_cannot_be_changed_after_its_check():
    """A step keeps what it prepared for a rule, and knows it by its options."""
    rule = StepRule()
    with pytest.raises(dataclasses.FrozenInstanceError):
        rule.safe_radius = 2.0
    assert hash(rule) == hash(StepRule())
