"""The app in a process of its own: interrupted, and without room for files."""

import os
import resource
import signal
import uuid
from pathlib import Path

import pytest
from helpers.asking import ENDPOINTS
from helpers.http_visitor import HttpVisitor
from helpers.soak import serving

from specdemo.service.service import RESTARTING


@pytest.mark.slow
def test_a_client_of_a_run_that_is_cut_off_gets_the_reason(tmp_path):
    with serving(tmp_path / "app.log") as (url, process):
        visitor, session = HttpVisitor(url), uuid.uuid4().hex
        values = ENDPOINTS["run"].good | {"max_new_tokens": 1000, "prompt": "abc"}
        visitor.join("run", values, session)
        interrupted, shown = False, ""
        for message in visitor.messages(session):
            shown = str(message.get("output"))
            if not interrupted and '"round"' in shown:
                os.kill(process, signal.SIGINT)
                interrupted = True
            if message["msg"] == "process_completed":
                break
        visitor.http.close()
    assert interrupted
    assert RESTARTING in shown


@pytest.mark.slow
def test_runs_are_served_when_no_file_can_be_written():
    with serving(Path(os.devnull)) as (url, process):
        resource.prlimit(process, resource.RLIMIT_FSIZE, (0, 0))
        visitor, session = HttpVisitor(url), uuid.uuid4().hex
        number = visitor.join("run", ENDPOINTS["run"].good, session)
        ended = visitor.outcomes(session, 1)[number]
        visitor.http.close()
    assert ended["success"] and '"type":"end"' in str(ended["output"]).replace(" ", "")
