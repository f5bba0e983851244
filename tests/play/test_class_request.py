"""What a class may ask, and how it is refused."""

import pytest

from specdemo.play.class_request import parse_class
from specdemo.records.limits import MAX_CLASS_DRAFTS, MAX_DRAFT_CHARS, UserError

GOOD = {"text": "The capital of France is", "drafts": [" Paris", " a city", " Paris"]}


def test_a_request_keeps_every_draft_in_the_order_given():
    request = parse_class(GOOD)
    assert request.text == GOOD["text"] and request.drafts == (" Paris", " a city", " Paris")
    assert len(parse_class({**GOOD, "drafts": ["x"] * MAX_CLASS_DRAFTS}).drafts) == MAX_CLASS_DRAFTS


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"text": ""}, "^The prompt is empty"),
        ({"text": None}, "^The prompt must be text"),
        ({"drafts": None}, "^drafts must be a list of texts"),
        ({"drafts": "Paris"}, "^drafts must be a list of texts"),
        ({"drafts": {"a": "b"}}, "^drafts must be a list of texts"),
        ({"drafts": []}, "^Nobody has written a draft yet"),
        ({"drafts": ["x"] * (MAX_CLASS_DRAFTS + 1)}, "^There are 301 drafts; 300 at most"),
        ({"drafts": [7]}, "^Draft 1: The draft must be text"),
        ({"drafts": ["a", "  "]}, "^Draft 2: The draft is empty; type"),
        ({"drafts": ["a", "b", "x" * (MAX_DRAFT_CHARS + 1)]}, "^Draft 3: The draft has 401 characters"),
        ({"drafts": ["\ud800"]}, "^Draft 1: The draft has half of a character pair"),
        ({"drafts": ["a\x07"]}, r"^Draft 1: The draft has the control character U\+0007"),
        ({"draft": "x"}, "^Unknown setting 'draft'"),
    ],
)
def test_bad_values_get_one_sentence(change, words):
    with pytest.raises(UserError, match=words) as caught:
        parse_class({**GOOD, **change})
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")
