"""Runs of a watched server with a baseline server that does not draft."""

import json

import pytest
from helpers.watched_runs import RAW, saved, seen, undrafted, watching
from helpers.watched_server import Answer, replayed, stand_in, streamed

from specdemo.cli.main import main
from specdemo.records import trace_file
from specdemo.records.limits import UserError
from specdemo.records.trace import Finish, dump
from specdemo.service.jobs import JobKind
from specdemo.watch.run import NO_RACE
from specdemo.watch.servers import Server

RACE = {**RAW, "baseline": True}
NUMBERS, PARIS = "llama-ngram-chat-numbers", "llama-draft-chat-eos-paris"


def half(answer: Answer) -> Answer:
    """The first half of a stream, without an end."""
    parts = [*answer]
    return Answer(parts[: len(parts) // 2], ends="never")


def test_the_baseline_is_written_first_and_gives_speedup_and_badge(serve):
    server, alone = serve(replayed(NUMBERS)), serve(undrafted(NUMBERS))
    events = seen(server, RACE, alone=alone)
    assert events[-1]["badge"]["kind"] == "same" and events[-1]["totals"]["identical"] is True
    assert events[-1]["totals"]["speedup"] == pytest.approx(0.96 / 0.617484, rel=0.05)
    start = next(event for event in events if event["type"] == "start")
    assert start["run"]["config"]["baseline"] is True and NO_RACE not in start["run"]["watched"]["silent"]
    assert {event["lane"] for event in events if event["type"] == "round"} == {"speculative", "baseline"}
    assert server.asked[0][1]["messages"] == alone.asked[0][1]["messages"]
    assert dict(trace_file.load(dump(saved(events))).totals) == events[-1]["totals"]


def test_the_command_watch_prints_and_saves_a_row_for_each_prompt(serve, tmp_path, capsys):
    server, alone = serve(replayed(NUMBERS)), serve(undrafted(NUMBERS))
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "watched.json"
    prompts.write_text('{"id": "a", "category": "facts", "mode": "chat", "prompt": "abc"}\n')
    options = ["--alone", alone.url + "/v1/", "--prompts", str(prompts), "--out", str(out)]
    assert main(["watch", server.url, *options, "--max-new-tokens", "96"]) == 0
    [row] = json.loads(out.read_text())["rows"]
    assert row["speedup"] > 1.5 and "1 of 1" in capsys.readouterr().out
    plain = serve(replayed("documented-sglang-chat-plain"), "sglang-models.json")
    assert main(["watch", plain.url, *options[2:4], "--out", f"{out}.2"]) == 2
    assert "does not report its rounds" in capsys.readouterr().err


def test_a_race_of_two_texts_shows_where_they_diverge(serve):
    badge = seen(serve(replayed(PARIS)), RACE, alone=serve(replayed("llama-none-chat-short")))[-1]["badge"]
    assert badge["kind"] == "different" and "from output token 1 on" in badge["text"]


def test_without_a_baseline_server_a_run_has_no_speedup_and_says_so(serve):
    server = serve(replayed(PARIS))
    start, *_, end = [event for event in seen(server, RACE) if event["type"] != "progress"]
    assert start["run"]["config"]["baseline"] is False and NO_RACE in start["run"]["watched"]["silent"]
    assert end["badge"] is None and end["totals"]["speedup"] is None
    start = next(event for event in seen(server, RAW) if event["type"] == "start")
    assert NO_RACE not in start["run"]["watched"]["silent"], "no baseline was requested"


@pytest.mark.parametrize(
    ("models", "words"),
    [
        ("llama-models.json", "for Box also uses drafts"),
        ("vllm-models.json", "Box and the baseline server run different software"),
    ],
)
def test_an_unsuitable_baseline_server_is_refused(serve, models, words):
    server, alone = serve(replayed(NUMBERS)), serve(replayed(NUMBERS), models)
    with pytest.raises(UserError, match=words):
        seen(server, RACE, alone=alone)
    assert not server.asked


def test_a_baseline_server_that_is_gone_is_reported_before_the_run(serve):
    server = serve(replayed(PARIS))
    with stand_in("llama-models.json") as alone:
        pass
    with pytest.raises(UserError, match="Box cannot be reached"):
        seen(server, RACE, alone=alone)
    assert not server.asked


def test_a_race_stopped_while_it_drafts_keeps_its_tokens(serve):
    box = Server("Box", serve(half(replayed(NUMBERS))).url, serve(undrafted(NUMBERS)).url)
    events: list[dict] = []
    stop = lambda: any(event.get("lane") == "speculative" for event in events)  # noqa: E731
    events.extend(watching(box).events(JobKind.RUN, RACE, stop, "watch:Box"))
    assert events[-1]["type"] == "end" and events[-1]["finish"] == Finish.STOPPED
    run = trace_file.load(dump(saved(events)))
    assert run.lanes["speculative"].finish is Finish.STOPPED and run.lanes["baseline"].finish is Finish.LENGTH


def test_a_race_stopped_before_it_drafts_asks_the_server_for_nothing(serve):
    server, alone = serve(replayed(NUMBERS)), serve(half(undrafted(NUMBERS)))
    events = seen(server, RACE, lambda: alone.sent > 4_000, alone)
    assert events[-1]["text"] == "Stopped before it began" and not server.asked
    assert not any(event["type"] == "round" for event in events)


def test_a_race_of_pieces_claims_no_sameness(serve):
    # Pieces are cut at random, so the pieces of two equal texts may differ.
    whole, parts = (
        streamed(*({"choices": [{"delta": {"content": part}}]} for part in text))
        for text in (("One, two", ", three."), ("One,", " two,", " three."))
    )
    models = "lmstudio-models.json"
    end = seen(serve(whole, models), RACE, alone=serve(parts, models))[-1]
    assert end["badge"] is None and end["totals"]["identical"] is None
