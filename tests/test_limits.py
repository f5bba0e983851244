"""The door: every bad value gets one sentence, every good one a configuration."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdemo.limits import MAX_K, MAX_PROMPT_CHARS, UserError, parse_config
from specdemo.trace import AUTO, Mode, Rule, RunConfig

GOOD = {"prompt": "The capital of France is"}


def test_defaults_are_those_of_the_configuration():
    assert parse_config(GOOD) == RunConfig(prompt=GOOD["prompt"])


def test_the_rule_follows_the_temperature():
    assert parse_config({**GOOD, "temperature": 0.8}).rule is Rule.REJECTION
    assert parse_config({**GOOD, "temperature": 0}).rule is Rule.GREEDY
    assert parse_config({**GOOD, "temperature": 1e-9}).temperature == 0.0
    assert parse_config({**GOOD, "mode": "raw", "k": 4.0}).mode is Mode.RAW


def test_lanes_are_asked_for_by_name():
    config = parse_config({**GOOD, "baseline": False, "draft_alone": True})
    assert not config.baseline and config.draft_alone


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": " \n"}, "prompt is empty"),
        ({"prompt": None}, "prompt must be text"),
        ({"prompt": "x" * (MAX_PROMPT_CHARS + 1)}, "shorten it"),
        ({"prompt": "\ud800"}, "surrogate"),
        ({"k": 0}, f"k must be from 1 to {MAX_K}"),
        ({"k": 3.7}, "whole number"),
        ({"k": "4"}, "whole number"),
        ({"k": True}, "whole number"),
        ({"k": math.nan}, "whole number"),
        ({"k": 10**400}, "k must be from"),
        ({"temperature": -1}, "temperature must be from 0 to 2"),
        ({"temperature": math.inf}, "temperature must be a number"),
        ({"temperature": 10**400}, "temperature must be"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"seed": 2**32}, "seed"),
        ({"max_new_tokens": 10**9}, "max_new_tokens"),
        ({"rule": "coin"}, "rule must be one of"),
        ({"rule": ["greedy"]}, "rule must be one of"),
        ({"rule": "greedy", "temperature": 1}, "greedy rule needs temperature 0"),
        ({"rule": "rejection", "temperature": 0}, "needs a temperature above 0"),
        ({"mode": "poem"}, "mode must be one of"),
        ({"drafter": "oracle"}, "Unknown drafter"),
        ({"drafter": []}, "Unknown drafter"),
        ({"k": "automatic"}, "k must be a whole number from 1 to 12, or auto"),
        ({"script": "x"}, "needs the scripted drafter"),
        ({"drafter": "scripted"}, "needs a script"),
        ({"drafter": "scripted", "script": 7}, "script must be text"),
        ({"drafter": "scripted", "script": "x" * 9000}, "9,000 characters; shorten it"),
        ({"drafter": "scripted", "script": "\ud800"}, "lone surrogate"),
        ({"baseline": 1}, "baseline must be true or false"),
        ({"draft_alone": "yes"}, "draft_alone must be true or false, not 'yes'"),
        ({"colour": "red"}, "Unknown setting 'colour'"),
    ],
)
def test_bad_values_get_one_sentence(change, words):
    with pytest.raises(UserError, match=words) as caught:
        parse_config({**GOOD, **change})
    sentence = str(caught.value)
    assert "\n" not in sentence and len(sentence) < 300 and sentence.endswith(".")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(st.dictionaries(st.sampled_from([*RunConfig.__dataclass_fields__, "other"]), ANYTHING))
def test_whatever_comes_in_either_parses_or_is_refused_in_words(raw):
    try:
        config = parse_config(raw)
    except UserError as error:
        assert str(error).endswith(".") and "\n" not in str(error)
    else:
        assert (config.temperature == 0) == (config.rule is Rule.GREEDY)
        assert config.k == AUTO or 1 <= config.k <= MAX_K
