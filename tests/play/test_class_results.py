"""What a class is told, from rounds made by hand."""

import pytest
from helpers.tiny import byte_tokenizer

from specdemo.play.class_results import ClassResults, class_judged
from specdemo.records.pieces import PieceTable
from specdemo.records.trace import Emission, Finish, Round, Status, Token

TOKENIZER = byte_tokenizer()
PIECES = PieceTable(TOKENIZER)


def id_of(letter: str) -> int:
    [token] = TOKENIZER(letter, add_special_tokens=False)["input_ids"]
    return token


def judged(draft: str, target: str) -> Round:
    """The round of a draft of letters by a target that writes ``target``, which is longer than the draft."""
    differing = [i for i, pair in enumerate(zip(draft, target, strict=False)) if pair[0] != pair[1]]
    kept = min(differing, default=len(draft))
    tokens = [
        Token(
            id_of(letter),
            q=1.0,
            p=float(i < kept),
            status=Status.ACCEPTED if i < kept else Status.DISCARDED,
            compared=i <= kept,
            rejected=i == kept,
        )
        for i, letter in enumerate(draft)
    ]
    status = Status.CORRECTED if kept < len(draft) else Status.BONUS
    emission = Emission(id_of(target[kept]), status, prob=1.0)
    return Round(0, 3, tuple(tokens), emission, 0.0, 0.0, 0.0, finish=Finish.STOPPED)


def told(drafts: list[str], target: str, model: str = "x", cut: str = ""):
    """The event about a class with these drafts."""
    distinct = list(dict.fromkeys(drafts))
    results = ClassResults(
        drafts=[distinct.index(draft) for draft in drafts],
        rounds=[judged(draft, target) for draft in distinct],
        cuts=[cut] * len(distinct),
        model=judged(model, target),
        drafter="draft-model",
    )
    return class_judged(results, PIECES)


def agreed(drafts: list[str], target: str = "zzzzzzzz") -> list[tuple[str, int]]:
    return [(PIECES.text([token["id"]]), token["count"]) for token in told(drafts, target)["agreed"]]


def test_every_draft_has_its_verdict_and_equal_ones_share_it():
    event = told(["ab", "ac", "ab", "q"], "abcdef", cut="more")
    assert event["type"] == "class-judged"
    assert event["drafts"] == [0, 1, 0, 2]
    assert [verdict["count"] for verdict in event["verdicts"]] == [2, 1, 1]
    assert {verdict["cut"] for verdict in event["verdicts"]} == {"more"}
    assert event["verdicts"][1]["round"]["emission"]["id"] == id_of("b")
    assert set(map(id_of, "abcqxz")) - {id_of("z")} <= set(event["pieces"])
    assert event["specials"] == sorted(PIECES.specials)


def test_figures_count_every_student():
    event = told(["ab", "ac", "ab", "q"], "abcdef", model="abq")
    # Compared 2, 2, 2, 1; accepted 2, 1, 2, 0; emitted 3, 2, 3, 1.
    assert event["alpha"] == pytest.approx(5 / 7) and event["tau"] == pytest.approx(9 / 4)
    assert event["model_alpha"] == pytest.approx(2 / 3) and event["model_name"] == "Draft model"


@pytest.mark.parametrize(
    ("drafts", "most"),
    [
        (["abc", "abd", "abx", "q"], [("a", 3), ("b", 3)]),
        (["abc", "abc", "abd", "q"], [("a", 3), ("b", 3), ("c", 2)]),
        (["ab", "ab", "ac", "ac"], [("a", 4)]),
        (["a", "a", "ab", "ab", "ab"], [("a", 5), ("b", 3)]),
        (["a", "a", "ab", "ab"], [("a", 4)]),
        (["a", "b", "c", "a"], []),
        (["abc"], []),
        (["abc", "xyz"], []),
    ],
    ids=str,
)
def test_the_class_agrees_for_as_long_as_more_than_half_of_those_left_write_the_same(drafts, most):
    assert agreed(drafts) == most


def test_what_most_agreed_on_has_the_target_s_statuses():
    event = told(["abq", "abq", "abr", "abq"], "abcdef")
    statuses = [(token["status"], token["rejected"]) for token in event["agreed"]]
    assert statuses == [(Status.ACCEPTED, False), (Status.ACCEPTED, False), (Status.DISCARDED, True)]


def test_the_longest_are_all_those_kept_furthest():
    assert told(["ab", "abc", "q", "abc", "abcx"], "abcdef")["longest"] == [1, 3, 4]
    assert told(["q", "r"], "abcdef")["longest"] == []


def test_the_target_s_text_goes_as_far_as_any_round_reached():
    assert told(["ab", "q"], "abcdef")["target"] == list(map(id_of, "abc"))
    assert told(["q"], "abcdef", model="abcd")["target"] == list(map(id_of, "abcde"))


@pytest.mark.parametrize(
    ("drafts", "model", "rates", "agreement", "longest"),
    [
        (
            ["ab", "ab", "aq", "r"],
            "ab",
            "The class, 4 drafts: 71% accepted, the draft model: 100%.",
            " Most agreed on “ab”, and so does the target.",
            " Kept longest: 2 drafts, 2 tokens of each.",
        ),
        (
            ["aq", "aq", "abc"],
            "q",
            "The class, 3 drafts: 71% accepted, the draft model: 0%.",
            " Most agreed on “aq”, of which the target keeps “a”.",
            " Kept longest: one draft, 3 tokens.",
        ),
        (
            ["q", "q"],
            "",
            "The class, 2 drafts: 0% accepted, the draft model: nothing.",
            " Most agreed on “q”; the target writes “a” instead.",
            " The target kept no draft's first token.",
        ),
        (
            ["a", "b"],
            "a",
            "The class, 2 drafts: 50% accepted, the draft model: 100%.",
            " No token was the first of most drafts.",
            " Kept longest: one draft, 1 token.",
        ),
        (
            ["q"],
            "a",
            "The class, 1 draft: 0% accepted, the draft model: 100%.",
            "",
            " The target kept no draft's first token.",
        ),
    ],
)
def test_a_class_is_told_in_words(drafts, model, rates, agreement, longest):
    assert told(drafts, "abcdef", model)["sentence"] == rates + agreement + longest
