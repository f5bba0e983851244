"""The static copy with models, in Chromium: the server's text without a server, and without a network."""

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from helpers.accessible import assert_accessible
from helpers.http_visitor import served
from helpers.node import node
from helpers.pages import PATIENCE_MS
from helpers.stand_in import StandIn
from playwright.sync_api import expect

from specdemo.asset_paths import RECORDINGS
from specdemo.bench.prompts import builtin_prompts
from specdemo.cli.main import main
from specdemo.models.compiled.wasm import FOUR_LANES
from specdemo.records import recordings, trace_file
from specdemo.records.trace import BASELINE, SPECULATIVE, Mode, RunConfig
from specdemo.ui import live_copy
from specdemo.ui.component import STATIC
from specdemo.ui.page import build_page, launch_options
from specdemo.ui.site import ISOLATION, LIVE, MODELS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

PROMPT, TOKENS = "Write a haiku about the sea 🌊", 40
RAW = "def fibonacci(n):\n    "
HARD = [
    "naïve café — 東京 🎉",
    "a\n\n\n b\t\tc  ",
    "<|im_end|> or <|endoftext|>?",
    "it's 12,345.67 I'LL",
    "x" * 300,
]
SERVER = """
import sys, specdemo
pair = specdemo.load_pair(device="cpu")
settings = {"max_new_tokens": int(sys.argv[1]), "k": 2, "baseline": False}
for mode, prompt in zip(("chat", "raw"), sys.argv[2:], strict=True):
    print(specdemo.compare(pair, prompt, mode=mode, **settings).to_json())
"""
ENCODED = """
const { files, prompts, live } = JSON.parse((await import("node:fs")).readFileSync(0));
const { readFileSync } = await import("node:fs");
const { Tokenizer } = await import(live);
const { tokenizer, tokenizer_config: config } = JSON.parse(readFileSync(`${files}/tokens.json`));
const { chat: [before, after] } = JSON.parse(readFileSync(`${files}/pair.json`));
const made = new Tokenizer(tokenizer, config);
const encoded = (text, isRaw) => made.encode(text, { add_special_tokens: isRaw }).ids;
const both = (prompt) => [encoded(before + prompt + after, false), encoded(prompt, true)];
console.log(JSON.stringify(prompts.map(both)));
"""
ENDED = ".sd[data-state=ended]"
FILE = """async () => {
    const { stageOfPage } = await import('./specdemo-static/stage/stage.js');
    return JSON.stringify(stageOfPage().trace.file()); }"""


class Handler(http.server.SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        for name, value in getattr(self.server, "headers", {}).items():
            self.send_header(name, value)
        super().end_headers()

    def do_GET(self) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        change = getattr(self.server, "changes", {}).get(name)
        if change is None:
            return super().do_GET()
        content = change(Path(self.translate_path(self.path)).read_bytes())
        self.send_response(200)
        self.send_header("Content-Type", self.guess_type(name))
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *values: Any) -> None:
        pass


Changes = dict[str, Callable[[bytes], bytes]]
"""Functions that change what the server sends for files of this name."""


def first(script: str) -> Changes:
    """Run this script in the worker before any of its tasks."""
    return {"worker.js": lambda content: content + f"\n{script}\n".encode()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("web") / "copy"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recordings, "FOLDER", RECORDINGS)
        assert main(["site", "--live", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def visit(browser: Any, folder: Path) -> Iterator[Callable[..., Any]]:
    """Yield a function that opens the copy; the test fails on errors of the page."""
    servers, contexts, faults = [], [], []

    def opened(headers: dict[str, str] = ISOLATION, changes: Changes | None = None) -> Any:
        server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=folder)
        )
        server.headers, server.changes = headers, changes or {}  # type: ignore[attr-defined]
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        context = browser.new_context(viewport={"width": 1280, "height": 720})
        contexts.append(context)
        context.set_default_timeout(4 * PATIENCE_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error.stack)))
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        return page

    yield opened
    for context in contexts:
        context.close()
    for server in servers:
        server.shutdown()
    assert faults == []


def set_tokens(page: Any, tokens: int) -> None:
    page.evaluate("document.querySelector('#live details').open = true")
    page.fill("[name=tokens]", str(tokens))


def run(page: Any, prompt: str, mode: str = "chat", k: str = "2") -> Any:
    """Press Run; return the finished run."""
    page.fill("[name=prompt]", prompt)
    page.select_option("[name=k]", k)
    set_tokens(page, TOKENS)
    page.select_option("[name=mode]", mode)
    page.click("#run")
    page.wait_for_selector("#run:enabled")
    page.click("[data-role=to-end]")
    page.wait_for_selector(ENDED)
    return trace_file.load(page.evaluate(FILE))


