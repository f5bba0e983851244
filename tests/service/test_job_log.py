"""The log: one line for each job, whatever becomes of it, and never a word of the prompt or the text."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from helpers.tiny import tiny_pair
from torch import Tensor

from specdemo.records.limits import UserError
from specdemo.service.jobs import JobKind
from specdemo.service.queue import Bounds
from specdemo.service.service import Service, local_service

pytestmark = pytest.mark.usefixtures("one_thread")
REQUEST = {"prompt": "secret", "mode": "raw", "max_new_tokens": 12}


@pytest.fixture
def line(caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    """Read the one line that was logged since the last time: kind, tokens, outcome."""
    caplog.set_level("INFO", logger="specdemo.service.service")

    def read() -> tuple[str, int, str]:
        [record] = [one for one in caplog.records if one.name == "specdemo.service.service"]
        caplog.clear()
        found = re.fullmatch(r"job (\w+): (\d+) tokens, \d+\.\d s, (\w+)", record.getMessage())
        assert found, record.getMessage()
        return found[1], int(found[2]), found[3]

    return read


def service(load: Any = lambda *_: tiny_pair(), **bounds: Any) -> Service:
    return local_service(load, bounds=Bounds(**bounds))


def read(source: Any, stopped: Any = lambda: False, **changes: Any) -> None:
    list(source.events(JobKind.RUN, {**REQUEST, **changes}, stopped))


def test_a_job_that_is_done_is_one_line(line):
    read(service())
    assert line() == ("run", 12, "done")


def test_a_job_without_text_has_no_tokens(line):
    list(service().events(JobKind.PROVE, {"proof": "greedy", "prompts": 1}, lambda: False))
    assert line() == ("prove", 0, "done")


def test_a_stopped_job_counts_what_it_wrote(line):
    asked = iter([False] * 6)
    read(service(), lambda: next(asked, True), max_new_tokens=500)
    kind, tokens, outcome = line()
    assert (kind, outcome) == ("run", "stopped") and 0 < tokens < 500


def test_a_visitor_who_leaves_stops_the_job(line):
    events = service().events(JobKind.RUN, REQUEST, lambda: False)
    next(event for event in events if event["type"] == "round")
    events.close()
    assert line()[2] == "stopped"


def test_a_job_that_the_time_limit_ends_is_stopped(line):
    with pytest.raises(UserError, match="time limit"):
        read(service(max_seconds=1e-6), max_new_tokens=500)
    assert line()[2] == "stopped"


@pytest.mark.parametrize("changes", [{"k": 40}, {"prompt": ""}, {"drafter": "feature-draft"}])
def test_a_bad_request_is_refused(line, changes):
    with pytest.raises(UserError):
        read(service(), **changes)
    assert line() == ("run", 0, "refused")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a bug")])
def test_a_fault_is_a_failure(line, monkeypatch, error):
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    one = service()
    read(one)
    assert line()[2] == "done"
    monkeypatch.setattr(Tensor, "new_zeros", fail)
    with pytest.raises((UserError, RuntimeError)):
        read(one)
    assert line()[2] == "failed"


def test_models_that_cannot_be_loaded_are_a_failure(line):
    def load(*_: Any) -> Any:
        raise UserError("Not there; put it there.")

    with pytest.raises(UserError):
        read(service(load))
    assert line() == ("run", 0, "failed")
