"""The distribution test on the built-in pair."""

import pytest

from specdemo.proof.distribution import distribution_test
from specdemo.proof.proof_request import DRAWS, EXAMPLE, Control
from specdemo.records.limits import parse_config

SOME_DRAWS = 400
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("control", [None, Control.ACCEPT_EVERYTHING])
def test_example_passes_the_true_rule_and_rejects_a_wrong_one(builtin_pair, control):
    *_, found = distribution_test(builtin_pair, parse_config(EXAMPLE), SOME_DRAWS, control)
    assert found.rejected is (control is not None), found.p_value
    assert found.alpha_in_range is (control is None), found.alpha
    assert found.passes_saved > 5 * found.passes


def test_example_rejects_the_published_wrong_block_verification(builtin_pair):
    *_, found = distribution_test(builtin_pair, parse_config(EXAMPLE), DRAWS, Control.BLOCK_COINS)
    assert found.p_value < 1e-6 and found.alpha_in_range
