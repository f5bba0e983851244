"""The rounds that readers make of streams: recorded from real servers, random, contradictory, or rubbish."""

import pytest
from helpers.recorded_streams import events_of, read, text_sent
from hypothesis import given
from hypothesis import strategies as st

from specdemo.records.limits import MAX_NEW_TOKENS, UserError
from specdemo.records.trace import Finish
from specdemo.watch.llama_server import LlamaServerReader
from specdemo.watch.reader import Reader
from specdemo.watch.vllm import VllmReader, assign_drafts

# Accepted and drafted tokens as the servers logged them when the streams were recorded, and the last rounds.
INSIDE = "llama-draft-chat-numbers-stop-inside"
LLAMA = {
    "llama-ngram-chat-numbers": ((73, 73), [*[(0, 0, 1)] * 13, *[(8, 8, 9)] * 9, (1, 1, 2)], Finish.LENGTH),
    "llama-draft-chat-eos-paris": ((3, 8), [(0, 0, 1), (4, 3, 4), (4, 0, 1)], Finish.EOS),
    "llama-ngram-chat-emoji": (
        (12, 16),
        [(8, 8, 9), (8, 4, 5)],
        Finish.EOS,
    ),  # several tokens for a character
    "llama-ngram-text-code": ((66, 95), [(7, 4, 5), *[(0, 0, 1)] * 3], Finish.LENGTH),
    INSIDE: ((8, 40), [(0, 0, 1), *[(4, 0, 1)] * 3, (10, 3, 4), (9, 3, 4), (9, 2, 3)], Finish.EOS),  # shares
    "llama-none-chat-short": ((0, 0), [(0, 0, 1)] * 8, Finish.EOS),
}
VLLM = ["vllm-chat-copy", "vllm-chat-mixed-logprobs", "vllm-completion-detailed", "vllm-draftmodel-greedy"]
DETAILED = [*VLLM, "documented-vllm-chat-detailed"]
PLAIN = ["documented-sglang-chat-plain", "documented-lmstudio-chat-plain", "documented-vllm-chat-plain"]
READERS = [LlamaServerReader, VllmReader, Reader]


def llama_event(predicted: int, drafted: int = 0, accepted: int = 0, ms: float = 1.0) -> dict:
    counts = {"predicted_n": predicted, "draft_n": drafted, "draft_n_accepted": accepted}
    return {"choices": [{"delta": {"content": "x"}}], "timings": {**counts, "predicted_ms": ms}}


def vllm_events(*sizes: int, **metrics) -> list[dict]:
    """Events with these numbers of tokens, then the metrics."""
    events = [
        {"choices": [{"delta": {"content": "x"}, "token_ids": [1] * size}]} for size in sizes or (1, 1, 1)
    ]
    return [*events, {"choices": [], "metrics": {"speculative_decoding": metrics}}]


@pytest.mark.parametrize("name", LLAMA)
def test_rounds_of_llama_cpp_add_up_to_its_counts_and_its_log(name):
    made = read(LlamaServerReader("it"), events_of(name))
    (accepted, drafted), rounds, finish = LLAMA[name]
    last = events_of(name)[-1]["timings"]
    assert made.totals == (drafted, accepted, last["predicted_n"])
    assert made.counts[-len(rounds) :] == rounds and made.end.finish is finish
    assert made.rounds[-1].tokens[-1].special == (finish is Finish.EOS)
    assert name == INSIDE or len(made.end.rounds) == 1, "a round is returned as soon as the next one begins"
    assert made.text == text_sent(name) and made.end.has_rounds
    assert sum(one.seconds for one in made.rounds) == pytest.approx(last["predicted_ms"] / 1000)
    prompts = [one.prompt_s for one in made.rounds]
    assert prompts == [pytest.approx(last["prompt_ms"] / 1000), *[0] * (len(prompts) - 1)]
    counted = f"The server counted {accepted} of {drafted} draft tokens as accepted"
    assert made.end.summary.startswith(counted) if drafted else made.end.summary == ""
    assert any(one.is_share for one in made.rounds) == (name == INSIDE)


@pytest.mark.parametrize(
    ("sums", "rounds"),
    [
        ((4, 2, 1), [(1, 1, 2, True), (1, 0, 1, True)]),
        ((4, 0, 0), [(0, 0, 1, False)] * 3),
        ((4, 200, 1), [(100, 1, 2, True), (100, 0, 1, True)]),  # too long a draft for one round
        ((4, 3, 2), [(3, 2, 3, False)]),  # one round
    ],
)
def test_rounds_that_arrive_in_one_event_get_equal_shares(sums, rounds):
    made = read(LlamaServerReader("it"), [llama_event(1), llama_event(*sums, ms=11.0)])
    found = [(one.drafted, one.accepted, len(one.tokens), one.is_share) for one in made.rounds[1:]]
    assert found == rounds
    assert [one.seconds for one in made.rounds[1:]] == pytest.approx([0.01 / len(rounds)] * len(rounds))


