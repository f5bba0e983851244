"""The API endpoints ``run`` and ``play``: typed, bounded by the same limits, refusals in one sentence."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError
from helpers.visitor import served_at_last

from specdemo.play.game import parse_turn
from specdemo.records.limits import UserError, parse_config
from specdemo.ui import streams

GOOD = {"prompt": "The capital of France is", "mode": "raw", "k": 4, "max_new_tokens": 32}


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Any]:
    """A client of the running page."""
    client = Client(url, verbose=False)
    yield client
    client.close()  # or it goes on asking for a server that is gone


def test_a_run_returns_its_events(client, service):
    lines = client.predict(**GOOD, api_name="/run").splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["type"] for event in events if event["type"] != "progress"] == [
        event["type"] for event in service.replayed
    ]
    assert events[-1] == service.replayed[-1]
    assert service.requests[-1].items() >= GOOD.items()


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": 99},
        {"k": "four"},
        {"temperature": float("1e9")},
        {"rule": "rejection"},
        {"mode": "shout"},
        {"max_new_tokens": 1.5},
        {"prompt": ""},
        {"prompt": ["no", "text"]},
        {"seed": -1},
        {"drafter": "oracle"},
    ],
    ids=str,
)
def test_a_bad_value_is_refused_with_the_sentence_of_the_limits(client, service, wrong):
    with pytest.raises(UserError) as sentence:
        parse_config({**GOOD, "temperature": 0.0, **wrong})
    with pytest.raises(AppError) as refused:
        client.predict(**{**GOOD, **wrong}, api_name="/run")
    assert str(refused.value) == str(sentence.value)
    assert service.requests == []


def test_parameters_have_the_names_of_the_configuration(client):
    described = client.view_api(return_format="dict")["named_endpoints"]
    expected = ["/generate", "/measure", "/play", "/prove", "/quiz", "/run"]
    assert sorted(described) == expected, "and nothing of the page's own wiring"
    names = [parameter["parameter_name"] for parameter in described["/run"]["parameters"]]
    expected = (
        "prompt mode drafter k auto temperature rule max_new_tokens seed top_k top_p baseline draft_alone "
        "pair"
    )
    assert names == expected.split()
    names = [parameter["parameter_name"] for parameter in described["/play"]["parameters"]]
    assert names == ["text", "draft", "second_draft", "written", "scores", "pair"]


def test_a_game_is_played_turn_by_turn(client, service):
    turn: dict[str, Any] = {"text": "I will get back to you", "draft": " as late"}
    for written in (" as s", " as soon a"):
        events = [json.loads(line) for line in client.predict(**turn, api_name="/play").splitlines()]
        judged = {event["player"]: event["score"] for event in events if event["type"] == "judged"}
        assert events[-1]["text"] == turn["text"] + written
        turn |= {"draft": "oon ", "written": events[-1]["written"], "scores": judged}
    assert judged["one"]["rounds"] == 2 and judged["one"]["accepted"] == 8


@pytest.mark.parametrize(
    "wrong", [{"draft": " "}, {"written": "x"}, {"scores": {"me": {}}}, {"text": ""}], ids=str
)
def test_a_bad_turn_is_refused_with_the_sentence_of_the_game(client, service, wrong):
    turn = {"text": "abc", "draft": " d", "second_draft": "", "written": [], "scores": {}, **wrong}
    with pytest.raises(UserError) as sentence:
        parse_turn(turn)
    with pytest.raises(AppError) as refused:
        client.predict(**turn, api_name="/play")
    assert str(refused.value) == str(sentence.value)
    assert service.requests == []


@pytest.mark.slow
def test_a_job_whose_updates_nobody_fetches_is_ended(url, service, monkeypatch):
    monkeypatch.setattr(streams, "UNREAD_S", 0.8)
    service.gap_s = 0.1
    values = ["abc", "raw", "draft-model", 4, False, 0, "greedy", 32, 0, 0, 1, True, False, ""]
    httpx.post(f"{url}gradio_api/call/run", json={"data": values}).raise_for_status()
    rounds = sum(event["type"] == "round" for event in service.replayed)
    assert served_at_last(service) < rounds
