"""What is made of the streams that real servers sent, or that their documentation tells of."""

import copy
import json

import pytest
from helpers.recorded_streams import STREAMS, Read, events_of, read

from specdemo.records.limits import MAX_NEW_TOKENS, UserError
from specdemo.records.trace import Finish
from specdemo.watch.llama_server import LlamaServerReader
from specdemo.watch.lm_studio import PlainReader
from specdemo.watch.sglang import SglangReader
from specdemo.watch.steps import NOTHING_SAID
from specdemo.watch.vllm import NOT_DETAILED, VllmReader

COUNTING = "One, two, three, four, five, six, seven, eight, nine, ten. One, two, three, four, five, six."
LOGGED = {
    "llama-ngram-chat-numbers": (73, 73),
    "llama-draft-chat-eos-paris": (3, 8),
    "llama-ngram-chat-emoji": (12, 16),
    "llama-ngram-text-code": (66, 95),
}
"""Accepted and drafted tokens as the servers logged them beside the streams."""
LLAMA = [*LOGGED, "llama-draft-chat-numbers-stop-inside", "llama-none-chat-short"]
VLLM = ["vllm-chat-copy", "vllm-chat-mixed-logprobs", "vllm-completion-detailed", "vllm-draftmodel-greedy"]
DETAILED = [*VLLM, "documented-vllm-chat-detailed"]


def text_sent(name: str) -> str:
    """The text of a stream, by the simplest reading."""
    choices = [choice for event in events_of(name) for choice in event["choices"]]
    return "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)


def vllm_metrics(name: str) -> dict:
    return events_of(name)[-1]["metrics"]["speculative_decoding"]


@pytest.mark.parametrize("name", LLAMA)
def test_rounds_of_llama_cpp_add_up_to_what_it_counts_and_logs(name):
    made = read(LlamaServerReader("it"), events_of(name))
    last = events_of(name)[-1]["timings"]
    drafted, accepted = last.get("draft_n", 0), last.get("draft_n_accepted", 0)
    assert made.totals == (drafted, accepted, last["predicted_n"])
    assert LOGGED.get(name, (accepted, drafted)) == (accepted, drafted)
    assert made.text == text_sent(name) and made.outcome.rounds
    assert sum(step.seconds for step in made.steps) == pytest.approx(last["predicted_ms"] / 1000)
    prompts = [step.prompt_s for step in made.steps]
    assert prompts == [pytest.approx(last["prompt_ms"] / 1000), *[0] * (len(prompts) - 1)]
    said = f"The server counts {accepted} of {drafted} drafted tokens accepted"
    assert made.outcome.said.startswith(said) if drafted else made.outcome.said == ""


