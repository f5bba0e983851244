"""Explanations of runs that users of other programs have reported, and their printed lines, also damaged."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdemo.cli.main import main
from specdemo.doctor.chart import round_chart
from specdemo.doctor.finding import Finding, explain
from specdemo.doctor.reading import FORM, MAX_PASTED, Reading, read, reading_from
from specdemo.records.limits import UserError

LLAMA = """\
0.06.895 I slot print_timing: id  1 | task 0 | prompt eval time =     300.11 ms /    20 tokens (   15.01 ms per token,    66.64 tokens per second)
0.06.895 I slot print_timing: id  1 | task 0 |        eval time =    2296.72 ms /   256 tokens (    8.97 ms per token,   111.46 tokens per second)
0.06.896 I slot print_timing: id  1 | task 0 | draft acceptance = 0.64479 (  167 accepted /   259 generated), mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)
0.06.896 I statistics     draft-eagle3: #calls(b,g,a) =    1     87     87, #gen drafts =     87, #acc drafts =    70, #gen tokens =    259, #acc tokens =   167, #mean acc len = 2.92, #acc rate/pos = (0.805, 0.632, 0.483), dur(b,g,a) = 0.005, 325.555, 0.114 ms
"""  # noqa: E501
LLAMA_JSON = """{"prompt_n": 1, "predicted_n": 200, "predicted_ms": 11082.606,
    "predicted_per_second": 18.0463, "draft_n": 347, "draft_n_accepted": 65}"""
LLAMA_OLD = """decoded  371 tokens in   34.412 seconds, speed:   10.781 t/s
n_draft   = 16
n_predict = 371
n_drafted = 912
n_accept  = 313
accept    = 34.320%"""
VLLM = """\
INFO 04-09 11:27:10 [loggers.py:259] Engine 000: Avg prompt throughput: 967.2 tokens/s, Avg generation throughput: 342.2 tokens/s, Running: 1 reqs, Waiting: 0 reqs
INFO 04-09 11:17:53 [loggers.py:259] Engine 000: Avg prompt throughput: 1357.9 tokens/s, Avg generation throughput: 128.3 tokens/s, Running: 1 reqs, Waiting: 0 reqs
INFO 04-09 11:17:53 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 1.97, Accepted throughput: 63.00 tokens/s, Drafted throughput: 65.20 tokens/s, Accepted: 630 tokens, Drafted: 652 tokens, Per-position acceptance rate: 0.966, Avg Draft acceptance rate: 96.6%
"""  # noqa: E501
VLLM_UNFIT = """\
INFO 05-06 06:11:23 [loggers.py:271] Engine 000: Avg prompt throughput: 1436.3 tokens/s, Avg generation throughput: 93.9 tokens/s, Running: 3 reqs, Waiting: 0 reqs
INFO 05-06 06:11:23 [metrics.py:101] SpecDecoding metrics: Mean acceptance length: 1.03, Accepted throughput: 2.50 tokens/s, Drafted throughput: 365.14 tokens/s, Accepted: 25 tokens, Drafted: 3652 tokens, Per-position acceptance rate: 0.027, 0.000, 0.000, 0.000, Avg Draft acceptance rate: 0.7%
"""  # noqa: E501
VLLM_0 = (
    "INFO 10-16 19:05:47 metrics.py:367] Speculative metrics: Draft acceptance rate: 0.642, "
    "System efficiency: 0.598, Number of speculative tokens: 3, Number of accepted tokens: 8547, "
    "Number of draft tokens: 13311, Number of emitted tokens: 10616."
)
VLLM_COUNTERS = """vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 4000.0
vllm:spec_decode_num_drafts_total{engine="1",model_name="m"} 816.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 33712.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 12208.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 99999.0"""
SGLANG = """\
[10:27:57 TP0] Decode batch. #running-req: 1, #token: 108, accept len: 2.17, accept rate: 0.54, cuda graph: True, gen throughput (token/s): 0.39, #queue-req: 0,
[10:27:57 TP0] Decode batch. #running-req: 1, #token: 186, accept len: 1.95, accept rate: 0.49, cuda graph: True, gen throughput (token/s): 178.86, #queue-req: 0,
[10:27:58 TP0] Decode batch. #running-req: 1, #token: 258, accept len: 1.80, accept rate: 0.45, cuda graph: True, gen throughput (token/s): 165.41, #queue-req: 0,
"""  # noqa: E501
LM_STUDIO = """"stats": {"stopReason": "eosFound", "tokensPerSecond": 40.5, "predictedTokensCount": 120,
    "totalDraftTokensCount": 160, "acceptedDraftTokensCount": 70, "rejectedDraftTokensCount": 35,
    "ignoredDraftTokensCount": 55}"""
PASTED = [LLAMA, LLAMA_JSON, LLAMA_OLD, VLLM, VLLM_UNFIT, VLLM_0, VLLM_COUNTERS, SGLANG, LM_STUDIO]
OVERHEAD = "drafting, verification or overhead"

REPORTS: dict[str, tuple[dict[str, Any], list[str], dict[str, float | None]]] = {
    "llama.cpp#25908, slower at 90% accepted": (
        {"tau": 3.8, "acceptance": 90, "plain_rate": 170, "rate": 165.4, "draft_rate": 474.6},
        ["verification or overhead", "draft too slow"],
        {"round_ms": 22.97, "draft_ms": 6.55, "rest_ms": 10.54, "s_theory": 1.80},
    ),
    "llama.cpp#27342, four users": (
        {"plain_rate": 34.14, "rate": 25.32, "users": 4, "k": 4},
        ["batch"],
        {"speedup": 0.742, "tau": None, "cost": None},
    ),
    "llama.cpp#26750, 35.8% on one backend and 92.2% on another": (
        {"plain_rate": 90, "rate": 61, "acceptance": 35.8, "elsewhere": 92.2, "k": 3},
        ["a fault in one of the two setups", OVERHEAD],
        {"tau": 2.074, "break_even_alpha": 0.82},
    ),
    "llama.cpp#28196, 1.58× on a GPU that gave 1.06× elsewhere": (
        {"plain_rate": 80.8, "rate": 128, "tau": 2.46, "k": 3},
        [OVERHEAD],
        {"speedup": 1.584, "cost": 1.553},
    ),
    "vllm#9539, which rate is it": ({"text": VLLM_0}, [], {"tau": 2.393, "alpha_drafted": 0.464}),
    "vllm#54691, a long context": (
        {"plain_rate": 71, "rate": 16, "k": 4, "context": 185_000},
        ["context"],
        {"speedup": 0.225, "alpha_compared": None},
    ),
    "vllm#39680, slower at 96.6% accepted": (
        {"text": VLLM},
        ["overhead of the program"],
        {"tau": 1.966, "alpha_compared": 0.966, "cost": 5.24, "break_even_alpha": None, "best_k": 0},
    ),
    "vllm#41789, 0.7% accepted": (
        {"text": VLLM_UNFIT},
        ["the draft does not fit the target"],
        {"tau": 1.027},
    ),
    "vllm#20780, k = 7 where 3 was measured best": (
        {"plain_rate": 1000 / 7.07, "rate": 1000 / 5.2, "tau": 2.47, "k": 7},
        [OVERHEAD, "k too long"],
        {"best_k": 3, "speedup": 1.36},
    ),
    "openvino#36484, the draft on an NPU": (
        {"plain_rate": 12.2, "rate": 7.1, "acceptance": 35, "k": 3, "draft_rate": 1000 / 34.3},
        ["draft too slow", "verification or overhead"],
        {"s_theory": 0.909, "draft_ms": 102.9},
    ),
    "sglang#11948, an accept rate of 0.5": (
        {"text": SGLANG},
        [],
        {"tau": 1.973, "k": 3, "alpha_drafted": 0.324, "speedup": None},
    ),
    "llama.cpp#12603, a story": (
        {"text": LLAMA_JSON},
        ["the draft predicts this text badly"],
        {"tau": 1.481},
    ),
}


def found_in(request: dict[str, Any]) -> Finding:
    return explain(reading_from(request))


@pytest.mark.parametrize("report", REPORTS)
def test_a_report_is_explained_by_its_numbers(report):
    request, causes, values = REPORTS[report]
    found = found_in(request)
    assert [cause.name for cause in found.causes] == causes
    for name, value in values.items():
        assert getattr(found, name) == (None if value is None else pytest.approx(value, rel=0.005)), name


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (LLAMA, {"tokens": 256, "accepted": 167, "drafted": 259, "rate": 111.46, "draft_ms": 325.555 / 259}),
        (LLAMA, {"positions": (0.805, 0.632, 0.483), "context": 20}),
        (LLAMA_JSON, {"tokens": 200, "accepted": 65, "drafted": 347, "rate": 18.0463}),
        (LLAMA_OLD, {"k": 16, "tokens": 371, "accepted": 313, "drafted": 912, "rate": 10.781}),
        (VLLM, {"plain_rate": 342.2, "rate": 128.3, "accepted": 630, "rounds": 652, "users": 1}),
        (VLLM + VLLM, {"accepted": 1260, "drafted": 1304, "rounds": 1304, "rate": 128.3}),
        (VLLM_0, {"k": 3, "alpha": 0.642, "alpha_kind": "after rejection", "accepted": None}),
        (VLLM_COUNTERS, {"rounds": 4816, "drafted": 33712, "accepted": 12208}),
        (SGLANG, {"tau": 1.973, "alpha_kind": "per slot", "k": 3, "rate": 172.135, "users": 1}),
        (LM_STUDIO, {"rate": 40.5, "tokens": 120, "accepted": 70, "drafted": 160, "compared": 105}),
    ],
)
def test_the_lines_of_a_program_are_read(text, values):
    reading = read(text)
    expected = {
        name: pytest.approx(value, abs=1e-3) if type(value) is float else value
        for name, value in values.items()
    }
    assert {name: getattr(reading, name) for name in values} == expected


def test_each_acceptance_rate_is_named():
    assert "counts agreeing tokens after a rejected one" in found_in({"text": VLLM_0}).sentences[0]
    assert "÷ (k + 1)" in found_in({"text": SGLANG}).sentences[0]
    newer = (
        SGLANG.replace("rate: 0.54", "rate: 0.39").replace("rate: 0.49", "rate: 0.32").replace("0.45", "0.27")
    )
    assert read(newer).alpha_kind == "drafted" and read(newer).k == 3
    assert read(SGLANG.replace("0.54", "0.91")).alpha is None, "it fits neither meaning"
    counted = found_in({"text": LM_STUDIO})
    assert counted.alpha_compared == pytest.approx(2 / 3) and not counted.is_estimate
    assert found_in({"tau": 2, "k": 3}).is_estimate


def test_speeds_that_do_not_belong_together_are_not_explained():
    found = found_in({"plain_rate": 10, "rate": 40, "tau": 2, "k": 4, "users": 3, "context": 20_000})
    assert [cause.name for cause in found.causes] == ["the two speeds do not belong together"]
    (nothing,) = found_in(
        {"text": LLAMA.replace("167 accepted", "0 accepted").replace("259 g", "0 g")}
    ).causes
    assert nothing.name == "nothing was drafted"


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({}, "No numbers were found"),
        ({"text": "hello"}, "No numbers were found"),
        ({"text": 5}, "must be a string"),
        ({"text": "x" * (MAX_PASTED + 1)}, "paste at most 100,000"),
        ({"rate": "x"}, "rate must be a number"),
        ({"acceptance": 101}, "acceptance must be from 0 to 100"),
        ({"file": "x"}, "Unknown setting 'file'"),
    ],
)
def test_a_form_without_usable_numbers_is_refused(request_, message):
    with pytest.raises(UserError, match=message):
        reading_from(request_)


@st.composite
def damaged(draw: Any) -> str:
    """Draw printed lines with parts cut out, doubled, swapped or replaced by odd numbers."""
    text = draw(st.sampled_from(PASTED)) + draw(st.sampled_from(["", *PASTED]))
    odd = st.sampled_from(
        ["", "0", "-1", "1e999", "nan", "9" * 400, ",", "٣", "1,2,3", "0.0", "=", "\n", "%"]
    )
    for _ in range(draw(st.integers(1, 6))):
        start = draw(st.integers(0, len(text)))
        end = draw(st.integers(start, min(len(text), start + 40)))
        text = text[:start] + draw(odd | st.text(max_size=4)) + text[end:]
    return text


@given(
    text=damaged() | st.text(max_size=200),
    numbers=st.dictionaries(st.sampled_from(list(FORM)), st.floats(1, 100)),
)
def test_damaged_lines_never_fail_and_give_only_possible_figures(text, numbers):
    try:
        reading = reading_from({"text": text} | numbers)
    except UserError:
        return
    found = explain(reading)
    json.dumps(vars(found), default=vars, allow_nan=False)
    round_chart(found)
    for rate in (found.alpha_drafted, found.alpha_compared, found.break_even_alpha):
        assert rate is None or 0 <= rate <= 1
    assert found.tau is None or found.tau >= 1
    assert found.rest_ms is None or found.rest_ms >= 0


def test_a_share_may_follow_punctuation():
    assert read("12 tokens,62.5% draft tokens accepted").alpha == 0.625
    assert read("...1,062.5% draft tokens accepted").alpha is None, "not 62.5"


def test_a_long_line_is_read_in_linear_time():
    for part in (
        "eval time = 1 ms / 1 tokens (",
        "spec_accept_length ",
        "1,",
        "#gen drafts = 1, ",
        "accepted / ",
    ):
        read((part * MAX_PASTED)[:MAX_PASTED])


def test_the_chart_shows_the_round_and_the_target_alone_for_as_many_tokens():
    found = found_in(REPORTS["openvino#36484, the draft on an NPU"][0])
    chart = round_chart(found)
    assert chart is not None and found.tau is not None and found.pass_ms is not None
    times = {trace["uid"]: trace["x"] for trace in chart["light"]["data"]}
    assert sum(times[part][0] for part in times) == pytest.approx(found.tau * found.pass_ms)
    assert sum(times[part][1] for part in times) == pytest.approx(found.round_ms)
    assert round_chart(found_in({"text": LLAMA})) is None


LLAMA_SLOW = """\
draft acceptance rate = 0.90122 (  666 accepted /   739 generated)
statistics draft: #calls = 370, #gen drafts = 370, #acc drafts = 352, #gen tokens = 739, #acc tokens = 666, dur(b,g,a) = 0.011, 7611.3, 0.098 ms
       eval time =   52411.22 ms /  1036 tokens (   50.59 ms per token,    19.77 tokens per second)