drafts = st.tuples(st.integers(0, 6), st.integers(0, 6)).map(lambda one: (one[0], min(one)))
runs = st.lists(drafts, min_size=1, max_size=20)  # tokens drafted and accepted in each round
hidings = st.sets(st.integers(1, 160), max_size=40)


def llama_events(run: list[tuple[int, int]], hidden: set[int]) -> list[dict]:
    """An event for each token, except those ``hidden``, which the event after them counts."""
    events, written, drafted_n, accepted_n = [], 0, 0, 0
    total = sum(accepted + 1 for _, accepted in run)
    for index, (drafted, accepted) in enumerate(run):
        drafted_n, accepted_n = drafted_n + drafted, accepted_n + accepted
        for _ in range(accepted + 1):
            written += 1
            if written in hidden and written < total:
                continue
            counts = {"predicted_n": written, "draft_n": drafted_n, "draft_n_accepted": accepted_n}
            timings = {**counts, "prompt_ms": 50.0, "predicted_ms": 0.001 + 10.0 * index}
            events.append({"choices": [{"delta": {"content": f"{written},"}}], "timings": timings})
    return events


@given(runs, hidings)
def test_rounds_of_llama_cpp_are_exact_if_each_token_has_an_event_and_totals_always(run, hidden):
    counts = [(drafted, accepted, accepted + 1) for drafted, accepted in run]
    exact = read(LlamaServerReader("it"), llama_events(run, set()))
    assert exact.counts == counts
    assert exact.text == "".join(f"{number}," for number in range(1, exact.totals[2] + 1))
    made = read(LlamaServerReader("it"), llama_events(run, hidden))
    assert made.totals == exact.totals
    assert sum(one.seconds for one in made.rounds) <= 0.01 * len(run)
    assert sum(one.prompt_s for one in made.rounds) == 0.05


@given(runs, hidings, st.integers(0, 60))
def test_a_run_stopped_anywhere_leaves_possible_rounds(run, hidden, count):
    events = llama_events(run, hidden)[:count]
    made = read(LlamaServerReader("it"), events)
    last = events[-1]["timings"] if events else {"draft_n": 0, "predicted_n": 0}
    assert (made.totals[0], made.totals[2]) == (last["draft_n"], last["predicted_n"])
    for drafted, accepted, written in made.counts[:-1]:
        assert written == accepted + 1 <= drafted + 1


@pytest.mark.parametrize("name", DETAILED)
def test_rounds_of_vllm_add_up_to_its_metrics(name):
    made = read(VllmReader("it"), events_of(name))
    metrics = events_of(name)[-1]["metrics"]["speculative_decoding"]
    drafted, accepted, written = made.totals
    [*others, last] = metrics["per_step_accepted"]
    with_draft = [one for one in made.rounds if one.drafted]
    assert [one.drafted for one in with_draft] == metrics["per_step_drafted"]
    assert [one.accepted for one in with_draft[:-1]] == others and with_draft[-1].accepted <= last
    assert drafted == metrics["num_draft_tokens"] and accepted <= metrics["num_accepted_draft_tokens"]
    assert written == events_of(name)[-1]["usage"]["completion_tokens"]
    assert made.text == text_sent(name) and made.end.has_rounds
    assert f"{metrics['num_accepted_draft_tokens']} of {drafted} draft tokens as acc" in made.end.summary
    assert f"{metrics['mean_acceptance_length']:.2f} tokens per pass with a draft" in made.end.summary


def test_draft_tokens_beyond_the_end_of_a_run_are_not_shown_as_accepted():
    made = read(VllmReader("it"), events_of("vllm-chat-copy"))  # per_step_accepted is [3, 3]
    assert made.counts == [(0, 0, 1), (0, 0, 1), (0, 0, 1), (4, 3, 4), (0, 0, 1), (4, 2, 2)]