def test_rounds_of_llama_cpp_are_told_as_they_happen():
    events = events_of("llama-ngram-chat-numbers")
    reader = LlamaServerReader("it")
    before = read(reader, events[: len(events) // 2])
    assert len(before.early) > 10 and before.rounds[:11] == [(0, 0, 1)] * 11
    whole = read(LlamaServerReader("it"), events)
    assert whole.rounds == [*[(0, 0, 1)] * 13, *[(8, 8, 9)] * 9, (1, 1, 2)]
    assert len(whole.early) == len(whole.steps) - 1


def test_an_end_of_text_in_a_draft_ends_the_run_inside_it():
    made = read(LlamaServerReader("it"), events_of("llama-draft-chat-eos-paris"))
    assert made.rounds == [(0, 0, 1), (4, 3, 4), (4, 0, 1)]
    assert made.steps[-1].tokens[-1].special and made.outcome.finish is Finish.EOS
    assert made.text == "Paris is the capital."


def test_a_character_in_several_tokens_counts_them_all():
    made = read(LlamaServerReader("it"), events_of("llama-ngram-chat-emoji"))
    assert made.rounds[-2:] == [(8, 8, 9), (8, 4, 5)] and "🙂🙃" in made.text
    assert any(piece.text == b"" for step in made.steps for piece in step.tokens)


def test_text_that_was_held_back_brings_several_rounds_at_once_that_add_up():
    made = read(LlamaServerReader("it"), events_of("llama-draft-chat-numbers-stop-inside"))
    assert made.rounds == [*[(0, 0, 1)] * 1, *[(4, 0, 1)] * 3, *[(0, 0, 1)] * 2, (28, 8, 9)]
    assert made.text == "1234"


def test_several_rounds_at_once_are_told_before_those_after_them():
    made = read(LlamaServerReader("it"), [timings(1), timings(4, 2, 1, ms=11.0), timings(5, 2, 1, ms=21.0)])
    assert made.rounds == [(0, 0, 1), (0, 0, 1), (2, 1, 2), (0, 0, 1)]
    assert [step.seconds for step in made.steps] == pytest.approx([0.001, 0.005, 0.005, 0.01])


def test_a_server_without_drafts_has_rounds_of_a_token():
    made = read(LlamaServerReader("it"), events_of("llama-none-chat-short"))
    assert made.rounds == [(0, 0, 1)] * 8 and made.outcome.finish is Finish.EOS


def test_the_longest_run_ends_with_its_length():
    assert read(LlamaServerReader("it"), events_of("llama-ngram-text-code")).outcome.finish is Finish.LENGTH


@pytest.mark.parametrize("name", DETAILED)
def test_rounds_of_vllm_add_up_to_its_metrics(name):
    made, told = read(VllmReader("it"), events_of(name)), vllm_metrics(name)
    drafted, accepted, written = made.totals
    [*others, last] = told["per_step_accepted"]
    with_draft = [step for step in made.steps if step.drafted]
    assert [step.drafted for step in with_draft] == told["per_step_drafted"]
    assert [step.accepted for step in with_draft[:-1]] == others and with_draft[-1].accepted <= last
    assert drafted == told["num_draft_tokens"] and accepted <= told["num_accepted_draft_tokens"]
    assert written == events_of(name)[-1]["usage"]["completion_tokens"]
    assert made.text == text_sent(name) and made.outcome.rounds
    counted = f"{told['num_accepted_draft_tokens']} of {drafted} drafted tokens accepted"
    assert f"The server counts {counted}" in made.outcome.said
    assert f"{told['mean_acceptance_length']:.2f} tokens per pass with a draft" in made.outcome.said


def test_drafts_that_were_not_wanted_any_more_are_not_shown_as_accepted():
    made = read(VllmReader("it"), events_of("vllm-chat-copy"))
    assert made.rounds == [(0, 0, 1), (0, 0, 1), (0, 0, 1), (4, 3, 4), (0, 0, 1), (4, 2, 2)]
    assert vllm_metrics("vllm-chat-copy")["per_step_accepted"] == [3, 3]


def test_the_target_s_probabilities_are_read_where_vllm_tells_them():
    for name in ("vllm-chat-mixed-logprobs", "vllm-completion-detailed", "vllm-draftmodel-greedy"):
        pieces = [piece for step in read(VllmReader("it"), events_of(name)).steps for piece in step.tokens]
        assert all(piece.p is not None and 0 < piece.p <= 1 for piece in pieces)
        assert all(len(piece.top) == 2 and piece.top[0][1] >= piece.top[1][1] for piece in pieces)
        assert pieces[0].text == pieces[0].top[0][0]


def test_the_first_event_may_hold_more_than_the_prompt_s_own_token():
    events = events_of("vllm-draftmodel-greedy")
    first, second = events[1]["choices"][0], events[2]["choices"][0]
    merged = copy.deepcopy(events[2])
    merged["choices"][0]["delta"]["content"] = first["delta"]["content"] + second["delta"]["content"]
    merged["choices"][0]["token_ids"] = first["token_ids"] + second["token_ids"]
    merged["choices"][0]["logprobs"]["content"] = first["logprobs"]["content"] + second["logprobs"]["content"]
    apart = read(VllmReader("it"), events)
    together = read(VllmReader("it"), [events[0], merged, *events[3:]])
    assert together.outcome.rounds and together.rounds == apart.rounds and together.text == apart.text
    assert [step.prompt_s > 0 for step in together.steps] == [True, *[False] * (len(together.steps) - 1)]


def test_a_text_that_ended_by_itself_keeps_its_last_token_where_that_is_text():
    logprobs = {"content": [{"token": ".", "logprob": -0.1, "bytes": [46], "top_logprobs": []}]}
    choice = {"delta": {"content": "."}, "token_ids": [1], "logprobs": logprobs, "finish_reason": "stop"}
    last = timings(1)["choices"][0] | {"finish_reason": "stop"}
    for reader, event in (
        (VllmReader, {"choices": [choice]}),
        (LlamaServerReader, timings(1) | {"choices": [last]}),
    ):
        made = read(reader("it"), [event])
        assert made.outcome.finish is Finish.EOS
        assert made.text and not any(piece.special for step in made.steps for piece in step.tokens)


def test_vllm_without_the_option_is_shown_in_pieces_with_what_would_help():
    made = read(VllmReader("it"), events_of("documented-vllm-chat-plain"))
    assert not made.outcome.rounds and made.outcome.said == NOT_DETAILED and made.text == COUNTING
    assert {drafted for drafted, _, _ in made.rounds} == {0}


def test_reasoning_is_text_by_either_name():
    for key in ("reasoning", "reasoning_content"):
        events = [{"choices": [{"delta": {key: "Hm."}}]}, {"choices": [{"delta": {"content": "Yes."}}]}]
        assert read(VllmReader("it"), events).text == read(PlainReader("it"), events).text == "Hm.Yes."


def test_rounds_of_sglang_are_its_events_where_its_histogram_agrees():
    made = read(SglangReader("it"), events_of("documented-sglang-chat"))
    assert made.totals == (40, 22, 33) and made.outcome.rounds and made.text == COUNTING
    assert [accepted for _, accepted, _ in made.rounds[1:]] == [0, 1, 4, 2, 4, 0, 3, 4, 1, 3]
    assert "22 of 40 drafted tokens accepted (55% per drafted token), 3.20 tokens" in made.outcome.said


def test_sglang_may_have_kept_more_in_the_last_pass_than_was_wanted():
    events = json.loads(json.dumps(events_of("documented-sglang-chat")))
    events[-2]["sglext"]["spec_tokens_details"]["spec_correct_drafts_histogram"] = [2, 2, 1, 1, 4]
    made = read(SglangReader("it"), events)
    assert made.outcome.rounds and made.rounds[-1] == (4, 4, 4)


WRONG = [
    [3, 2, 1, 2, 2],
    [2, 2, 1, 2, 4],
    [2, 2, 0, 1, 5],
    [3, 2, 1, 1, 3],
    [1, 9],
    [],
    [10**8],
    "all",
    None,
]


@pytest.mark.parametrize("histogram", WRONG)
def test_sglang_is_shown_in_pieces_where_its_histogram_does_not_fit_its_events(histogram):
    events = json.loads(json.dumps(events_of("documented-sglang-chat")))
    events[-2]["sglext"]["spec_tokens_details"]["spec_correct_drafts_histogram"] = histogram
    made = read(SglangReader("it"), events)
    assert not made.outcome.rounds and made.totals == (0, 0, 33) and made.text == COUNTING
    assert "22 of 40" in made.outcome.said


def sglang_events(histogram: list[int], *written: tuple[str, int]) -> list[dict]:
    """Events of a text and how many tokens are written by then; passes of four drafted tokens each."""
    events: list[dict] = [
        {"choices": [{"delta": {"content": text}}], "usage": {"completion_tokens": count}}
        for text, count in written
    ]
    passes, correct = sum(histogram), sum(kept * count for kept, count in enumerate(histogram))
    details = {"spec_verify_ct": passes, "spec_num_correct_drafts": correct}
    details |= {"spec_num_proposed_drafts": 4 * passes, "spec_correct_drafts_histogram": histogram}
    return [*events, {"choices": [], "sglext": {"spec_tokens_details": details}}]


def test_tokens_of_sglang_without_a_text_yet_come_with_the_event_that_brings_it():
    made = read(SglangReader("it"), sglang_events([0, 0, 0, 1], ("a", 1), ("", 3), ("bcde", 5)))
    assert made.rounds == [(0, 0, 1), (4, 3, 4)] and made.text == "abcde"


@pytest.mark.parametrize("histogram", [[], [0], [1], [0, 0, 1]])
def test_a_text_of_sglang_that_ends_with_its_first_token_had_no_pass(histogram):
    made = read(SglangReader("it"), sglang_events(histogram, ("a", 1)))
    assert made.rounds == [(0, 0, 1)] and not made.outcome.rounds


def test_a_first_event_of_sglang_that_holds_a_pass_as_well_is_shown_in_pieces():
    made = read(SglangReader("it"), sglang_events([0, 0, 1], ("ab", 2), ("cde", 5)))
    assert made.rounds == [(0, 0, 1)] * 5 and not made.outcome.rounds


def test_sglang_without_details_is_shown_in_pieces():
    made = read(SglangReader("it"), events_of("documented-sglang-chat-plain"))
    assert not made.outcome.rounds and made.outcome.said == NOTHING_SAID and made.text == COUNTING


def test_lm_studio_is_shown_in_pieces_with_its_counts_at_the_end():
    made = read(PlainReader("it"), events_of("documented-lmstudio-chat"))
    assert not made.outcome.rounds and made.text == COUNTING and made.outcome.finish is Finish.EOS
    assert "22 of 40 drafted tokens accepted (55% per drafted token)." in made.outcome.said
    assert made.steps[0].prompt_s == pytest.approx(0.1) and made.steps[1].seconds == pytest.approx(0.1)
    assert read(PlainReader("it"), events_of("documented-lmstudio-chat-plain")).outcome.said == NOTHING_SAID


def test_drafts_that_lm_studio_never_looked_at_are_told():
    stats = {"total_draft_tokens_count": 9, "accepted_draft_tokens_count": 4}
    for place in ("stats", "usage"):
        events = [{"choices": [], place: {**stats, "ignored_draft_tokens_count": 2}}]
        assert read(PlainReader("it"), events).outcome.said.endswith(" 2 of them were never looked at.")


@pytest.mark.parametrize("name", ["documented-sglang-chat", *DETAILED])
@pytest.mark.parametrize("kept", [0, 1, 4])
def test_a_run_that_was_stopped_is_read_as_far_as_it_came(name, kept):
    reader = (SglangReader if "sglang" in name else VllmReader)("it")
    made = read(reader, events_of(name)[:kept])
    assert text_sent(name).startswith(made.text) and not made.outcome.rounds


@pytest.mark.parametrize("name", LLAMA)
def test_a_run_of_llama_cpp_may_be_stopped_behind_any_event(name):
    events = events_of(name)
    for kept in range(0, len(events), max(1, len(events) // 12)):
        made = read(LlamaServerReader("it"), events[:kept])
        timings = [event["timings"] for event in events[:kept] if "timings" in event]
        last = timings[-1] if timings else {"predicted_n": 0}
        drafted, accepted, written = made.totals
        assert (drafted, written) == (last.get("draft_n", 0), last["predicted_n"])
        assert accepted <= last.get("draft_n_accepted", 0) <= accepted + 7, "those that came were kept"
        assert text_sent(name).startswith(made.text)


def timings(predicted: int, drafted: int = 0, accepted: int = 0, ms: float = 1.0) -> dict:
    counts = {"predicted_n": predicted, "draft_n": drafted, "draft_n_accepted": accepted}
    return {"choices": [{"delta": {"content": "x"}}], "timings": {**counts, "predicted_ms": ms}}


@pytest.mark.parametrize(
    ("events", "what"),
    [
        ([timings(1), timings(2, 3, 4, 2.0)], "4 accepted of 3 drafted"),
        ([timings(2), timings(1, ms=2.0)], "predicted_n of 1 after 2"),
        ([timings(1, 4, 2), timings(2, 3, 2, 2.0)], "draft_n of 3 after 4"),
        ([timings(1), timings(2, ms=0.5)], "a time that runs backwards"),
        ([timings(1, ms=float("nan"))], "a time that runs backwards"),
        ([timings(1, ms=float("inf"))], "a time that runs backwards"),
        ([timings(-1)], "predicted_n of -1 after 0"),
        ([timings(True)], "predicted_n of True after 0"),
        ([timings(MAX_NEW_TOKENS + 1)], "more tokens than were asked for"),
        ([timings(999_999_999)], "more tokens than were asked for"),
        ([timings(1), timings(2, 9, 5, 2.0), timings(3, 18, 10, 3.0)], "more accepted than written"),
    ],
)
def test_a_llama_cpp_that_contradicts_itself_is_told_so(events, what):
    with pytest.raises(UserError) as told:
        read(LlamaServerReader("Box"), events)
    assert str(told.value) == f"Box tells counts that cannot be ({what}), so its rounds cannot be shown."


def vllm_events(**metrics) -> list[dict]:
    event = {"choices": [{"delta": {"content": "x"}, "token_ids": [1]}]}
    return [*[event] * 3, {"choices": [], "metrics": {"speculative_decoding": metrics}}]


@pytest.mark.parametrize(
    ("events", "what"),
    [
        (vllm_events(per_step_drafted=[2], per_step_accepted=[3]), "3 accepted of 2 drafted"),
        (vllm_events(per_step_drafted=[0], per_step_accepted=[10**8]), "100000000 accepted of 0 drafted"),
        (
            vllm_events(num_draft_tokens=2, num_accepted_draft_tokens=3, num_spec_steps=1),
            "3 accepted of 2 drafted",
        ),
        ([{"choices": [{"text": "x", "token_ids": [1] * 1025}]}], "more tokens than were asked for"),
    ],
)
def test_a_vllm_that_contradicts_itself_is_told_so(events, what):
    with pytest.raises(UserError) as told:
        read(VllmReader("Box"), events)
    assert f"({what})" in str(told.value)


@pytest.mark.parametrize("drafted", [129, 500, 999_999_999])
def test_rounds_too_long_to_show_are_told_and_cost_no_memory(drafted):
    many = vllm_events(per_step_drafted=[drafted], per_step_accepted=[drafted])
    for reader, events in (
        (VllmReader, many),
        (LlamaServerReader, [timings(1), timings(2, drafted, 1, 2.0)]),
    ):
        with pytest.raises(UserError, match=rf"^Box drafts {drafted} tokens in a round; at most 128 can be"):
            read(reader("Box"), events)


def test_vllm_s_lists_that_fit_no_events_are_not_believed():
    for metrics in (
        {"per_step_drafted": [4, 4], "per_step_accepted": [4]},
        {"per_step_drafted": [4] * 9, "per_step_accepted": [0] * 9},
        {"per_step_drafted": [4, 4], "per_step_accepted": [4, 0]},
        {"per_step_drafted": "many", "per_step_accepted": None},
        {"per_step_drafted": [-1], "per_step_accepted": [-2]},
    ):
        made = read(VllmReader("it"), vllm_events(**metrics))
        assert not made.outcome.rounds and made.totals == (0, 0, 3)


def test_an_sglang_or_lm_studio_that_contradicts_itself_is_told_so():
    written = {"usage": {"completion_tokens": 999_999_999}}
    with pytest.raises(UserError, match="more tokens than were asked for"):
        read(SglangReader("Box"), [{"choices": [{"delta": {"content": "x"}}], **written}])
    details = {"spec_verify_ct": 1, "spec_num_correct_drafts": 5, "spec_num_proposed_drafts": 4}
    stats = {"total_draft_tokens_count": 4, "accepted_draft_tokens_count": 5}
    for reader, last in (
        (SglangReader, {"sglext": {"spec_tokens_details": details}}),
        (PlainReader, {"stats": stats}),
    ):
        with pytest.raises(UserError, match=r"\(5 accepted of 4 drafted\)"):
            read(reader("Box"), [{"choices": [{"delta": {"content": "x"}}]}, {"choices": [], **last}])


RUBBISH = [None, 0, "x", [], {}, [None], [0], {"content": [0, {}]}, {"content": [{"top_logprobs": [1, {}]}]}]
RUBBISH += [{"tokens": [0, None, {}], "token_logprobs": 3, "top_logprobs": [1, {"\ud800": "x"}]}]
RUBBISH += [{"content": [{"token": "\ud800", "logprob": -(10**400), "bytes": [999], "top_logprobs": "x"}]}]
RUBBISH += [{"tokens": ["x"], "token_logprobs": [float("nan")], "top_logprobs": [{"\udfff": -float("inf")}]}]
RUBBISH += [
    {"content": [{"logprob": 3.0, "token": 7, "top_logprobs": [{"logprob": True, "token": "y"}] * 99}]}
]


@pytest.mark.parametrize("logprobs", RUBBISH, ids=range(len(RUBBISH)))
@pytest.mark.parametrize("reader", [VllmReader, SglangReader, PlainReader, LlamaServerReader])
def test_odd_probabilities_are_left_out(reader, logprobs):
    choice = {"delta": {"content": "x"}, "finish_reason": "stop", "logprobs": logprobs}
    made: Read = read(reader("it"), [{"choices": [choice], "timings": timings(1)["timings"]}])
    for piece in (piece for step in made.steps for piece in step.tokens):
        assert piece.p is None or 0 <= piece.p <= 1
        assert len(piece.top) <= 5 and all(0 <= p <= 1 for _, p in piece.top)
    assert made.text in ("x", "?", "")


@pytest.mark.parametrize("choices", [None, 0, "x", {}, [0], [None], [[]], [{"delta": 3}], [{"text": 3}]])
@pytest.mark.parametrize("reader", [VllmReader, SglangReader, PlainReader, LlamaServerReader])
def test_events_of_no_known_form_say_nothing(reader, choices):
    odd = {"usage": 3, "timings": 3, "metrics": 3, "sglext": 3, "stats": 3}
    assert read(reader("it"), [{"choices": choices, **odd}, {}]).steps == []


def test_the_recordings_are_small_and_tell_nothing_of_where_they_were_made():
    for path in STREAMS.iterdir():
        data = path.read_bytes()
        assert len(data) < 40_000 and b"/work" not in data and b"/home" not in data
