"""The API endpoint ``run``: typed, bounded by the same limits, its refusals in one sentence."""

import json
from typing import Any

import pytest
from gradio_client import Client
from gradio_client.exceptions import AppError

from specdemo.limits import UserError, parse_config

GOOD = {"prompt": "The capital of France is", "mode": "raw", "k": 4, "max_new_tokens": 32}


@pytest.fixture(scope="module")
def client(url: str) -> Any:
    """A client of the running page."""
    return Client(url, verbose=False)


def test_a_run_returns_its_events(client, service):
    lines = client.predict(**GOOD, api_name="/run").splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["type"] for event in events if event["type"] != "progress"] == [
        event["type"] for event in service.events
    ]
    assert events[-1] == service.events[-1]
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
    assert {"/run", "/measure"} <= set(described)
    names = [parameter["parameter_name"] for parameter in described["/run"]["parameters"]]
    expected = (
        "prompt mode drafter k auto temperature rule max_new_tokens seed top_k top_p baseline draft_alone"
    )
    assert names == expected.split()
