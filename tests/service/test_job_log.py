"""The log: one line for each job, however it ends, and never a word of the prompt or the text."""

import re
from typing import Any

import pytest
from helpers.tiny import tiny_pair
from torch import Tensor

from specdemo.engine.speculate import never
from specdemo.records.limits import UserError
from specdemo.service.jobs import JobKind
from specdemo.service.queue import Bounds
from specdemo.service.service import local_service

pytestmark = pytest.mark.usefixtures("one_thread")
REQUEST = {"prompt": "secret", "mode": "raw", "max_new_tokens": 12}
LONG = REQUEST | {"max_new_tokens": 500}


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Any:
    """Do a job and return its line's kind, tokens and outcome."""
    caplog.set_level("INFO", logger="specdemo.service.service")

    def line(
        request: dict[str, Any],
        kind: JobKind = JobKind.RUN,
        stop: Any = never,
        load: Any = lambda *_: tiny_pair(),
        events: int = 1_000,
        **bounds: Any,
    ) -> tuple[str, int, str]:
        source = local_service(load, bounds=Bounds(**bounds)).events(kind, request, stop)
        try:
            for _ in range(events):
                next(source, None)
        except UserError:
            pass
        source.close()
        [record] = [one for one in caplog.records if one.name == "specdemo.service.service"]
        found = re.fullmatch(r"job (\w+): (\d+) tokens, \d+\.\d s, (\w+)", record.getMessage())
        assert found, record.getMessage()
        return found[1], int(found[2]), found[3]

    return line


def fail(error: Exception) -> Any:
    def failing(*_arguments: Any, **_options: Any) -> Any:
        raise error

    return failing


def test_a_completed_job_counts_the_tokens_of_its_text(logged):
    assert logged(REQUEST) == ("run", 12, "done")


def test_a_job_without_text_has_no_tokens(logged):
    assert logged({"proof": "greedy", "prompts": 1}, JobKind.PROVE) == ("prove", 0, "done")


@pytest.mark.parametrize("way", ["stop", "leave", "time limit"])
def test_a_job_that_ends_early_is_stopped_and_counts_what_it_wrote(logged, way):
    asked = iter([False] * 6)
    stop = {"stop": lambda: next(asked, True)}
    ways = {"stop": stop, "leave": {"events": 10}, "time limit": {"max_seconds": 1e-2}}
    kind, tokens, outcome = logged(LONG, **ways[way])
    assert (kind, outcome) == ("run", "stopped") and tokens < 500


@pytest.mark.parametrize("changes", [{"k": 40}, {"drafter": "feature-draft"}])
def test_a_bad_request_is_refused(logged, changes):
    assert logged(REQUEST | changes) == ("run", 0, "refused")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a bug")])
def test_a_fault_is_a_failure(logged, monkeypatch, error):
    monkeypatch.setattr(Tensor, "new_zeros", fail(error))
    assert logged(REQUEST) == ("run", 0, "failed")


def test_models_that_cannot_be_loaded_are_a_failure(logged):
    assert logged(REQUEST, load=fail(UserError("Not there; put it there."))) == ("run", 0, "failed")
