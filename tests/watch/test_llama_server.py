"""llama.cpp's own server with the built-in target: the counts shown are those it logs."""

import base64
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.llama_server import LlamaServer, llama_server
from helpers.waiting import until

from specdemo.engine.speculate import never
from specdemo.pairs.builtin_target import builtin_gguf
from specdemo.records import trace_file
from specdemo.records.limits import parse_config
from specdemo.records.trace import Finish, Run
from specdemo.watch.run import NO_RACE, WatchedRun
from specdemo.watch.servers import Server

pytest.importorskip("xllamacpp")
pytestmark = pytest.mark.slow

PROMPTS = {
    "numbers": "Write the numbers from one to ten, then write them again.",
    "paris": "What is the capital of France? Answer in one word.",
    "emoji": "Repeat exactly: 🙂🙃🙂🙃 naïve café 🙂🙃🙂🙃 naïve café",
}
LOGGED = re.compile(r"draft acceptance = [\d.]+ \( *(\d+) accepted / *(\d+) generated\)")
CANCELLED = "cancel task"  # logged for a run whose client has gone


@pytest.fixture(scope="module")
def draft(tmp_path_factory) -> Path:
    pytest.importorskip("gguf")
    from helpers.draft_gguf import write_draft_gguf

    path = tmp_path_factory.mktemp("draft") / "draft.gguf"
    write_draft_gguf(path)
    return path


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Iterator[LlamaServer]:
    with llama_server(builtin_gguf(), log=tmp_path_factory.mktemp("none") / "log") as server:
        yield server


@pytest.fixture(scope="module", params=["ngram", "draft"])
def drafting(request, tmp_path_factory) -> Iterator[LlamaServer]:
    model = request.getfixturevalue("draft") if request.param == "draft" else None
    log = tmp_path_factory.mktemp(request.param) / "log"
    with llama_server(builtin_gguf(), request.param, model, log=log) as server:
        yield server


def text_of(run: Run, lane: str = "speculative") -> str:
    ids = [token for token in run.lanes[lane].ids if token not in run.specials]
    return b"".join(base64.b64decode(run.pieces[token]) for token in ids).decode()


def logged(server: LlamaServer) -> list[tuple[int, int]]:
    """Return the accepted and drafted tokens of every run with drafts."""
    return [(int(kept), int(drafted)) for kept, drafted in LOGGED.findall(server.log.read_text())]


def busy(server: LlamaServer) -> bool:
    with urllib.request.urlopen(f"{server.url}/slots") as reply:
        return any(slot["is_processing"] for slot in json.load(reply))


@pytest.mark.parametrize(("name", "mode"), [("numbers", "chat"), ("paris", "raw"), ("emoji", "chat")])
def test_counts_are_those_the_server_logs_and_the_text_is_that_without_drafts(drafting, plain, name, mode):
    before = len(logged(drafting))
    config = parse_config({"prompt": PROMPTS[name], "max_new_tokens": 64, "mode": mode})
    watched = WatchedRun(Server("Box", drafting.url, plain.url), config, never)
    assert list(watched.events())[-1]["type"] == "end"
    run = watched.run
    assert trace_file.load(run.to_json()) == run
    rounds = run.lanes["speculative"].rounds
    counted = sum(one.accepted for one in rounds), sum(len(one.drafted) for one in rounds)
    if counted[1]:
        until(lambda: len(logged(drafting)) > before)
        assert logged(drafting)[before:] == [counted]
    assert text_of(run) == text_of(run, "baseline")
    assert name != "numbers" or (run.totals["identical"] is True and run.totals["speedup"] is not None)
    assert run.watched and run.watched.engine == "llama.cpp's server" and NO_RACE not in run.watched.silent
    assert rounds[0].prefill_s > 0 and all(one.other_s > 0 for one in rounds)


@pytest.mark.parametrize("prompt", ["Tell a long story.", "word " * 600])
def test_a_stop_frees_the_server_while_it_writes_or_reads_the_prompt(drafting, prompt):
    is_long = prompt.startswith("word")
    before, types = len(drafting.log.read_text()), []

    def has_logged(words: str) -> bool:
        return words in drafting.log.read_text()[before:]

    def stop() -> bool:
        return has_logged("processing task") if is_long else types.count("round") > 3

    config = parse_config({"prompt": prompt, "max_new_tokens": 1024, "baseline": False})
    watched = WatchedRun(Server("Box", drafting.url), config, stop)
    for event in watched.events():
        types.append(event["type"])
    if is_long:
        assert event["text"] == "Stopped before it began"
        assert not has_logged("prompt eval time"), "the run ends before the server has read the prompt"
    else:
        assert types[-1] == "end" and watched.run.lanes["speculative"].finish is Finish.STOPPED
    until(lambda: not busy(drafting) and has_logged(CANCELLED))