@pytest.mark.parametrize(
    ("sizes", "accepted", "rounds"),
    [
        ([1, 1], [], [0, 0]),
        ([1, 1], [0], [(4, 0), 0]),  # the earliest event
        ([3, 1, 3], [2, 2], [(4, 2), 0, (4, 2)]),
        ([1, 3, 1, 2], [0, 2, 1], [(4, 0), (4, 2), 0, (4, 1)]),
        ([5, 2], [4, 3], [(4, 4), (4, 2)]),  # cut off by the length limit
        ([5, 1], [4, 3], [(4, 4), (4, 1)]),
        ([5, 3], [], None),
        ([1, 1], [1], [0, (4, 1)]),
        ([3, 4], [2], None),
        ([6], [1, 3], None),  # two passes in one event
        ([1], [0, 0], None),
        ([], [1], None),
    ],
)
def test_drafts_of_vllm_are_assigned_to_events_in_order(sizes, accepted, rounds):
    found = assign_drafts(sizes, [(4, one) for one in accepted])
    assert found == (rounds and [one or (0, 0) for one in rounds])


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 6)), max_size=24))
def test_random_passes_of_vllm_are_found_if_each_came_by_itself(run):
    sizes = [accepted + 1 if with_draft else 1 for with_draft, accepted in run]
    drafts = [(6, accepted) for with_draft, accepted in run if with_draft]
    found = assign_drafts(sizes, drafts)
    assert found is not None and [draft for draft in found if draft[0]] == drafts
    assert all(size == accepted + 1 for size, (_, accepted) in zip(sizes, found, strict=True))


def test_several_passes_in_one_event_of_vllm_are_shown_in_pieces():
    events = events_of("vllm-draftmodel-greedy")
    first, second = events[1]["choices"][0], events[2]["choices"][0]
    both = {
        "delta": {"content": first["delta"]["content"] + second["delta"]["content"]},
        "token_ids": first["token_ids"] + second["token_ids"],
        "logprobs": {"content": first["logprobs"]["content"] + second["logprobs"]["content"]},
    }
    made = read(VllmReader("it"), [events[0], {"choices": [both]}, *events[3:]])
    assert not made.end.has_rounds and made.text == text_sent("vllm-draftmodel-greedy")
    assert set(made.counts) == {(0, 0, 1)} and "draft tokens as accepted" in made.end.summary
    assert [one.prompt_s > 0 for one in made.rounds] == [True, *[False] * (len(made.rounds) - 1)]


@pytest.mark.parametrize(
    ("drafted", "accepted"),
    [([], None), ([4, 4], [4]), ([4] * 9, [0] * 9), ([4, 4], [4, 0]), ("many", None), ([-1], [-2])],
)
def test_lists_of_vllm_that_fit_no_events_are_ignored(drafted, accepted):
    made = read(VllmReader("it"), vllm_events(per_step_drafted=drafted, per_step_accepted=accepted))
    assert not made.end.has_rounds and made.totals == (0, 0, 3)
    assert made.end.summary == VllmReader.not_detailed


@pytest.mark.parametrize("name", VLLM[1:])
def test_the_targets_probabilities_are_read_if_vllm_sends_them(name):
    tokens = [token for one in read(VllmReader("it"), events_of(name)).rounds for token in one.tokens]
    assert all(token.p is not None and 0 < token.p <= 1 for token in tokens)
    assert all(len(token.top) == 2 and token.top[0][1] >= token.top[1][1] for token in tokens)
    assert tokens[0].text == tokens[0].top[0][0]


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize("reader", [Reader, VllmReader])
def test_a_server_that_reports_no_rounds_is_shown_in_pieces(name, reader):
    made = read(reader("it"), events_of(name))
    assert not made.end.has_rounds and made.text == text_sent(name)
    assert {drafted for drafted, _, _ in made.counts} == {0}
    assert made.rounds[0].prompt_s > 0 and all(one.seconds > 0 for one in made.rounds[1:])
    assert made.end.summary == ("" if reader is Reader else VllmReader.not_detailed)


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_reasoning_is_text_by_either_name(key):
    events = [{"choices": [{"delta": {key: "Hm."}}]}, {"choices": [{"delta": {"content": "Yes."}}]}]
    assert read(Reader("it"), events).text == "Hm.Yes."


def test_a_text_that_ended_by_itself_keeps_its_last_token_if_that_is_text():
    logprobs = {"content": [{"token": ".", "logprob": -0.1, "bytes": [46], "top_logprobs": []}]}
    choice = {"delta": {"content": "."}, "token_ids": [1], "logprobs": logprobs, "finish_reason": "stop"}
    for reader, more in ((VllmReader, {}), (LlamaServerReader, {"timings": llama_event(1)["timings"]})):
        made = read(reader("it"), [{"choices": [choice], **more}])
        assert made.end.finish is Finish.EOS
        assert made.text == "." and not made.rounds[-1].tokens[-1].special


