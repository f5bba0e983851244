"""A class's drafts go to the models as any job does: by way of the queue, on a thread that mostly waits."""

from collections.abc import Mapping
from typing import Any

from starlette.concurrency import run_in_threadpool

from specdemo.classroom.games import Judge
from specdemo.records.limits import UserError
from specdemo.service.jobs import JobKind
from specdemo.service.queue import Stop
from specdemo.service.service import EventSource
from specdemo.service.shares import Visitor

SILENT = "The target has judged nothing; try again."


def judge_with(service: EventSource, address: str, code: str) -> Judge:
    """Who judges for the class of that code, which counts as one visitor from its teacher's address."""
    visitor = Visitor(address, f"class {code}")

    def judged(request: Mapping[str, Any], stop: Stop) -> Mapping[str, Any]:
        events = service.events(JobKind.CLASS, request, stop, None, visitor)
        told = [event for event in events if event["type"] == "class-judged"]
        if not told:
            raise UserError(SILENT)
        return told[-1]

    async def judge(request: Mapping[str, Any], stop: Stop) -> Mapping[str, Any]:
        return await run_in_threadpool(judged, request, stop)

    return judge
