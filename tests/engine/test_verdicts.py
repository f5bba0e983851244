"""The effect of a verdict on the text, in plain numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdemo.engine.verdicts import truncate_at_eos

EOS = frozenset({0})


@pytest.mark.parametrize(
    ("accepted", "token", "drafted", "emitted", "kept", "compared", "own", "ended"),
    [
        (0, 5, [], [5], 0, 0, True, False),
        (0, 5, [1, 2], [5], 0, 1, True, False),
        (1, 5, [1, 2], [1, 5], 1, 2, True, False),
        (2, 5, [1, 2], [1, 2, 5], 2, 2, True, False),
        (1, 0, [1, 2], [1, 0], 1, 2, True, True),
        (2, 5, [0, 2], [0], 1, 1, False, True),
        (2, 5, [1, 0], [1, 0], 2, 2, False, True),
        (1, 5, [1, 0], [1, 5], 1, 2, True, False),
    ],
)
def test_what_enters_the_text(accepted, token, drafted, emitted, kept, compared, own, ended):
    assert truncate_at_eos(accepted, token, drafted, EOS) == (
        accepted,
        token,
        emitted,
        kept,
        compared,
        own,
        ended,
    )


@given(st.lists(st.integers(0, 3), max_size=6), st.integers(0, 3), st.data())
def test_it_ends_at_the_first_end_of_text_and_nowhere_else(drafted, token, data):
    accepted = data.draw(st.integers(0, len(drafted)))
    found = truncate_at_eos(accepted, token, drafted, EOS)
    assert found.emitted == [*drafted[:accepted], token][: len(found.emitted)]
    assert found.ended == (0 in found.emitted) and 0 not in found.emitted[:-1]
    assert len(found.emitted) == found.kept + found.own
    assert found.kept <= found.compared <= min(len(drafted), found.kept + 1)
