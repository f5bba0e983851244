"""Refused arguments: one sentence, status 2, without importing torch or Gradio."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from specdemo.cli.serve import check_address
from specdemo.pairs.model_loader import DTYPES
from specdemo.pairs.presets import PRESETS
from specdemo.records.limits import PAIRS, PRECISIONS

ROOT = Path(__file__).parents[2]
PROMPTS = str(ROOT / "assets" / "prompts.jsonl")
LONG = "x" * 300
BENCH = ["bench", "--prompts", PROMPTS, "--out", "bench.json"]
WATCH = ["watch", "http://127.0.0.1:1", "--prompts", PROMPTS, "--out", "watched.json"]
REFUSED = [
    (["generate", "x", "--k", "40"], "k must be"),
    (["generate", "x", "--temperature", "-1"], "temperature must be"),
    (["generate", "x", "--temperature", "nan"], "temperature must be"),
    (["generate", "x", "--seed", "-1"], "seed must be"),
    (["generate", "x", "--drafter", "oracle"], "Unknown drafter"),
    (["generate", "x", "--precision", "bf17"], "Unknown precision 'bf17'; choose one of: auto, bf16"),
    (["generate", "x", "--pair", "nope"], "Unknown pair of models 'nope'; choose one of: built-in"),
    (["generate", "x", "--device", "gpu"], "Unknown device 'gpu'"),
    (["generate", "x", "--threads", "0"], "--threads must be between 1 and "),
    (["generate", "x", "--target", "/nowhere"], "--target takes a hub id or a folder"),
    (["generate", "x", "--draft", __file__], "--draft takes a hub id or a folder"),
    (["generate", "x", "--feature-draft", "/nowhere"], "--feature-draft takes a folder"),
    (["generate", "x", "--n-gram", "/nowhere"], "--n-gram takes a folder"),
    (["generate", "x", "--target", "gpt2"], "The built-in draft fits only the built-in target"),
    (["generate", "x", "--draft", "none"], "This pair has no draft model; choose another drafter."),
    (
        ["generate", "x", "--target", "gpt2", "--draft", "none", "--drafter", "n-gram"],
        "This pair has no n-gram table; choose another drafter.",
    ),
    (["generate", "x", "--json", "/nowhere/x.json"], "Cannot write /nowhere/x.json"),
    (["generate", "x", "--json", "/"], "Cannot write /: it is a folder"),
    (["generate", "x", "--json", LONG], "File name too long; choose another place."),
    (["generate", "x", "--target", LONG, "--draft", "none"], "File name too long; choose another."),
    (["generate", "x", "--n-gram", LONG], "File name too long; choose another."),
    (["replay", "/nowhere/x.json"], "Cannot read"),
    (["replay", LONG], "File name too long"),
    (["replay", "story-sampled", "--html", LONG], "File name too long; choose another place."),
    (["bench", "--prompts", "/dev/zero", "--out", "bench.json"], "/dev/zero has more than 100 MB"),
    (["bench", "--prompts", "nested.jsonl", "--out", "bench.json"], "nested.jsonl, line 1: expected"),
    ([*BENCH, "--out", "pipe"], "pipe: it is not a regular file; choose another place."),
    ([*BENCH, "--out", "/dev/zero"], "/dev/zero: it is not a regular file"),
    ([*BENCH, "--out", LONG], "File name too long; choose another place."),
    (["watch", "http://127.0.0.1:1", "--prompts", PROMPTS, "--out", "pipe"], "it is not a regular file"),
    (["lab", "draft-length", "--out", f"{LONG}.csv"], "File name too long; choose another place."),
    (["write", "--out", LONG], "File name too long; choose another place."),
    (["site", LONG], "File name too long; choose another place."),
    (["replay", "story-sampled", "--html", "/nowhere/x.html"], "Cannot write /nowhere/x.html"),
    (["bench", "--prompts", "/nowhere", "--out", "bench.json"], "Cannot read the prompts"),
    ([*BENCH, "--out", "/nowhere/bench.json"], "Cannot write"),
    ([*BENCH, "--k", "3,40"], "k must be"),
    ([*BENCH, "--temperature", "0,nan"], "temperature must be"),
    ([*BENCH, "--drafters", "draft-model,oracle"], "Unknown drafter"),
    ([*BENCH, "--draft", "none", "--drafters", "n-gram,lookup+model"], "This pair has no draft model"),
    ([*BENCH, "--repeats", "0"], "--repeats must be at least 1"),
    ([*BENCH, "--limit", "0"], "--limit must be at least 1"),
    ([*BENCH, "--pair", "nope"], "Unknown pair"),
    ([*BENCH, "--cluster", "auto", "--replicas", "0"], "--replicas must be"),
    ([*BENCH, "--cluster", "auto", "--threads", "1"], "--threads does not apply"),
    ([*BENCH, "--peers", "--gguf", "/nowhere"], "--gguf takes a file"),
    ([*WATCH, "--temperature", "3"], "temperature must be"),
    ([*WATCH, "--out", "/nowhere/x.json"], "Cannot write"),
    (["prove", "--control", "wrong"], "--control must be one of: accept-everything, no-residual"),
    (["prove", "--distribution", "0"], "--distribution must be from 1 to 10000"),
    (["prove", "--audit", "0"], "--audit must be at least 1"),
    (["prove", "--precision", "bf17"], "Unknown precision"),
    (["lab", "draft-length", "--k", "40"], "k must be"),
    (["lab", "draft-length", "--drafter", "oracle"], "Unknown drafter"),
    (["lab", "draft-length", "--rule", "rejection"], "needs a temperature"),
    (["lab", "draft-length", "--out", "/nowhere/x.csv"], "Cannot write"),
    (["lab", "draft-length", "--limit", "0"], "--limit must be at least 1"),
    (["write", "--out", __file__], "Cannot write"),
    (["write", "--without", "/nowhere"], "Cannot read the prompts"),
    (["write", "--seed", "-1"], "seed must be"),
    (["train", "--minutes", "nan"], "--minutes must be more than 0"),
    (["train", "--text", "/nowhere"], "--text takes a folder"),
    (["train", "--out", f"{__file__}/draft"], "Cannot write"),
    (["serve", "--watch", "x"], "--watch takes NAME=URL"),
    (["serve", "--replicas", "0"], "--replicas must be"),
    (["serve", "--replicas", "built-in=1,nope=1"], "--replicas names nope"),
    (["serve", "--precision", "bf17"], "invalid choice: 'bf17'"),
    (["serve", "--pair", "nope"], "invalid choice: 'nope'"),
    (["serve", "--device", "gpu"], "Unknown device"),
    (["serve", "--threads", "1000000"], "the number of processors, got 1000000."),
    (["serve", "SPECDEMO_THREADS=-1"], "--threads must be between 1 and "),
    (["serve", "--target", "gpt2"], "--target needs --draft"),
    (["serve", "--target", "/nowhere", "--draft", "none"], "--target takes a hub id or a folder"),
    (["serve", "--max-waiting", "-1"], "--max-waiting must be between 0 and 1,000"),
    (["serve", "--max-seconds", "nan"], "--max-seconds must be more than 0, got nan."),
    (["serve", "--allow-host", "a/b"], "--allow-host takes names"),
    (["serve", "--allow-frame", "a/b"], "--allow-frame takes names"),
    (["serve", "--trust-proxy", "proxy"], "--trust-proxy takes addresses"),
    (["serve", "--port", "70000"], "--port must be between 1 and 65535, got 70000."),
    (["serve", "--port", "TAKEN"], " is in use; choose another with --port."),
    (["serve", "--host", "nowhere.invalid"], "Cannot listen on nowhere.invalid"),
    (["serve", "--host", "::ffff:127.0.0.1"], "Cannot listen on ::ffff:127.0.0.1"),
    (["serve", "--host", "fe80::1%eth0"], "--host takes an address without a zone, not 'fe80::1%eth0'."),
    (["serve", "--host", "x" * 64], "--host takes an address or a name"),
    (["serve", "--root-path", "specdemo"], "--root-path takes a path such as /specdemo"),
    (["serve", "--root-path", "../x"], "--root-path takes a path such as /specdemo"),
    (["serve", "SPECDEMO_MCP=maybe"], "SPECDEMO_MCP must be true or false, got 'maybe'."),
    (["serve", "SPECDEMO_PRECISION=bf17"], "invalid choice: 'bf17'"),
]
RUN_EACH = """
import contextlib, io, json, os, runpy, sys
for name in ("torch", "gradio", "transformers", "ray"):
    sys.modules[name] = None  # importing one raises
