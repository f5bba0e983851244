"""The lab's quick answers over HTTP, without a browser."""

import pytest
from helpers.replay import recorded, trace_of
from helpers.tiny import tiny_pair
from starlette.applications import Starlette
from starlette.testclient import TestClient

from specdemo.records.trace import dump
from specdemo.service.hosting import Learner
from specdemo.ui.http.own_routes import learned_route, own_routes
from specdemo.ui.http.posts import ERROR_HANDLERS

POINT = "alpha=0.6&k=4&c=0.1&growth=0.05"


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(Starlette(routes=own_routes(), exception_handlers=ERROR_HANDLERS))


def test_theory_is_answered_for_the_numbers_in_the_address(client):
    answer = client.get(f"/specdemo-lab/theory?{POINT}&theme=dark&run_alpha=0.4&run_k=2.5").json()
    assert answer["speedup"] == pytest.approx(answer["expected_tokens"] / 1.6)
    traces = {trace["uid"]: trace for trace in answer["figure"]["data"]}
    assert (traces["run"]["x"], traces["chosen"]["y"]) == ([0.4], [4])


@pytest.mark.parametrize("query", ["alpha=2", "alpha=nan", "alpha=", "k=2.5", "growth=much", "theme=pink"])
def test_bad_numbers_are_refused_in_a_sentence(client, query):
    response = client.get(f"/specdemo-lab/theory?{query}")
    assert response.status_code == 400
    assert response.json()["error"].endswith(".")


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


def test_a_page_that_learns_reports_what_it_learned(client):
    assert client.get("/specdemo-lab/learned").status_code == 404
    learner = Learner()
    learning = TestClient(Starlette(routes=[learned_route(learner)]))
    assert "press Run" in learning.get("/specdemo-lab/learned").json()["sentence"]
    pair = learner.pupil(tiny_pair())
    pair.n_gram.learn([1, 2, 3, 1, 2, 4], 1)
    answer = learning.get("/specdemo-lab/learned").json()
    assert "5 tokens of 1 run" in answer["sentence"] and set(answer["chart"]) == {"light", "dark"}