def test_the_text_is_the_servers_also_without_a_network(visit):
    command = [sys.executable, "-c", SERVER, str(TOKENS), PROMPT, RAW]
    told = subprocess.run(command, env=os.environ | FOUR_LANES, capture_output=True, text=True, check=True)
    chat, raw = (trace_file.load(line) for line in told.stdout.splitlines())
    page = visit()
    assert page.evaluate("crossOriginIsolated")
    assert_accessible(page)
    found = run(page, PROMPT)
    assert found.prompt_ids == chat.prompt_ids
    assert found.lanes[SPECULATIVE].ids == found.lanes[BASELINE].ids == chat.lanes[SPECULATIVE].ids
    verdicts = [[token.status for token in round_.drafted] for round_ in found.lanes[SPECULATIVE].rounds]
    expected = [[token.status for token in round_.drafted] for round_ in chat.lanes[SPECULATIVE].rounds]
    assert verdicts == expected and any(verdicts)
    first, known = found.lanes[SPECULATIVE].rounds[0].drafted[0], chat.lanes[SPECULATIVE].rounds[0].drafted[0]
    assert first.draft_top[0].prob == pytest.approx(known.draft_top[0].prob, rel=1e-4)
    assert first.raw_p == pytest.approx(known.raw_p, rel=1e-4)
    expect(page.locator("[data-role=about]")).to_contain_text("the figures are your computer's")
    expect(page.get_by_role("button", name="Repeat")).to_be_hidden()
    page.context.set_offline(True)
    page.reload()
    found = run(page, RAW, "raw", "auto")
    assert found.prompt_ids == raw.prompt_ids
    assert found.lanes[SPECULATIVE].ids == found.lanes[BASELINE].ids == raw.lanes[SPECULATIVE].ids


def test_before_the_first_run_the_worker_is_ready_and_no_model_is_loaded(visit):
    page = visit()
    page.wait_for_load_state("networkidle")
    assert [worker.url.rpartition("/")[2] for worker in page.workers] == ["worker.js"]
    assert not page.evaluate("caches.has('specdemo-live')")


def test_a_setting_that_is_not_allowed_comes_into_view(visit):
    page = visit()
    set_tokens(page, 5)
    page.click("#live summary")
    page.click("#run")
    expect(page.locator("[name=tokens]")).to_be_focused()
    set_tokens(page, TOKENS)
    page.click("#run")
    expect(page.locator("[name=tokens]")).to_be_hidden()


def test_without_headers_there_is_one_thread_and_after_a_reload_there_are_more(visit):
    page = visit({})
    assert not page.evaluate("crossOriginIsolated")
    assert run(page, PROMPT).device == "a browser, 1 thread"
    expect(page.locator("[data-role=about]")).to_contain_text("Reload this page for more threads")
    page.reload()
    page.wait_for_function("crossOriginIsolated")


def test_stop_ends_a_run_and_a_long_or_missing_prompt_gets_a_sentence(visit):
    page = visit()
    page.fill("[name=prompt]", PROMPT)
    page.click("#run")
    page.click("#stop")
    page.wait_for_selector("#run:enabled")
    set_tokens(page, 512)
    page.click("#run")
    page.wait_for_selector(".sd[data-state=playing]")
    page.click("#stop")
    page.wait_for_selector(ENDED)
    expect(page.locator("#stage [data-role=sentence]")).to_contain_text("Stopped early.")
    page.fill("[name=prompt]", "a b " * 500)
    page.click("#run")
    expect(page.locator(".sd-error")).to_have_text(
        re.compile(
            r"^The prompt has 1,0\d\d tokens, but in a browser at most 624 are possible; shorten .*\.$"
        )
    )
    page.select_option("[data-role=recordings]", "days")
    page.wait_for_selector(".sd[data-recording=days]")


def error_of(page: Any) -> str:
    """Press Run; return the sentence with which the run ends."""
    set_tokens(page, TOKENS)
    page.click("#run")
    page.wait_for_selector(".sd[data-state=error]")
    page.wait_for_selector("#run:enabled")
    return page.inner_text(".sd-error")


def assert_recordings_play(page: Any) -> None:
    for name in ("days", "block"):
        page.select_option("[data-role=recordings]", name)
        page.wait_for_selector(f".sd[data-recording={name}]:is([data-state=playing], [data-state=ended])")
        page.click("[data-role=to-end]")
        page.wait_for_selector(f"{ENDED}[data-recording={name}]")
        expect(page.locator(".sd-error")).to_be_hidden()


def test_a_damaged_piece_is_a_sentence_and_the_next_press_of_run_downloads_it_again(visit):
    changes: Changes = {"weights-01.bin": lambda content: content[:-1] + bytes([content[-1] ^ 1])}
    page = visit(changes=changes)
    assert error_of(page) == "The file weights-01.bin arrived damaged. Press Run to download it again."
    assert_recordings_play(page)
    changes.clear()
    assert run(page, PROMPT).lanes[SPECULATIVE].ids


def test_too_little_memory_is_a_sentence(visit):
    page = visit(changes=first("WebAssembly.Memory = function () { throw new RangeError('no memory'); };"))
    sentence = (
        r"This browser has no memory for the models: \d{3} MB are needed. Close other tabs, then reload .*"
    )
    assert re.fullmatch(sentence, error_of(page))
    assert_recordings_play(page)


