"""Races of a watched server with one that does not draft."""

import pytest
from helpers.watched_runs import RAW, saved, seen, undrafted
from helpers.watched_server import Answer, replayed, stand_in, streamed

from specdemo.records import trace_file
from specdemo.records.limits import UserError
from specdemo.records.trace import Finish, dump
from specdemo.watch.run import NO_RACE

RACE = {**RAW, "baseline": True}


def test_a_race_is_run_with_a_server_that_does_not_draft(opened):
    name = "llama-ngram-chat-numbers"
    server = opened.enter_context(stand_in("llama-models.json", replayed(name)))
    alone = opened.enter_context(stand_in("llama-models.json", undrafted(name)))
    events = seen(server, RACE, alone=alone)
    assert events[-1]["badge"]["kind"] == "same" and events[-1]["totals"]["identical"] is True
    assert events[-1]["totals"]["speedup"] == pytest.approx(0.96 / 0.617484, rel=0.05)
    start = next(event for event in events if event["type"] == "start")
    assert start["run"]["config"]["baseline"] is True and NO_RACE not in start["run"]["watched"]["silent"]
    assert {event["lane"] for event in events if event["type"] == "round"} == {"speculative", "baseline"}
    assert server.asked[0][1]["messages"] == alone.asked[0][1]["messages"]
    assert dict(trace_file.load(dump(saved(events))).totals) == events[-1]["totals"]


def test_a_race_of_two_texts_shows_where_they_diverge(opened):
    server = opened.enter_context(stand_in("llama-models.json", replayed("llama-draft-chat-eos-paris")))
    alone = opened.enter_context(stand_in("llama-models.json", replayed("llama-none-chat-short")))
    badge = seen(server, RACE, alone=alone)[-1]["badge"]
    assert badge["kind"] == "different" and "from output token 1 on" in badge["text"]


def test_without_such_a_server_there_is_no_race_and_the_run_says_so(opened):
    server = opened.enter_context(stand_in("llama-models.json", replayed("llama-draft-chat-eos-paris")))
    start, *_, end = [event for event in seen(server, RACE) if event["type"] != "progress"]
    assert start["run"]["config"]["baseline"] is False and NO_RACE in start["run"]["watched"]["silent"]
    assert end["badge"] is None and end["totals"]["speedup"] is None
    start = next(event for event in seen(server, RAW) if event["type"] == "start")
    assert NO_RACE not in start["run"]["watched"]["silent"]


def test_a_server_without_drafts_that_drafts_is_refused(opened):
    name = "llama-ngram-chat-numbers"
    server, alone = (opened.enter_context(stand_in("llama-models.json", replayed(name))) for _ in range(2))
    with pytest.raises(UserError, match=r"^Box drafts in its race, too; its host has to give one that"):
        seen(server, RACE, alone=alone)


def test_a_server_without_drafts_that_is_gone_is_reported_before_the_other_writes(opened):
    server = opened.enter_context(stand_in("llama-models.json", replayed("llama-draft-chat-eos-paris")))
    with stand_in("llama-models.json") as alone:
        pass
    with pytest.raises(UserError, match="Box cannot be reached"):
        seen(server, RACE, alone=alone)
    assert not server.asked


def test_a_race_stopped_while_it_drafts_keeps_its_tokens(opened):
    name = "llama-ngram-chat-numbers"
    server = opened.enter_context(stand_in("llama-models.json", replayed(name, pause_s=0.1)))
    alone = opened.enter_context(stand_in("llama-models.json", undrafted(name)))
    events = seen(server, RACE, lambda: server.sent > 4_000, alone)
    assert events[-1]["type"] == "end" and events[-1]["finish"] == Finish.STOPPED
    run = trace_file.load(dump(saved(events)))
    assert run.lanes["speculative"].finish is Finish.STOPPED and run.lanes["baseline"].finish is Finish.LENGTH


def test_a_race_stopped_before_it_drafts_asks_the_server_for_nothing(opened):
    name = "llama-ngram-chat-numbers"
    server = opened.enter_context(stand_in("llama-models.json", replayed(name)))
    slow = Answer(list(undrafted(name)), pause_s=0.1)
    alone = opened.enter_context(stand_in("llama-models.json", slow))
    events = seen(server, RACE, lambda: alone.sent > 4_000, alone)
    assert events[-1]["text"] == "Stopped before it began" and not server.asked
    assert not any(event["type"] == "round" for event in events)


def test_a_race_of_pieces_claims_no_sameness(opened):
    """Pieces are cut at random, so the pieces of two equal texts may differ."""
    whole = [{"choices": [{"delta": {"content": part}}]} for part in ("One, two", ", three.")]
    parts = [{"choices": [{"delta": {"content": part}}]} for part in ("One,", " two,", " three.")]
    server = opened.enter_context(stand_in("lmstudio-models.json", streamed(*whole)))
    alone = opened.enter_context(stand_in("lmstudio-models.json", streamed(*parts)))
    end = seen(server, RACE, alone=alone)[-1]
    assert end["badge"] is None and end["totals"]["identical"] is None
