"""A run that an interrupt of the app cuts off."""

import os
import signal
import uuid

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