"""  # noqa: E501


def test_advice_says_what_it_would_bring_and_a_small_excess_names_no_cause():
    slow = found_in({"text": LLAMA_SLOW, "plain_rate": 25})
    verification, drafting = slow.causes
    assert verification.name == "verification or overhead", "1 of 81 ms cannot be verification: a rounding"
    assert "about 75 means that verification costs nothing, about 25 that there is" in verification.measure
    assert "with free drafts, the speedup would be 0.93×" in drafting.reason
    assert "k = 1" not in drafting.measure, "no draft length pays"
    best = found_in(REPORTS["llama.cpp#25908, slower at 90% accepted"][0])
    assert "Best draft length: 1, with about 1.01×" in " ".join(best.sentences)
    backend = found_in(REPORTS["llama.cpp#26750, 35.8% on one backend and 92.2% on another"][0])
    assert "With 92%, the speedup would be about 1.23×." in backend.causes[0].reason


def test_the_command_reads_a_file_and_options(capsys, tmp_path):
    log = tmp_path / "server.log"
    log.write_text(VLLM, encoding="utf-8")
    assert main(["explain", str(log)]) == 0
    printed = capsys.readouterr().out
    assert "Speedup: 0.37× (slower)" in printed and "1. Overhead of the program. At least 6.6 ms" in printed
    assert main(["explain", str(log), "--plain-rate", "100"]) == 0
    assert "Speedup: 1.28×" in capsys.readouterr().out
    assert main(["explain", str(tmp_path / "none.log")]) == 2
    assert main(["explain"]) == 2
    assert "No numbers were found" in capsys.readouterr().err


def test_a_reading_says_nothing_by_itself():
    assert explain(Reading()).causes == ()
