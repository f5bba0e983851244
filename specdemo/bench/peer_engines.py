"""The other libraries that a bench compares with, each served by a process of its own."""

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
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from specdemo.records.limits import UserError

CONTEXT = 2048
"""The maximum number of tokens of prompt and text that llama.cpp reserves memory for."""
LLAMA_CPP_LOOKUP = {"size_n": 3, "size_m": 8}
"""Tokens that must recur, and the maximum number of tokens copied after them. The library's own 12 and 48
rarely draft anything in texts this short."""
OPENVINO_LOOKUP = {"num_assistant_tokens": 5, "max_ngram_size": 3}
"""The values of the library's own example."""
TRANSFORMERS_LOOKUP_TOKENS = 10
"""The value in the documentation of transformers."""
WARM_UP_TOKENS = 8
REQUEST_TIMEOUT_S = 600

Generate = Callable[[list[int], int], list[int]]
"""Return the new ids after prompt ids, greedily, up to a number of tokens."""


@dataclass(frozen=True)
class PeerModels:
    """The models of a pair as other libraries load them; plain data, which is sent to their processes.

    Attributes:
        target, draft: Hub ids or folders for transformers; both with the target's vocabulary.
        gguf: The target as llama.cpp and OpenVINO read it, if there is one.
        eos_ids: Ids that end a text.
        precision: The precision transformers runs in.
        threads: Processor threads of each library.
    """

    target: str
    draft: str
    gguf: Path | None
    eos_ids: frozenset[int]
    precision: str
    threads: int


class Contender(NamedTuple):
    """One way of one library to write.

    Attributes:
        library: The library with its version.
        name: The decoding method.
        alone: Whether it is the library's own baseline, which its other methods are compared with.
        precision: The precision of its weights.
        write: Returns the new ids after prompt ids, up to a number of tokens, and the seconds it took.
    """

    library: str
    name: str
    alone: bool
    precision: str
    write: Callable[[list[int], int], tuple[list[int], float]]


Method = tuple[str, bool, Generate]
"""A contender's name, whether it is the library's baseline, and the function that writes."""


def transformers_methods(models: PeerModels) -> Iterator[Method]:
    """Yield plain generation, assisted generation with the draft model, and prompt lookup."""
    import torch
    from transformers import AutoModelForCausalLM

    from specdemo.models.packed_linear import DTYPES

    torch.set_num_threads(models.threads)
    load: Any = AutoModelForCausalLM.from_pretrained
    target, draft = (
        load(path, dtype=DTYPES[models.precision]).eval() for path in (models.target, models.draft)
    )
    names = ("num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold")
    drafting = {name: getattr(draft.generation_config, name) for name in names}

    def with_options(**options: Any) -> Generate:
        def generate(ids: list[int], tokens: int) -> list[int]:
            # Assisted generation carries its tuned number of draft tokens from call to call.
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

    yield "generate", True, with_options()
    yield "assisted generation", False, with_options(assistant_model=draft)
    yield "prompt lookup", False, with_options(prompt_lookup_num_tokens=TRANSFORMERS_LOOKUP_TOKENS)


def llama_cpp_methods(models: PeerModels) -> Iterator[Method]:
    """Yield plain decoding and prompt lookup, through the server in llama.cpp's wheel."""
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
        server = xllamacpp.Server(options)  # listens on a free port of this machine while it exists

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

    yield "plain", True, server({})
    yield "prompt lookup", False, server(LLAMA_CPP_LOOKUP)


def openvino_methods(models: PeerModels) -> Iterator[Method]:
    """Yield plain decoding and prompt lookup."""
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

    yield "plain", True, pipeline({})
    yield "prompt lookup", False, pipeline(OPENVINO_LOOKUP, prompt_lookup=True)


TRANSFORMERS = "transformers"
METHODS: dict[str, Callable[[PeerModels], Iterator[Method]]] = {
    TRANSFORMERS: transformers_methods,
    "xllamacpp": llama_cpp_methods,
    "openvino-genai": openvino_methods,
}
"""Package -> its methods; raises anything if the library cannot be used here."""


class PeerProcess:
    """A library in a process of its own, suspended while others write so that its threads do not spin.

    Args:
        package: One of :data:`METHODS`.
        models: The models to load.
        warm_up: Ids of a short prompt that every method writes to once.

    Attributes:
        contenders: The methods that work.
        failures: A sentence for each method, or the whole library, that does not.
    """

    def __init__(self, package: str, models: PeerModels, warm_up: list[int]):
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(package, models, warm_up, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._package = package
        library, precision, working, self.failures = self._received()
        self.contenders = [
            Contender(
                library, name, alone, precision, lambda ids, tokens, name=name: self._write(name, ids, tokens)
            )
            for name, alone in working
        ]
        self._signal("SIGSTOP")

    def close(self) -> None:
        """End the process."""
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
            raise UserError(f"{self._package} crashed; run the bench again without it installed.") from None

    def _signal(self, name: str) -> None:
        if hasattr(signal, name) and self._process.pid:  # Windows has neither signal
            os.kill(self._process.pid, getattr(signal, name))


def serve(package: str, models: PeerModels, warm_up: list[int], pipe: Any) -> None:
    """Load a library, send what works, then answer requests to write until the process is ended."""
    working: dict[str, tuple[bool, Generate]] = {}
    failures: list[str] = []
    library, precision = package, models.precision
    try:
        if package != TRANSFORMERS:
            if models.gguf is None:
                raise ValueError("it reads GGUF files; name one with --gguf")
            precision = models.gguf.stem.rpartition(".")[2]  # by the naming convention of GGUF files
        library = f"{package} {importlib.metadata.version(package)}"
        for name, alone, generate in METHODS[package](models):
            generate(warm_up, WARM_UP_TOKENS)
            working[name] = alone, generate
    except Exception as error:  # other libraries fail in any way; the rest still runs
        failures.append(
            f"{library} is left out after {len(working)} methods: {type(error).__name__}: {error}"
        )
    pipe.send((library, precision, [(name, alone) for name, (alone, _) in working.items()], failures))
    with suppress(EOFError):  # the bench has ended
        while True:
            name, ids, tokens = pipe.recv()
            start = time.perf_counter()
            written = working[name][1](ids, tokens)
            pipe.send((written, time.perf_counter() - start))
