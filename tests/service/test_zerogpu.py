"""Jobs on a GPU that is lent by the call: another process computes, and a stop reaches it."""

import gc
import os
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from helpers.lent_gpu import CONTEXT, Lender
from helpers.tiny import service_of, tiny_pair

import specdemo.pairs.calibrate
from specdemo.engine.speculate import never
from specdemo.pairs.pair import Pair
from specdemo.records.limits import UserError
from specdemo.service.jobs import JOB_SPECS, JobKind, LostDeviceError, checked, perform
from specdemo.service.service import Service, local_service
from specdemo.service.zerogpu import JOB_S, MAX_S, MIN_S, on_calls, seconds_for

REQUEST = {"prompt": "abc", "mode": "raw", "max_new_tokens": 12}
LONG = {**REQUEST, "max_new_tokens": 1000}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def pair() -> Pair:
    return tiny_pair()


@pytest.fixture
def lender() -> Lender:
    return Lender()


@pytest.fixture
def service(pair: Pair, lender: Lender) -> Service:
    return local_service(lambda _name, _progress: pair, performer=on_calls(pair, perform, lender))


def emitted(events: Any) -> list[Any]:
    return [event["round"]["emission"] for event in events if event.get("lane") == "speculative"]


@pytest.mark.slow
def test_a_call_computes_in_another_process_and_gives_the_same_events(service, lender, pair):
    here = emitted(service_of(pair).events(JobKind.RUN, REQUEST, never))
    pair.costs.known.clear()
    events = list(service.events(JobKind.RUN, REQUEST, never))
    assert [event["type"] for event in events if event["type"] != "progress"][-1] == "end"
    assert emitted(events) == here
    assert lender.processes and os.getpid() not in lender.processes
    assert not pair.costs.known, "only the call measures"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "raw", "last"),
    [
        (JobKind.PROVE, {"proof": "greedy", "prompts": 1}, "end"),
        (JobKind.PLAY, {"text": "abc", "draft": "x"}, "turn"),
        (JobKind.CLASS, {"text": "abc", "drafts": ["x", "y"]}, "class-judged"),
        (JobKind.MEASURE, {"experiment": "overhead", "max_new_tokens": 4, "prompts": 1}, "end"),
    ],
)
def test_every_kind_of_job_is_done_inside_a_call(service, lender, kind, raw, last):
    assert list(service.events(kind, raw, never))[-1]["type"] == last
    assert len(lender.processes) == 1


@pytest.mark.slow
def test_stop_reaches_the_other_process(service):
    types, last = set(), {}
    for last in service.events(JobKind.RUN, LONG, lambda: "round" in types):
        types.add(last["type"])
    assert last["type"] == "end" and last["finish"] == "stopped"


@pytest.mark.slow
def test_a_visitor_who_leaves_ends_the_call_and_the_next_one_is_served(service, lender):
    source = service.events(JobKind.RUN, LONG, never)
    while next(source)["type"] != "round":
        pass
    source.close()
    assert list(service.events(JobKind.RUN, REQUEST, never))[-1]["type"] == "end"
    assert lender.results[0] < LONG["max_new_tokens"], "the call ended before its run would have"
    with pytest.raises(ProcessLookupError):
        os.kill(lender.processes[0], 0)


@pytest.mark.slow
def test_a_refusal_or_fault_of_the_call_or_the_lender_is_one_sentence(service, lender, pair, monkeypatch):
    def refused(words: str, **changes: Any) -> None:
        with pytest.raises(UserError, match=words):
            list(service.events(JobKind.RUN, REQUEST | changes, never))
        monkeypatch.undo()
        assert list(service.events(JobKind.RUN, REQUEST, never))[-1]["type"] == "end"

    monkeypatch.setattr(pair.tokenizer, "chat_template", None)
    refused(r"has no chat template; set the prompt mode to \"continue\"", mode="chat")
    spec = JOB_SPECS[JobKind.RUN]._replace(events=lambda *_: 1 / 0)
    monkeypatch.setitem(JOB_SPECS, JobKind.RUN, spec)
    refused(r"failed inside the program \(ZeroDivisionError\)")
    refusal: Any = RuntimeError()
    refusal.message = "You have exceeded\nyour quota"
    monkeypatch.setattr(lender, "refusal", refusal)
    refused(r"could not be used \(You have exceeded your quota\); please try")


