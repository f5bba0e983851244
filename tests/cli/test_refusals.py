"""Refused arguments: one sentence, status 2, without importing torch or Gradio."""

import json
import os
import re
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
# A line of arguments, and words of the error. FILE is a file, LONG a name that is too long for a file system.
REFUSED = """
generate x --k 40 | k must be
generate x --k x | k must be a whole number from 1 to 12, or auto
generate x --temperature -1 | temperature must be
generate x --rule rejection | needs a temperature
generate x --seed -1 | seed must be
generate x --drafter oracle | Unknown drafter
generate x --precision bf17 | Unknown precision 'bf17'; choose one of: auto, bf16
generate x --pair nope | Unknown pair of models 'nope'; choose one of: built-in
generate x --device gpu | Unknown device 'gpu'
generate x --threads 0 | --threads must be between 1 and
generate x --target /nowhere | owner/name, or an existing folder, got /nowhere.
generate x --draft FILE | --draft must be a hub id such as owner/name, or an existing folder
generate x --feature-draft /nowhere | --feature-draft must be an existing folder, got /nowhere.
generate x --n-gram LONG | File name too long; choose
generate x --target LONG --draft none | File name too long; choose
generate x --target gpt2 | fits only the built-in target
generate x --draft none | No draft model is available
generate x --target gpt2 --draft none --drafter n-gram | No n-gram table is available
generate x --json /nowhere/x.json | Cannot write /nowhere/x.json
generate x --json / | Cannot write /: this path is a folder
generate x --json LONG | File name too long; choose
replay / | Cannot read /: Is a directory
replay FILE | This file is not a trace
replay story-sampled --html /nowhere/x.html | Cannot write /nowhere/x.html
bench --out bench.json --prompts /dev/zero | 100 MB
bench --out bench.json --prompts nested.jsonl | Line 1 of nested.jsonl is not a prompt
bench --out bench.json --prompts /nowhere | Cannot read the prompts
BENCH --out pipe | pipe: this path is not a regular file
BENCH --k 3,40 | k must be
BENCH --k 1,x | --k must be numbers or auto, separated by commas, got '1,x'.
BENCH --temperature 0,nan | temperature must be
BENCH --draft none --drafters n-gram,draft-model | No draft model is available
BENCH --target gpt2 --draft none --drafters lookup+model | for the drafter combined
BENCH --repeats 0 | --repeats must be at least 1
BENCH --limit 0 | --limit must be at least 1
BENCH --cluster auto --replicas 0 | specdemo: --replicas
BENCH --cluster auto --threads 1 | specdemo: --threads
BENCH --peers --k 2,4 | --peers compares greedy runs with one draft length
BENCH --peers --out FILE | exists already; choose a new file
BENCH --peers --gguf /nowhere | --gguf must be an existing file, got /nowhere.
WATCH --temperature 3 | temperature must be
WATCH --out pipe | this path is not a regular file
WATCH --alone nowhere | --alone must be an address such as http://127.0.0.1:8080, got 'nowhere'.
watch x,http://y --prompts PROMPTS --out watched.json | URL must be an address
prove --control wrong | --control must be one of: accept-everything, no-residual
prove --distribution 0 | --distribution must be from 1 to 10000
prove --audit 0 | --audit must be at least 1
lab draft-length --k 40 | k must be
lab draft-length --rule rejection | needs a temperature
lab draft-length --out /nowhere/x.csv | Cannot write
lab draft-length --out x.txt | --out must be a file that ends in .json or .csv, got x.txt.
lab draft-length --limit 0 | --limit must be at least 1
lab contrasts --cluster auto | got contrasts; leave out --cluster.
site . | OUT must be a new or empty folder
write --out FILE | Cannot write
write --tokens 0 | --tokens must be at least 1, got 0.
write --without /nowhere | Cannot read the prompts
write --seed -1 | seed must be
train --minutes nan | --minutes must be more than 0 and finite, got nan.
train --text /nowhere | --text must be an existing folder
train --out FILE/draft | Cannot write
serve --watch x | --watch must be NAME=URL
serve --replicas 0 | specdemo: --replicas
serve --replicas built-in=1,nope=1 | --replicas contains the unknown pair nope
serve --precision bf17 | invalid choice: 'bf17'
serve --pair nope | invalid choice: 'nope'
serve --device gpu | Unknown device
serve --threads 1000000 | (the number of processors), got 1000000.
serve SPECDEMO_THREADS=-1 | --threads must be between 1 and
serve --target gpt2 | --target needs --draft
serve --max-waiting -1 | --max-waiting must be between 0 and 1,000
serve --max-seconds nan | nan.
serve --allow-host a/b | specdemo: --allow-host
serve --allow-frame a/b | specdemo: --allow-frame
serve --trust-proxy proxy | specdemo: --trust-proxy
serve --port 70000 | --port must be between 1 and 65535, got 70000.
serve --port TAKEN | is in use; choose another port with --port.
serve --host nowhere.invalid | Cannot listen on nowhere.invalid
serve --host ::ffff:127.0.0.1 | Cannot listen on ::ffff:127.0.0.1
serve --host fe80::1%eth0 | --host must be an address without a zone such as %eth0, got 'fe80::1%eth0'.
serve --host LONG | --host must be an IP address or a host name
serve --root-path specdemo | a path such as /specdemo
serve --mcp | --mcp needs the package mcp; install the package with: pip install 'gradio[mcp]'.
serve SPECDEMO_MCP=maybe | SPECDEMO_MCP must be true or false, got 'maybe'.
""".strip().splitlines()
STANDS_FOR = {
    "BENCH": f"bench --prompts {PROMPTS} --out bench.json",
    "WATCH": f"watch http://127.0.0.1:1 --prompts {PROMPTS} --out watched.json",
    "PROMPTS": PROMPTS,
    "FILE": __file__,
    "LONG": "x" * 300,
}
RUN_EACH = """
import contextlib, io, json, os, runpy, sys
for name in ("torch", "gradio", "transformers", "ray", "mcp"):
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


def arguments_of(line: str, names: dict[str, str]) -> list[str]:
    words = line.partition(" | ")[0]
    for name, meaning in names.items():
        words = re.sub(rf"\b{name}\b", lambda _, meaning=meaning: meaning, words)
    return words.split()


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """Return the status and output for each line, from a process that cannot import a large library."""
    folder = tmp_path_factory.mktemp("elsewhere")
    os.mkfifo(folder / "pipe")
    (folder / "nested.jsonl").write_text("[" * 100_000)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        asked = json.dumps([arguments_of(line, {**STANDS_FOR, "TAKEN": port}) for line in REFUSED])
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(ROOT)!r}]\n{RUN_EACH}"],
            input=asked,
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=lambda number: REFUSED[number].split(" | ")[0])
def test_a_refused_argument_needs_no_large_library(printed, number):
    status, words = printed[number]
    last = words.strip().splitlines()[-1] if words else ""
    assert (status, REFUSED[number].split(" | ")[1] in last) == (2, True), (status, words)


def test_early_checks_have_the_names_of_pairs_and_precisions():
    assert tuple(preset.name for preset in PRESETS) == PAIRS
    assert set(DTYPES) == set(PRECISIONS)


def test_without_a_port_the_next_free_one_is_used():
    with socket.create_server(("127.0.0.1", 0)):
        assert check_address(None, None) is None
