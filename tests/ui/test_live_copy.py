"""The static copy with models, in Chromium: the server's text without a server, and without a network."""

import functools
import http.server
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.accessible import assert_accessible
from helpers.node import node
from helpers.pages import PATIENCE_MS
from playwright.sync_api import expect

from specdemo.asset_paths import RECORDINGS
from specdemo.bench.prompts import builtin_prompts
from specdemo.cli.main import main
from specdemo.models.compiled.wasm import FOUR_LANES
from specdemo.records import recordings, trace_file
from specdemo.records.trace import BASELINE, SPECULATIVE, Mode, RunConfig
from specdemo.ui.component import STATIC
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

    def log_message(self, *values: Any) -> None:
        pass


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

    def opened(headers: dict[str, str] = ISOLATION) -> Any:
        server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=folder)
        )
        server.headers = headers  # type: ignore[attr-defined]
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        context = browser.new_context(viewport={"width": 1280, "height": 720})
        contexts.append(context)
        context.set_default_timeout(4 * PATIENCE_MS)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.goto(f"http://127.0.0.1:{server.server_port}/")
        return page

    yield opened
    for context in contexts:
        context.close()
    for server in servers:
        server.shutdown()
    assert faults == []


def run(page: Any, prompt: str, mode: str = "chat", k: str = "2") -> Any:
    """Press Run; return the finished run."""
    page.fill("[name=prompt]", prompt)
    page.select_option("[name=mode]", mode)
    page.select_option("[name=k]", k)
    page.fill("[name=tokens]", str(TOKENS))
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
    page.fill("[name=tokens]", "512")
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
    page.click("[data-recording-name=days]")
    page.wait_for_selector(".sd[data-recording=days]")


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