@pytest.mark.parametrize(
    ("raw", "seconds"),
    [
        ({"max_new_tokens": 300, "baseline": False}, 45),
        ({"max_new_tokens": 300}, 55),
        ({"max_new_tokens": 300, "draft_alone": True}, 65),
        ({"max_new_tokens": 1, "baseline": False}, 36),
        *[({"max_new_tokens": odd}, 104) for odd in (1024, 1e9, -1, "x", None, float("nan"))],
        ({}, 104),
    ],
    ids=str,
)
def test_the_time_of_a_run_follows_from_its_lanes_and_tokens(raw, seconds):
    assert seconds_for(JobKind.RUN, raw) == seconds
    assert seconds_for(JobKind.RUN, raw, costs_known=True) == max(MIN_S, seconds - 30)


def test_every_kind_of_job_has_a_time():
    assert {*JOB_S, JobKind.RUN} == {*JobKind}
    assert all(MIN_S <= seconds_for(kind, {}) <= MAX_S for kind in JobKind)


@pytest.mark.slow
def test_pass_costs_are_measured_once_and_then_a_call_asks_for_less_time(service, pair, lender, monkeypatch):
    pair.costs.known.clear()
    measured = CONTEXT.Value("i", 0)
    find = specdemo.pairs.calibrate.find_batch_invariant_rows

    def counted(*asked: Any) -> Any:
        measured.value += 1
        return find(*asked)

    monkeypatch.setattr("specdemo.pairs.calibrate.find_batch_invariant_rows", counted)
    for _ in range(2):
        assert list(service.events(JobKind.RUN, REQUEST, never))[-1]["type"] == "end"
    longer = service.events(JobKind.RUN, LONG, never)
    while next(longer)["type"] != "round":
        pass
    longer.close()  # another cache length needs no other measurement
    assert measured.value == 1 and len(set(lender.processes)) == 3
    assert not pair.costs.known, "this process computes nothing"
    first, second, _ = lender.durations
    assert first == seconds_for(JobKind.RUN, REQUEST, costs_known=False) > second
    assert second == seconds_for(JobKind.RUN, REQUEST, costs_known=True)


@pytest.mark.slow
def test_a_process_whose_device_is_lost_is_not_used_again(pair):
    # The lender keeps a process whose call ends well, and drops one whose call raises.
    ends = []

    def lost(*_asked: Any) -> Any:
        raise LostDeviceError("The device failed.")
        yield

    def lend(duration: Any) -> Any:
        def handler(task: Any, *args: Any) -> Any:
            with suppress(LostDeviceError):
                yield from task(*args)
                ends.append("well")

        return lambda task: partial(handler, task)

    with pytest.raises(UserError, match="The device failed"):
        list(on_calls(pair, lost, lend)(pair, checked(JobKind.RUN, REQUEST), never))
    assert not ends


@pytest.mark.slow
def test_a_process_that_does_several_calls_records_passes_only_in_its_first(pair, lender):
    """With Triton kernels; another process cannot use what it has recorded, and records its own."""
    pytest.importorskip("triton", reason="needs the package triton")
    from helpers.gpu_kernels import executed, tiny

    size = {"vocab_size": len(pair.tokenizer)}
    models = [executed(tiny(**size)) for _ in range(2)]
    kernels = replace(pair, target=models[0], draft=models[1], precision="bf16")
    made = CONTEXT.Value("i", 0)

    def recorded(run: Any, generator: Any = None) -> Any:
        made.value += 1
        return run

    for model in models:
        model.execution.record = recorded

    def two_calls(*asked: Any) -> Any:
        for _ in range(2):
            before = made.value
            yield from perform(*asked)
            gc.collect()  # unlike a graph, what stands in for one refers to its run
            yield {"type": "recorded", "count": made.value - before}

    request = checked(JobKind.RUN, {**REQUEST, "max_new_tokens": 4, "k": 2})
    calls = [list(on_calls(kernels, two_calls, lender)(kernels, request, never)) for _ in range(2)]
    counts = [[event["count"] for event in events if event["type"] == "recorded"] for events in calls]
    assert counts[0] == counts[1], "this process has no recordings that the second could inherit"
    assert counts[0][0] > counts[0][1]
    written = emitted(calls[0])
    assert written and written == emitted(perform(kernels, request, never)) * 2
