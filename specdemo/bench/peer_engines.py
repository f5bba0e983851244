"""Libraries with kernels of their own, which read the target from a file: llama.cpp, OpenVINO, ONNX Runtime.

llama.cpp has two bindings: one that is compiled for the machine it is installed on, and one that comes
as a wheel for every machine with AVX2. Of the embedded target both get a second file too, in the format
llama.cpp is fastest with; its weights are rounded anew, so it writes other texts.
"""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from specdemo.bench.peer import Generate, Peer, PeerModels, versioned
from specdemo.bench.requantise import to_q4_0
from specdemo.pairs.embedded import GGUF, cache_folder

CONTEXT = 2048
"""Most tokens of prompt and text that llama.cpp keeps room for."""
LLAMA_CPP_LOOKUP_TOKENS = 2
"""What llama-cpp-python's documentation recommends without a GPU."""
XLLAMACPP_LOOKUP = {"size_n": 3, "size_m": 8}
"""Tokens that must recur, and most tokens copied after them. The server's own 12 and 48 hardly ever draft in
texts as short as ours, and its n-gram cache stops drafting after the first requests."""
OPENVINO_LOOKUP = {"num_assistant_tokens": 5, "max_ngram_size": 3}
"""As in the library's own example."""
ONNX_LOOKUP = {"ngram_size": 3, "max_draft_tokens": 4}
"""What the library's documentation starts from; drafts of a model are as long by default."""
ONNX_PRECISIONS = {"int8": "int8", "int4": "int4"}
"""Of our precisions those it has on the CPU as well; beside the others it runs in fp32."""
REQUEST_TIMEOUT_S = 600


def _llama_cpp(models: PeerModels) -> Iterator[Peer]:
    from llama_cpp import Llama  # pyright: ignore[reportMissingImports]
    from llama_cpp.llama_speculative import LlamaPromptLookupDecoding  # pyright: ignore[reportMissingImports]

    library = versioned("llama-cpp-python")

    def decoder(path: Path, **options: Any) -> Generate:
        llama = Llama(
            str(path), n_ctx=CONTEXT, n_threads=models.threads, n_threads_batch=models.threads,
            verbose=False, **options,
        )  # fmt: skip

        def generate(ids: list[int], tokens: int) -> list[int]:
            written: list[int] = []
            llama.reset()
            for token in llama.generate(ids, top_k=1, temp=0.0, repeat_penalty=1.0):
                written.append(token)
                if token in models.eos_ids or len(written) >= tokens:
                    break
            return written

        return generate

    for path, note in _gguf_files(models):
        yield Peer(library, f"plain{note}", True, decoder(path), _format(path))
        draft = LlamaPromptLookupDecoding(num_pred_tokens=LLAMA_CPP_LOOKUP_TOKENS)
        yield Peer(library, f"prompt lookup{note}", False, decoder(path, draft_model=draft), _format(path))


def _xllamacpp(models: PeerModels) -> Iterator[Peer]:
    xllamacpp: Any = import_module("xllamacpp")
    library = versioned("xllamacpp")
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def decoder(path: Path, lookup: dict[str, int]) -> Generate:
        options = xllamacpp.CommonParams()
        options.model.path = str(path)
        options.n_ctx, options.n_parallel, options.port, options.verbosity = CONTEXT, 1, 0, 0
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = models.threads
        if lookup:
            options.speculative.types = [
                xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE
            ]
        for name, value in lookup.items():
            setattr(options.speculative.ngram_simple, name, value)
        server = xllamacpp.Server(options)  # listens on a free port of this machine while it lives

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

    for path, note in _gguf_files(models):
        yield Peer(library, f"plain{note}", True, decoder(path, {}), _format(path))
        lookup = decoder(path, XLLAMACPP_LOOKUP)
        yield Peer(library, f"prompt lookup{note}", False, lookup, _format(path))


