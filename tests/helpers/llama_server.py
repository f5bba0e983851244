"""llama.cpp's HTTP server, from the xllamacpp wheel, as a process of its own that others can watch.

Run as a script, it serves until its standard input ends, and so never outlives whoever started it. Needs a
Python with xllamacpp; the one that calls :func:`llama_server` needs nothing but the standard library.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

Mode = Literal["none", "ngram", "draft"]
"""The drafter: none, a search in the text so far, or a model."""
CONTEXT = 2048
"""The maximum number of tokens of prompt and text."""
N_GRAM = {"size_n": 3, "size_m": 8}
"""Tokens that must recur, and the maximum copied after them; the server's own 12 and 48 suit long texts."""
DRAFT = {"n_max": 4, "n_min": 0, "p_min": 0.0}
"""The maximum and minimum length of a model's draft, and the minimum probability of its tokens."""
VERBOSITY = 4
"""Logs the accepted draft tokens of each request by position; 3 logs only their sum."""
TAIL = 2000
"""Characters of a log that are shown when a server does not start."""


class LlamaServer(NamedTuple):
    url: str
    log: Path
    """The file with its error stream."""


@contextmanager
def llama_server(
    model: Path,
    mode: Mode = "none",
    draft: Path | None = None,
    *,
    log: Path,
    threads: int = 1,
    port: int = 0,
    python: str = sys.executable,
) -> Iterator[LlamaServer]:
    """Serve a GGUF file while the context lasts; ``draft`` is one with its tokenizer, port 0 a free one."""
    command = [python, __file__, str(model), str(port), mode, str(threads)]
    if draft is not None:
        command += ["--draft", str(draft)]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    with process:
        try:
            url = process.stdout.readline().strip() if process.stdout else ""
            if not url:
                raise RuntimeError(f"The server did not start: {log.read_text(errors='replace')[-TAIL:]}")
            yield LlamaServer(url, log)
        finally:
            process.kill()


def serve(model: Path, port: int, mode: Mode, threads: int, draft: Path | None) -> None:
    """Serve in this process: print the address once the model is loaded, and go on until the input ends."""
    xllamacpp: Any = import_module("xllamacpp")
    options = xllamacpp.CommonParams()
    options.model.path = str(model)
    options.model_alias = {model.stem}
    options.n_ctx, options.n_parallel, options.port, options.verbosity = CONTEXT, 1, port, VERBOSITY
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = threads
    options.endpoint_metrics = True
    kind = xllamacpp.common_speculative_type
    if mode == "ngram":
        options.speculative.types = [kind.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        _set(options.speculative.ngram_simple, N_GRAM)
    elif mode == "draft":
        options.speculative.types = [kind.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        options.speculative.draft.mparams.path = str(draft)
        options.speculative.draft.cpuparams.n_threads = threads
        options.speculative.draft.cpuparams_batch.n_threads = threads
        _set(options.speculative.draft, DRAFT)
    server = xllamacpp.Server(options)
    print(server.listening_address, flush=True)
    sys.stdin.read()


def _set(options: object, values: dict[str, int] | dict[str, float]) -> None:
    for name, value in values.items():
        setattr(options, name, value)


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("mode", choices=get_args(Mode))
    parser.add_argument("threads", type=int)
    parser.add_argument("--draft", type=Path)
    given = parser.parse_args()
    serve(given.model, given.port, given.mode, given.threads, given.draft)


if __name__ == "__main__":
    _main()
