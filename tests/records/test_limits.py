"""Request checks: every bad value gets one sentence, every good request is accepted."""

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdemo.lab.lab_request import parse_lab
from specdemo.play.class_drafts import parse_class
from specdemo.play.game import parse_turn
from specdemo.proof.proof_request import parse_proof
from specdemo.quiz.questions import QUESTIONS
from specdemo.quiz.quiz import number_in
from specdemo.records.limits import MAX_K, MAX_PROMPT_CHARS, UserError, parse_config, reason_of
from specdemo.records.trace import AUTO, Mode, Rule, RunConfig
from specdemo.ui.controls import settings_from

GOOD = {"prompt": "The capital of France is"}
TURN = {"text": "abc", "draft": " d", "second_draft": " e", "written": [1], "scores": {}}
PROOF = {"proof": "distribution", "prompt": "abc", "draws": 9, "rule": "true-rule"}
LAB = {"experiment": "draft-length", "k": 4, "temperature": 0.0, "max_new_tokens": 9, "prompts": 2}
PARSERS: dict[str, tuple[Any, dict[str, Any]]] = {
    "run": (
        parse_config,
        {**GOOD, "k": 4, "seed": 1, "script": "", "rule": "greedy", "drafter": "draft-model"},
    ),
    "play": (parse_turn, TURN),
    "class": (parse_class, {"text": "abc", "drafts": [" d", " e", " d"]}),
    "prove": (parse_proof, PROOF),
    "prove by audit": (parse_proof, {"proof": "shared-noise", "prompts": 2, "temperature": 0.5}),
    "measure": (parse_lab, {**LAB, "prompt": "abc", "mode": "raw", "seed": 1}),
    "quiz": (lambda raw: number_in(raw, len(QUESTIONS)), {"question": 1}),
}


def test_missing_settings_get_their_defaults_and_the_rule_follows_the_temperature():
    assert parse_config(GOOD) == RunConfig(prompt=GOOD["prompt"])
    assert parse_config({**GOOD, "temperature": 0.8}).rule is Rule.REJECTION
    assert parse_config({**GOOD, "temperature": 0}).rule is Rule.GREEDY
    assert parse_config({**GOOD, "temperature": 1e-9}).temperature == 0.0
    assert parse_config({**GOOD, "mode": "raw", "k": 4.0}).mode is Mode.RAW


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": " \n"}, "prompt is empty"),
        ({"prompt": None}, "prompt must be text"),
        ({"prompt": "x" * (MAX_PROMPT_CHARS + 1)}, "shorten the prompt to 8,000"),
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
        ({"rule": "rejection", "temperature": 0}, "needs a temperature of 0.001 or more"),
        ({"mode": "poem"}, "mode must be one of"),
        ({"drafter": "oracle"}, "Unknown drafter"),
        ({"drafter": []}, "Unknown drafter"),
        ({"k": "automatic"}, "k must be a whole number from 1 to 12, or auto"),
        ({"script": "x"}, "needs the scripted drafter"),
        ({"drafter": "scripted"}, "needs a script"),
        ({"drafter": "scripted", "script": 7}, "script must be text"),
        ({"drafter": "scripted", "script": "x" * 9000}, "9,000 characters; shorten the script"),
        ({"drafter": "scripted", "script": "\ud800"}, "lone surrogate"),
        ({"drafter": "scripted", "script": "a\x1b[31m"}, "contains the control character U\\+001B"),
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


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from([*RunConfig.__dataclass_fields__, "other"]), ANYTHING))
def test_an_accepted_mapping_has_a_rule_and_a_draft_length_within_bounds(raw):
    with suppress(UserError):
        config = parse_config({**GOOD, **raw})
        assert (config.temperature == 0) == (config.rule is Rule.GREEDY)
        assert config.k == AUTO or 1 <= config.k <= MAX_K


def refused(parse: Any, raw: Any) -> str | None:
    try:
        parse(raw)
    except UserError as error:
        sentence = str(error)
        assert sentence.endswith(".") and sentence.isprintable() and len(sentence) <= 300
        return sentence
    return None