said = []
for arguments in json.loads(sys.stdin.read()):
    variables = [one for one in arguments if one.startswith("SPECDEMO_")]
    os.environ.update(one.split("=", 1) for one in variables)
    sys.argv = ["specdemo", *(one for one in arguments if one not in variables)]
    with contextlib.redirect_stderr(io.StringIO()) as heard:
        try:
            from specdemo.cli.main import main
            status = main()
        except SystemExit as error:
            status = error.code
        except ImportError as error:
            status = repr(error)
    for one in variables:
        del os.environ[one.split("=")[0]]
    said.append((status, heard.getvalue()))
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Return the status and output of each refusal, from a process that cannot import a large library."""
    folder = tmp_path_factory.mktemp("elsewhere")
    os.mkfifo(folder / "pipe")
    (folder / "nested.jsonl").write_text("[" * 100_000)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        asked = json.dumps([arguments for arguments, _ in REFUSED]).replace("TAKEN", port)
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n{RUN_EACH}"],
            input=asked,
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=lambda number: " ".join(REFUSED[number][0])[:60])
def test_a_refused_argument_needs_no_large_library(printed, number):
    status, words = printed[number]
    last = words.strip().splitlines()[-1] if words else ""
    assert (status, REFUSED[number][1] in last) == (2, True), (status, words)


def test_early_checks_have_the_names_of_pairs_and_precisions():
    assert tuple(preset.name for preset in PRESETS) == PAIRS
    assert set(DTYPES) == set(PRECISIONS)


def test_without_a_port_the_next_free_one_is_used():
    with socket.create_server(("127.0.0.1", 0)):
        assert check_address(None, None) is None
