"""The lab's quick answers over HTTP, without a browser."""

import json

import pytest
from helpers.replay import recorded, trace_of
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specdemo.lab.answers import run_answer
from specdemo.records import recordings
from specdemo.records.trace import dump
from specdemo.ui.http.own_routes import own_routes
from specdemo.ui.http.posts import ERROR_HANDLERS


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(Starlette(routes=own_routes(), exception_handlers=ERROR_HANDLERS))


def test_a_recording_is_answered_by_its_name(client):
    name = recordings.names()[0]
    answer = client.get(f"/specdemo-lab/run/{name}.json").json()
    assert answer == json.loads(dump(run_answer(recordings.load(name))))
    unknown = client.get("/specdemo-lab/run/nope.json")
    assert unknown.status_code == 404 and unknown.json()["error"].startswith("There is no recording")


def test_a_posted_run_is_placed_and_judged(client):
    events = recorded("greedy")
    answer = client.post("/specdemo-lab/run", content=dump(trace_of(events))).json()
    totals = events[-1]["totals"]
    assert answer["point"]["alpha"] == pytest.approx(totals["alpha_compared"])
    assert answer["point"]["s_theory"] == pytest.approx(totals["s_theory"])
    assert answer["oracle"]["s_cost"] == pytest.approx(totals["s_cost"])


def test_a_body_that_is_no_run_is_refused_in_a_sentence(client):
    response = client.post("/specdemo-lab/run", content="{}")
    assert response.status_code == 400 and response.json()["error"].endswith(".")
