"""Gradio keeps the last run of every session; the page forgets those that nobody fetches."""

import asyncio
from types import SimpleNamespace

from specdemo.ui.http import visitors


def test_an_idle_session_is_forgotten_and_one_with_a_job_under_way_is_kept(monkeypatch):
    monkeypatch.setattr(visitors, "LOOK_S", 0.01)
    monkeypatch.setattr(visitors, "KEPT_S", 0.02)
    sessions = ("idle", "busy")
    queue = SimpleNamespace(
        pending_messages_per_session=dict.fromkeys(sessions, "a run"),
        pending_event_ids_session={name: {name} for name in sessions},
        event_ids_to_events={"1": SimpleNamespace(session_hash="busy")},
    )
    states = SimpleNamespace(
        session_data=dict.fromkeys(sessions, "values"), time_last_used=dict.fromkeys(sessions, 0)
    )

    async def look() -> None:
        page = SimpleNamespace(_queue=queue, state_holder=states)
        task = asyncio.create_task(visitors.forget_idle_sessions(page))
        await asyncio.sleep(0.2)
        assert not task.done()
        task.cancel()

    asyncio.run(look())
    kept = (queue.pending_messages_per_session, queue.pending_event_ids_session, *vars(states).values())
    assert [set(one) for one in kept] == [{"busy"}] * 4