@pytest.mark.parametrize("refusal", ["no storage", "a full disk"])
def test_without_storage_the_models_run_and_a_sentence_says_so(visit, refusal):
    denied = "caches.open = () => Promise.reject(new DOMException('denied', 'SecurityError'));"
    page = visit(changes=first(denied) if refusal == "no storage" else None)
    if refusal == "a full disk":
        page.wait_for_function("navigator.serviceWorker.controller")
        quota = {"origin": page.evaluate("location.origin"), "quotaSize": 1_000_000}
        page.context.new_cdp_session(page).send("Storage.overrideQuotaForOrigin", quota)
    assert run(page, PROMPT).lanes[SPECULATIVE].ids
    expect(page.locator("[data-role=about]")).to_contain_text(
        "This browser does not keep files, so the next visit downloads the models again."
    )
    assert_recordings_play(page)


def test_offline_all_recordings_play_also_before_the_first_run(visit):
    page = visit()
    page.wait_for_function("navigator.serviceWorker.controller")
    page.wait_for_load_state("networkidle")
    page.context.set_offline(True)
    page.reload()
    assert_recordings_play(page)
    assert re.fullmatch(r"The models .*\. Press Run to .*\.", error_of(page))
    assert_recordings_play(page)


def test_a_hidden_tab_goes_on_and_a_reload_ends_the_run(visit):
    page = visit()
    run(page, PROMPT)
    set_tokens(page, 256)
    page.click("#run")
    page.wait_for_selector(".sd[data-state=playing]:not([data-recording])")
    lifecycle = page.context.new_cdp_session(page)
    lifecycle.send("Page.setWebLifecycleState", {"state": "frozen"})
    time.sleep(2)
    lifecycle.send("Page.setWebLifecycleState", {"state": "active"})
    page.wait_for_selector("#run:enabled")
    page.click("[data-role=to-end]")
    page.wait_for_selector(ENDED)
    assert page.inner_text("#stage [data-role=sentence]")
    page.click("#run")
    page.wait_for_selector("#stop:enabled")
    page.wait_for_selector(".sd[data-state=playing]")
    page.reload()
    expect(page.locator("#run")).to_be_enabled()
    page.wait_for_selector(".sd:is([data-state=playing], [data-state=ended])")
    expect(page.locator("[data-role=source]")).to_contain_text(re.compile("Recorded on|last run"))
    assert_recordings_play(page)
    assert run(page, PROMPT).lanes[SPECULATIVE].ids


@pytest.fixture
def live_of_server(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield the address of the copy on a server's page."""
    monkeypatch.setattr(live_copy, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(live_copy, "write_site", lambda to, live: to.symlink_to(folder))
    copy = live_copy.LiveCopy()
    copy.write()
    options = launch_options(copy.routes())
    for url in served(build_page(StandIn()), **options):
        yield f"{url}live/"


def test_a_link_on_a_server_opens_the_copy_with_its_settings(browser, live_of_server):
    context = browser.new_context()
    context.set_default_timeout(4 * PATIENCE_MS)
    page = context.new_page()
    faults = []
    page.on("console", lambda message: message.type == "error" and faults.append(message.text))
    asked = {"prompt": RAW, "mode": "raw", "k": 3, "max_new_tokens": TOKENS}
    page.goto(f"{live_of_server}?{urlencode(asked)}")
    assert page.evaluate("crossOriginIsolated")
    fields = {name: page.input_value(f"#live [name={name}]") for name in ("prompt", "mode", "k", "tokens")}
    assert fields == {"prompt": RAW, "mode": "raw", "k": "3", "tokens": str(TOKENS)}
    page.click("#run")
    page.wait_for_selector(".sd[data-state=playing]:not([data-recording])")
    page.click("[data-role=to-end]")
    page.wait_for_selector("#run:enabled")
    config = trace_file.load(page.evaluate(FILE)).config
    assert (config.prompt, config.mode, config.k, config.max_new_tokens) == tuple(asked.values())
    page.context.close()
    assert faults == []


def test_no_file_is_too_large_for_a_host_and_hosts_find_the_headers(folder):
    assert max(path.stat().st_size for path in folder.rglob("*")) <= 20_000_000
    headers = "".join(f"  {name}: {value}\n" for name, value in ISOLATION.items())
    assert (folder / "_headers").read_text() == f"/*\n{headers}"
    front_matter = (folder / "README.md").read_text()
    assert f"sdk: static\napp_file: index.html\ncustom_headers:\n{headers}---\n" in front_matter


def test_the_tokenizer_gives_the_ids_of_the_servers(folder, builtin_pair):
    prompts = [*(one.prompt for one in builtin_prompts()), *HARD]
    library = next((STATIC / LIVE).glob("tokenizers-*.min.mjs")).as_uri()
    sent = json.dumps({"files": str(folder / MODELS), "prompts": prompts, "live": library})
    command = [node(), "--input-type=module", "-e", ENCODED]
    done = subprocess.run(command, input=sent, capture_output=True, encoding="utf-8", check=True)
    modes = (Mode.CHAT, Mode.RAW)
    expected = [[builtin_pair.prompt_ids(RunConfig(prompt, mode)) for mode in modes] for prompt in prompts]
    assert json.loads(done.stdout) == expected
