"""llama.cpp's own server with the built-in target: the counts shown are those it logs."""

import base64
import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.llama_server import LlamaServer, Mode, llama_server
from helpers.waiting import until

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
    log = tmp_path_factory.mktemp("none") / "log"
    with llama_server(builtin_gguf(), "none", log=log) as server:
        yield server


@pytest.fixture(scope="module", params=["ngram", "draft"])
def drafting(request, tmp_path_factory) -> Iterator[LlamaServer]:
    mode: Mode = request.param
    model = request.getfixturevalue("draft") if mode == "draft" else None
    log = tmp_path_factory.mktemp(mode) / "log"
    with llama_server(builtin_gguf(), mode, model, log=log) as server:
        yield server


def run_on(url: str, prompt: str, alone: str | None = None, **more) -> Run:
    config = parse_config({"prompt": prompt, "max_new_tokens": 64, "baseline": alone is not None, **more})
    watched = WatchedRun(Server("Box", url, alone), config, lambda: False)
    assert list(watched.events())[-1]["type"] == "end"
    assert trace_file.load(watched.run.to_json()) == watched.run
    return watched.run


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
    run = run_on(drafting.url, PROMPTS[name], mode=mode)
    rounds = run.lanes["speculative"].rounds
    counted = sum(one.accepted for one in rounds), sum(len(one.drafted) for one in rounds)
    if counted[1]:
        until(lambda: len(logged(drafting)) > before)
        [(kept, drafted)] = logged(drafting)[before:]
        assert (kept, drafted) == counted
    assert text_of(run) == text_of(run_on(plain.url, PROMPTS[name], mode=mode))
    assert run.watched is not None and run.watched.engine == "llama.cpp's server"
    assert rounds[0].prefill_s > 0 and all(one.other_s > 0 for one in rounds)


def test_a_race_ends_with_the_same_text(drafting, plain):
    run = run_on(drafting.url, PROMPTS["numbers"], alone=plain.url)
    assert text_of(run) == text_of(run, "baseline")
    assert run.totals["identical"] is True and run.totals["speedup"] is not None
    assert run.watched is not None and NO_RACE not in run.watched.silent


def test_a_stopped_run_frees_the_server(drafting):
    config = parse_config({"prompt": "Tell a long story.", "max_new_tokens": 1024, "baseline": False})
    before, types = len(drafting.log.read_text()), []
    watched = WatchedRun(Server("Box", drafting.url), config, lambda: types.count("round") > 3)
    for event in watched.events():
        types.append(event["type"])
    assert types[-1] == "end" and watched.run.lanes["speculative"].finish is Finish.STOPPED
    until(lambda: not busy(drafting))
    until(lambda: CANCELLED in drafting.log.read_text()[before:])
    assert run_on(drafting.url, PROMPTS["paris"]).lanes["speculative"].finish is not Finish.STOPPED


def test_a_stop_while_the_prompt_is_read_frees_the_server(drafting):
    config = parse_config({"prompt": "word " * 1500, "baseline": False})
    before = len(drafting.log.read_text())

    def has_logged(words: str) -> bool:
        return words in drafting.log.read_text()[before:]

    watched = WatchedRun(Server("Box", drafting.url), config, lambda: has_logged("processing task"))
    assert list(watched.events())[-1]["text"] == "Stopped before it began"
    assert not has_logged("prompt eval time"), "the run ends before the server has read the prompt"
    until(lambda: not busy(drafting))
    until(lambda: has_logged(CANCELLED))