TOO_MANY = "more tokens than requested"
BACKWARDS = "a time that runs backwards"
LLAMA_LIES = [
    ([llama_event(1), llama_event(2, 3, 4, 2.0)], "4 accepted of 3 drafted"),
    ([llama_event(2), llama_event(1, ms=2.0)], "predicted_n of 1 after 2"),
    ([llama_event(1, 4, 2), llama_event(2, 3, 2, 2.0)], "draft_n of 3 after 4"),
    *(([llama_event(1), llama_event(2, ms=ms)], BACKWARDS) for ms in (0.5, float("nan"), float("inf"))),
    *(([llama_event(count)], f"predicted_n of {count} after 0") for count in (-1, True)),
    *(([llama_event(count)], TOO_MANY) for count in (MAX_NEW_TOKENS + 1, 999_999_999)),
    ([llama_event(1), llama_event(2, 9, 5, 2.0), llama_event(3, 18, 10, 3.0)], "more accepted than written"),
]
ONE_STEP = {"num_draft_tokens": 2, "num_accepted_draft_tokens": 3, "num_spec_steps": 1}
VLLM_LIES = [
    (vllm_events(per_step_drafted=[2], per_step_accepted=[3]), "3 accepted of 2 drafted"),
    (vllm_events(per_step_drafted=[0], per_step_accepted=[10**8]), "100000000 accepted of 0 drafted"),
    (vllm_events(**ONE_STEP), "3 accepted of 2 drafted"),
    (vllm_events(MAX_NEW_TOKENS + 1), TOO_MANY),
]
LIES = [
    *((LlamaServerReader, *case) for case in LLAMA_LIES),
    *((VllmReader, *case) for case in VLLM_LIES),
]


@pytest.mark.parametrize(("reader", "events", "what"), LIES, ids=range(len(LIES)))
def test_a_server_that_contradicts_itself_is_refused(reader, events, what):
    with pytest.raises(UserError) as raised:
        read(reader("Box"), events)
    assert str(raised.value) == f"Box reports impossible counts ({what}), so the rounds cannot be shown."


@pytest.mark.parametrize("drafted", [129, 999_999_999])
def test_rounds_too_long_to_show_are_refused_and_cost_no_memory(drafted):
    vllm = vllm_events(per_step_drafted=[drafted], per_step_accepted=[drafted])
    llama = [llama_event(1), llama_event(2, drafted, 1, 2.0)]
    for reader, events in ((VllmReader, vllm), (LlamaServerReader, llama)):
        with pytest.raises(
            UserError, match=rf"^Box drafts {drafted} tokens in a round, but this page shows at most 128"
        ):
            read(reader("Box"), events)


RUBBISH = [
    *(None, 0, "x", [], {}, [None], [0]),
    {"content": [0, {}]},
    {"content": [{"top_logprobs": [1, {}]}]},
    {"content": [{"token": "\ud800", "logprob": -(10**400), "bytes": [999], "top_logprobs": "x"}]},
    {"content": [{"logprob": 3.0, "token": 7, "top_logprobs": [{"logprob": True, "token": "y"}] * 99}]},
    {"tokens": [0, None, {}], "token_logprobs": 3, "top_logprobs": [1, {"\ud800": "x"}]},
    {"tokens": ["x"], "token_logprobs": [float("nan")], "top_logprobs": [{"\udfff": -float("inf")}]},
]


@pytest.mark.parametrize("logprobs", RUBBISH, ids=range(len(RUBBISH)))
@pytest.mark.parametrize("reader", READERS)
def test_odd_probabilities_are_left_out(reader, logprobs):
    choice = {"delta": {"content": "x"}, "finish_reason": "stop", "logprobs": logprobs}
    made = read(reader("it"), [{"choices": [choice], "timings": llama_event(1)["timings"]}])
    for token in (token for one in made.rounds for token in one.tokens):
        assert token.p is None or 0 <= token.p <= 1
        assert len(token.top) <= 5 and all(0 <= p <= 1 for _, p in token.top)
    assert made.text in ("x", "?", "")


@pytest.mark.parametrize("choices", [None, 0, "x", {}, [0], [None], [[]], [{"delta": 3}], [{"text": 3}]])
@pytest.mark.parametrize("reader", READERS)
def test_events_of_no_known_form_are_ignored(reader, choices):
    odd = {"usage": 3, "timings": 3, "metrics": 3}
    assert read(reader("it"), [{"choices": choices, **odd}, {}]).rounds == []
