"""Other libraries that a bench compares with specdemo; each runs in a separate process."""

import importlib
import importlib.metadata
import json
import os
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from specdemo.records.limits import UserError

CONTEXT = 2048  # tokens, prompt included, for which llama.cpp reserves memory
# The n-gram's length, and the maximum number of tokens copied after it. The defaults of llama.cpp, 12 and 48,
# rarely draft anything in short texts.
LLAMA_CPP_LOOKUP = {"size_n": 3, "size_m": 8}
OPENVINO_LOOKUP = {"num_assistant_tokens": 5, "max_ngram_size": 3}  # from OpenVINO's example
TRANSFORMERS_LOOKUP_TOKENS = 10  # from the documentation of transformers
WARM_UP_TOKENS = 8
REQUEST_TIMEOUT_S = 600

# From prompt ids and a maximum number of new tokens to the greedy new ids.
Generate = Callable[[list[int], int], list[int]]
Method = tuple[str, Generate]  # named; the first method of each library is its baseline, the target alone


@dataclass(frozen=True)
class PeerModels:
    """The files and settings from which other libraries load the models of a pair; it can be pickled."""

    target: str  # hub id or folder for transformers
    draft: str  # with the target's whole vocabulary
    gguf: Path | None  # the target, for llama.cpp and OpenVINO
    eos_ids: frozenset[int]
    precision: str
    threads: int  # of each library


class Contender(NamedTuple):
    """One decoding method of one library."""

    library: str  # name and version
    name: str  # the decoding method
    alone: bool  # True for the baseline, with which the other methods are compared
    precision: str
    # From prompt ids and a maximum number of new tokens to the new ids and seconds.
    write: Callable[[list[int], int], tuple[list[int], float]]


def transformers_methods(models: PeerModels) -> Iterator[Method]:
    """Yield the methods of transformers: plain, assisted by the draft model, and prompt lookup."""
    import torch
    from transformers import AutoModelForCausalLM

    from specdemo.pairs.model_loader import DTYPES

    torch.set_num_threads(models.threads)
    load: Any = AutoModelForCausalLM.from_pretrained
    target, draft = (
        load(path, dtype=DTYPES[models.precision]).eval() for path in (models.target, models.draft)
    )
    names = ("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold")
    drafting = {name: getattr(draft.generation_config, name) for name in names}

    def with_options(**options: Any) -> Generate:
        def generate(ids: list[int], tokens: int) -> list[int]:
            # Assisted generation adapts these values and keeps them after the call, so reset them.
            for name, value in drafting.items():
                setattr(draft.generation_config, name, value)
            prompt = torch.tensor([ids])
            output = target.generate(
                prompt,
                attention_mask=torch.ones_like(prompt),
                do_sample=False,
                max_new_tokens=tokens,
                eos_token_id=list(models.eos_ids),
                **options,
            )
            return output[0, len(ids) :].tolist()

        return generate

    yield "generate", with_options()
    yield "assisted generation", with_options(assistant_model=draft)
    yield "prompt lookup", with_options(prompt_lookup_num_tokens=TRANSFORMERS_LOOKUP_TOKENS)


def llama_cpp_methods(models: PeerModels) -> Iterator[Method]:
    """Yield the methods of llama.cpp, plain decoding and prompt lookup, through the server in its wheel."""
    xllamacpp: Any = importlib.import_module("xllamacpp")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def server(lookup: dict[str, int]) -> Generate:
        options = xllamacpp.CommonParams()
        options.model.path = str(models.gguf)
        options.n_ctx, options.n_parallel, options.port, options.verbosity = CONTEXT, 1, 0, 0
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = models.threads
        if lookup:
            kinds = xllamacpp.common_speculative_type
            options.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        for name, value in lookup.items():
            setattr(options.speculative.ngram_simple, name, value)
        server = xllamacpp.Server(options)  # it listens on a free local port until it is deleted

        def generate(ids: list[int], tokens: int) -> list[int]:
            body = {"prompt": ids, "n_predict": tokens, "temperature": 0, "top_k": 1}
            body |= {"cache_prompt": False, "return_tokens": True}
            request = urllib.request.Request(
                f"{server.listening_address}/completion",
                json.dumps(body).encode(),
                {"Content-Type": "application/json"},
            )
            with direct.open(request, timeout=REQUEST_TIMEOUT_S) as answer:
                return json.load(answer)["tokens"]

        return generate

    yield "plain", server({})
    yield "prompt lookup", server(LLAMA_CPP_LOOKUP)


