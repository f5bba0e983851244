"""The messages of a class: readers at any pace get the same."""

import json
import random

from specdemo.classroom.log import Log


def contents(frames):
    return [json.loads(frame.data) for frame in frames]


def test_a_new_run_replaces_the_one_before_also_for_readers_who_missed_its_beginning():
    log = Log()
    log.begin({"run": 1})
    log.extend({"line": 1})
    log.begin({"run": 2})
    log.extend({"line": 2})
    for after in (0, 1, 2):
        assert contents(log.after(after)) == [{"id": 3, "run": 2}, {"id": 4, "line": 2}]
    assert contents(log.after(3)) == [{"id": 4, "line": 2}]
    assert log.after(4) == []


def test_readers_at_any_pace_end_with_the_same_run_and_states():
    rng = random.Random(0)
    log, readers = Log(), {name: {"after": 0, "run": [], "states": {}} for name in range(20)}
    for step in range(400):
        kind = rng.choice(["begin", "line", "line", "line", "view", "question"])
        if kind == "begin" or log.last == 0:
            log.begin({"type": "begin", "run": step})
        elif kind == "line":
            log.extend({"type": "line", "line": step})
        else:
            log.put(kind, {"type": kind, "value": step})
        for name in rng.sample(range(20), 5) if step < 399 else range(20):
            reader = readers[name]
            for frame in log.after(reader["after"]):
                message = json.loads(frame.data)
                assert message["id"] > reader["after"]
                reader["after"] = message["id"]
                if message["type"] == "begin":
                    reader["run"] = [message["run"]]
                elif message["type"] == "line":
                    reader["run"].append(message["line"])
                else:
                    reader["states"][message["type"]] = message["value"]
    assert all(reader == readers[0] for reader in readers.values())
    assert set(readers[0]["states"]) == {"view", "question"}


def test_text_stays_on_one_line():
    log = Log()
    log.put("view", {"text": "a\nb\u2028c\r"})
    [frame] = log.after(0)
    assert len(frame.data.splitlines()) == 1 == len(frame.data.decode().splitlines())