def _openvino_genai(models: PeerModels) -> Iterator[Peer]:
    import numpy as np
    import openvino  # pyright: ignore[reportMissingImports]
    import openvino_genai  # pyright: ignore[reportMissingImports]

    library = versioned("openvino-genai")

    def decoder(settings: dict[str, int], **options: Any) -> Generate:
        writer = openvino_genai.LLMPipeline(str(path), "CPU", INFERENCE_NUM_THREADS=models.threads, **options)
        config = openvino_genai.GenerationConfig()
        config.do_sample, config.apply_chat_template = False, False
        config.stop_token_ids = set(models.eos_ids)
        for name, value in settings.items():
            setattr(config, name, value)

        def generate(ids: list[int], tokens: int) -> list[int]:
            prompt = np.array([ids], dtype=np.int64)
            config.max_new_tokens = tokens
            inputs = openvino_genai.TokenizedInputs(
                openvino.Tensor(prompt), openvino.Tensor(np.ones_like(prompt))
            )
            return [int(token) for token in writer.generate(inputs, config).tokens[0]]

        return generate

    path, _ = _gguf_files(models)[0]
    yield Peer(library, "plain", True, decoder({}), _format(path))
    lookup = decoder(OPENVINO_LOOKUP, prompt_lookup=True)
    yield Peer(library, "prompt lookup", False, lookup, _format(path))


def _onnxruntime_genai(models: PeerModels) -> Iterator[Peer]:
    import onnxruntime_genai  # pyright: ignore[reportMissingImports]

    library = versioned("onnxruntime-genai")
    precision = ONNX_PRECISIONS.get(models.precision, "fp32")

    def decoder(folder: Path, **speculation: int) -> Generate:
        model = onnxruntime_genai.Model(str(folder))

        def generate(ids: list[int], tokens: int) -> list[int]:
            options = onnxruntime_genai.GeneratorParams(model)
            options.set_search_options(max_length=len(ids) + tokens, do_sample=False)
            if speculation:
                options.set_speculative_options(**speculation)
            writer = onnxruntime_genai.Generator(model, options)
            writer.append_tokens(ids)
            while not writer.is_done():
                writer.generate_next_token()
            return [int(token) for token in writer.get_sequence(0)[len(ids) :]]

        return generate

    pair = _onnx_pair(models, precision)
    target = pair / "target"
    yield Peer(library, "plain", True, decoder(target), precision)
    yield Peer(library, "draft model", False, decoder(pair), precision)
    yield Peer(library, "prompt lookup", False, decoder(target, **ONNX_LOOKUP), precision)


ENGINES = (_llama_cpp, _xllamacpp, _openvino_genai, _onnxruntime_genai)
"""From the models to a library's ways to write; an exception where the library cannot be set up."""


def _gguf_files(models: PeerModels) -> list[tuple[Path, str]]:
    """The target's files, with what a row says of each.

    Raises:
        ImportError: There is none.
    """
    if models.gguf is None:
        raise ImportError("it reads GGUF files, and --gguf names none")
    files = [(models.gguf, "")]
    if models.gguf == cache_folder() / Path(GGUF).name:
        again = models.gguf.with_name(models.gguf.name.replace(_format(models.gguf), "Q4_0"))
        files.append((to_q4_0(models.gguf, again), ", rounded anew"))
    return files


def _format(path: Path) -> str:
    """What the numbers in a GGUF file are stored as, by the custom of its name."""
    return path.stem.rpartition(".")[2]


def _onnx_pair(models: PeerModels, precision: str) -> Path:
    """Target and draft as ONNX Runtime reads them: a folder for both, with ``target`` in it alone.

    Raises:
        RuntimeError: The library's converter failed.
    """
    pair, source = models.folder / "onnx", models.folder / "target"
    models.target.save_pretrained(source)
    AutoTokenizer.from_pretrained(models.folder).save_pretrained(source)
    configs = {}
    for name, folder in (("target", source), ("draft", models.folder)):
        _build_onnx(folder, pair / name, precision, models.folder / "onnx-cache")
        configs[name] = config = json.loads((pair / name / "genai_config.json").read_text())
        config["model"]["decoder"]["session_options"]["intra_op_num_threads"] = models.threads
        config["model"]["eos_token_id"] = sorted(models.eos_ids)
        (pair / name / "genai_config.json").write_text(json.dumps(config))
    target, draft = (configs[name]["model"]["decoder"] for name in ("target", "draft"))
    target["filename"], draft["filename"] = "target/model.onnx", "draft/model.onnx"
    configs["target"]["model"]["draft"] = draft
    (pair / "genai_config.json").write_text(json.dumps(configs["target"]))
    return pair


def _build_onnx(source: Path, out: Path, precision: str, cache: Path) -> None:
    """Convert a folder as transformers saves it, in a process of its own, which says much meanwhile."""
    command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-m", source.name, "-i", str(source)]
    command += ["-o", str(out), "-p", precision, "-e", "cpu", "-c", str(cache)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"its converter said: {(done.stdout.strip().splitlines() or ['nothing'])[-1]}")