def openvino_methods(models: PeerModels) -> Iterator[Method]:
    """Yield the methods of OpenVINO: plain decoding and prompt lookup."""
    import numpy as np
    import openvino  # pyright: ignore[reportMissingImports]
    import openvino_genai  # pyright: ignore[reportMissingImports]

    def pipeline(settings: dict[str, int], **options: Any) -> Generate:
        writer = openvino_genai.LLMPipeline(
            str(models.gguf), "CPU", INFERENCE_NUM_THREADS=models.threads, **options
        )
        config = openvino_genai.GenerationConfig()
        config.do_sample, config.apply_chat_template = False, False
        config.stop_token_ids = set(models.eos_ids)
        for name, value in settings.items():
            setattr(config, name, value)

        def generate(ids: list[int], tokens: int) -> list[int]:
            prompt = np.array([ids], dtype=np.int64)
            config.max_new_tokens = tokens
            mask = openvino.Tensor(np.ones_like(prompt))
            inputs = openvino_genai.TokenizedInputs(openvino.Tensor(prompt), mask)
            return [int(token) for token in writer.generate(inputs, config).tokens[0]]

        return generate

    yield "plain", pipeline({})
    yield "prompt lookup", pipeline(OPENVINO_LOOKUP, prompt_lookup=True)


TRANSFORMERS = "transformers"
# By package name; the function raises if the library cannot run here.
METHODS: dict[str, Callable[[PeerModels], Iterator[Method]]] = {
    TRANSFORMERS: transformers_methods,
    "xllamacpp": llama_cpp_methods,
    "openvino-genai": openvino_methods,
}


class PeerProcess:
    """A library in a separate process. Between requests it is suspended, so that its threads use no CPU time.

    Every method first continues ``warm_up``, the ids of a short prompt. ``contenders`` are the methods that
    work; ``failure`` is a sentence if one failed, otherwise empty.
    """

    def __init__(self, package: str, models: PeerModels, warm_up: list[int]):
        context = get_context("spawn")
        self._package = package
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(package, models, warm_up, theirs), daemon=True)
        self._process.start()
        theirs.close()
        library, precision, names, self.failure = self._received()
        self.contenders = [
            Contender(library, name, name == names[0], precision, partial(self._write, name))
            for name in names
        ]
        self._signal("SIGSTOP")

    def close(self) -> None:
        self._process.kill()
        self._process.join()

    def _write(self, name: str, ids: list[int], tokens: int) -> tuple[list[int], float]:
        self._signal("SIGCONT")
        self._pipe.send((name, ids, tokens))
        written = self._received()
        self._signal("SIGSTOP")
        return written

    def _received(self) -> Any:
        try:
            return self._pipe.recv()
        except EOFError:
            self.close()
            raise UserError(
                f"The library {self._package} crashed; uninstall this library, then run the bench again."
            ) from None

    def _signal(self, name: str) -> None:
        if hasattr(signal, name) and self._process.pid:  # Windows has neither SIGSTOP nor SIGCONT
            os.kill(self._process.pid, getattr(signal, name))


def serve(package: str, models: PeerModels, warm_up: list[int], pipe: Any) -> None:
    """Load a library, send the names of its methods, then serve write requests until the pipe is closed."""
    working: dict[str, Generate] = {}
    library, precision, failure = package, models.precision, ""
    try:
        if package != TRANSFORMERS:
            if models.gguf is None:
                raise ValueError("it needs a GGUF file; choose one with --gguf")
            precision = models.gguf.stem.rpartition(".")[2]  # files are usually named NAME.PRECISION.gguf
        library = f"{package} {importlib.metadata.version(package)}"
        for name, generate in METHODS[package](models):
            generate(warm_up, WARM_UP_TOKENS)
            working[name] = generate
    except Exception as error:  # a library may raise any error; the other libraries still run
        failure = f"{library} is left out after {len(working)} methods: {type(error).__name__}: {error}"
    pipe.send((library, precision, list(working), failure))
    with suppress(EOFError):  # raised when the bench closes the pipe
        while True:
            name, ids, tokens = pipe.recv()
            start = time.perf_counter()
            written = working[name](ids, tokens)
            pipe.send((written, time.perf_counter() - start))