LONG = "ab" * 5_000_000
NASTY: list[Any] = [
    *(math.nan, math.inf, -math.inf, 1e308, 3.7, -1, 10**9, 10**400, -(10**400), True, False),
    *("", "x\x00y", "\x85", "\ud800", "\udfff x", "3", "NaN", LONG, "9" * 5_000),
    *([], [None], [[[]]], [math.nan], [10**400], ["\ud800"] * 3, [1] * 2_000_000),
    *({}, {"a": {}}, {"one": 1}, {5: 5}, {"\ud800": None}, {LONG: 1}),
    *(b"x", object(), (1,), {1}),
]


@pytest.mark.parametrize("name", PARSERS)
def test_nasty_values_are_accepted_or_refused_in_one_sentence(name):
    parse, good = PARSERS[name]
    assert refused(parse, good) is None
    for key in good:
        sentences = [refused(parse, {**good, key: value}) for value in NASTY]
        assert len(list(filter(None, sentences))) > len(NASTY) / 2, key


KEYS = ["colour", "__proto__", "\ud800", "\u202e", "x\ny", 5, None, (), LONG]


@pytest.mark.parametrize("name", [name for name in PARSERS if name != "quiz"])
def test_unknown_keys_are_refused_in_one_sentence(name):
    parse, good = PARSERS[name]
    for key in KEYS:
        assert (refused(parse, {**good, key: 1}) or "").startswith("Unknown setting "), key


@settings(max_examples=50)
@given(st.sampled_from(list(PARSERS)), st.data())
def test_every_parser_accepts_or_refuses_anything_in_one_sentence(name, data):
    parse, good = PARSERS[name]
    changes = st.dictionaries(st.sampled_from(list(good)) | st.text(max_size=4), ANYTHING, max_size=4)
    refused(parse, {**good, **data.draw(changes)})


TEXTS = [("run", "prompt"), ("play", "text"), ("play", "draft"), ("play", "second_draft")]
TEXTS += [("class", "text"), ("prove", "prompt"), ("measure", "prompt")]


@pytest.mark.parametrize(("name", "key"), TEXTS)
def test_control_characters_are_refused_by_name(name, key):
    parse, good = PARSERS[name]
    for code in (0, 1, 8, 0x0B, 0x0C, 0x0E, 0x1B, 0x1F, 0x7F, 0x80, 0x85, 0x9F):
        sentence = refused(parse, {**good, key: f"ab{chr(code)}c"})
        assert f"contains the control character U+{code:04X} at position 3; remove" in sentence


def test_tabs_line_breaks_and_marks_of_direction_are_text():
    for text in ("a\tb\nc\r\nd", "\u202eabc\u2066", "é\u0301\u200d👩\u200d🚀\ufeff"):
        assert parse_config({"prompt": text}).prompt == text


@pytest.mark.parametrize(
    "key", ["prompt", "k", "temperature", "seed", "mode", "baseline", "trace", "__proto__"]
)
def test_settings_in_a_link_are_accepted_or_refused_in_one_sentence(key):
    texts = [value for value in NASTY if isinstance(value, str)]
    texts += ["1_0", "٣", "1e999", "0x10", "-1", "1e9", "3.7", "true", "auto", "1" * 1_000_000 + "x"]
    for text in texts:
        refused(lambda raw: settings_from(raw, "abc"), {key: text})
    assert settings_from({"k": "4", "temperature": ".5"}, "abc")["temperature"] == 0.5


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ValueError("No such file."), "No such file"),
        (ValueError("\n\nLoading failed!\nmore"), "Loading failed"),
        (ValueError("Not valid:\n  layers (1) must be 4"), "Not valid: layers (1) must be 4"),
        (ValueError("Errors in:"), "Errors in"),
        (ValueError(), "ValueError"),
        (ValueError("x" * 500), "x" * 200),
    ],
)
def test_the_reason_of_an_error_fits_into_a_sentence(error, reason):
    assert reason_of(error) == reason
