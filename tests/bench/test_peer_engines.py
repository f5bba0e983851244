"""Libraries that read the target from a file, played by stand-ins: what each is given and asked."""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.tiny import byte_tokenizer

from specdemo.bench.peer import PeerModels
from specdemo.bench.peer_engines import (
    ONNX_LOOKUP,
    OPENVINO_LOOKUP,
    XLLAMACPP_LOOKUP,
    _build_onnx,
    _llama_cpp,
    _onnxruntime_genai,
    _openvino_genai,
    _xllamacpp,
)
from specdemo.pairs.embedded import GGUF

EOS = 9
IDS = [3, 1, 4]


@pytest.fixture(autouse=True)
def version_one(monkeypatch):
    monkeypatch.setattr("specdemo.bench.peer_engines.versioned", lambda package: f"{package} 1")


@pytest.fixture
def models(tmp_path):
    byte_tokenizer().save_pretrained(tmp_path)
    target = SimpleNamespace(save_pretrained=lambda folder: folder.mkdir())
    return PeerModels(
        target, None, tmp_path, tmp_path / "tiny.Q8_0.gguf", frozenset({EOS}), "bf16", threads=2
    )


@pytest.fixture
def embedded(models, tmp_path, monkeypatch):
    """The same, with the embedded target's file, which is never written anew in fact."""
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    monkeypatch.setattr("specdemo.bench.peer_engines.to_q4_0", lambda source, path: path)
    file = tmp_path / GGUF.rpartition("/")[2]
    return PeerModels(None, None, tmp_path, file, models.eos_ids, models.precision, models.threads)


def names(peers):
    return [(peer.name, peer.precision, peer.alone) for peer in peers]


def test_llama_cpp_reads_the_embedded_target_in_two_formats(embedded, monkeypatch):
    loaded = []

    class Llama:
        def __init__(self, path, **options):
            loaded.append((path.rpartition(".Q")[2], options["n_threads"], options.get("draft_model")))

        def reset(self):
            pass

        def generate(self, ids, **options):
            yield from range(len(ids), 99)

    speculative = SimpleNamespace(LlamaPromptLookupDecoding=lambda num_pred_tokens: num_pred_tokens)
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=Llama))
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_speculative", speculative)
    peers = list(_llama_cpp(embedded))
    assert names(peers) == [
        ("plain", "Q4_1", True),
        ("prompt lookup", "Q4_1", False),
        ("plain, rounded anew", "Q4_0", True),
        ("prompt lookup, rounded anew", "Q4_0", False),
    ]
    assert loaded == [(f"4_{n}.gguf", 2, draft) for n in (1, 0) for draft in (None, 2)]
    assert peers[0].generate(IDS, 4) == [3, 4, 5, 6]
    assert peers[0].generate(IDS, 99)[-1] == EOS


@pytest.fixture
def completions():
    """A server that answers each request with as many tokens as it asks for; its address and the requests."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append((self.path, body))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"tokens": list(range(body["n_predict"]))}).encode())

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def test_the_wheel_of_llama_cpp_is_asked_for_ids_through_its_server(models, completions, monkeypatch):
    address, asked = completions
    started = []

    def parts():
        return SimpleNamespace(
            model=SimpleNamespace(), cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace(),
            speculative=SimpleNamespace(types=[], ngram_simple=SimpleNamespace()),
        )  # fmt: skip

    def server(options):
        started.append(options)
        return SimpleNamespace(listening_address=address)

    kinds = SimpleNamespace(COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE=2)
    library = SimpleNamespace(CommonParams=parts, Server=server, common_speculative_type=kinds)
    monkeypatch.setitem(sys.modules, "xllamacpp", library)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    peers = list(_xllamacpp(models))
    assert names(peers) == [("plain", "Q8_0", True), ("prompt lookup", "Q8_0", False)]
    assert [options.speculative.types for options in started] == [[], [2]]
    assert vars(started[1].speculative.ngram_simple) == XLLAMACPP_LOOKUP
    assert {options.cpuparams_batch.n_threads for options in started} == {2}
    assert peers[1].generate(IDS, 5) == [0, 1, 2, 3, 4]
    ((path, body),) = asked
    assert path == "/completion" and body["prompt"] == IDS
    assert (body["temperature"], body["cache_prompt"], body["return_tokens"]) == (0, False, True)


def test_openvino_reads_the_same_file(models, monkeypatch):
    made = []

    class LLMPipeline:
        def __init__(self, path, device, **options):
            made.append((path, device, options))

        def generate(self, inputs, config):
            assert config.stop_token_ids == {EOS} and not config.do_sample
            tokens = np.arange(config.max_new_tokens) + inputs.ids.shape[1]
            return SimpleNamespace(tokens=[tokens], config=config)

    library = SimpleNamespace(
        LLMPipeline=LLMPipeline,
        GenerationConfig=SimpleNamespace,
        TokenizedInputs=lambda ids, mask: SimpleNamespace(ids=ids, mask=mask),
    )
    monkeypatch.setitem(sys.modules, "openvino_genai", library)
    monkeypatch.setitem(sys.modules, "openvino", SimpleNamespace(Tensor=lambda values: values))
    peers = list(_openvino_genai(models))
    assert names(peers) == [("plain", "Q8_0", True), ("prompt lookup", "Q8_0", False)]
    threads = {"INFERENCE_NUM_THREADS": 2}
    assert made == [(str(models.gguf), "CPU", threads | more) for more in ({}, {"prompt_lookup": True})]
    assert [peer.generate(IDS, 3) for peer in peers] == [[3, 4, 5]] * 2
    assert OPENVINO_LOOKUP["num_assistant_tokens"] == 5


@pytest.fixture
def onnx(monkeypatch):
    """The library, and folders with the precision that were converted."""
    built = []

    def build(source, out, precision, cache):
        built.append((source.name, precision))
        out.mkdir(parents=True)
        decoder = {"filename": "model.onnx", "session_options": {"log_id": "x"}, "layers": len(built)}
        (out / "genai_config.json").write_text(json.dumps({"model": {"decoder": decoder, "eos_token_id": 0}}))

    class Options:
        def __init__(self, model):
            self.search, self.speculative = {}, {}
            self.set_search_options, self.set_speculative_options = (
                self.search.update, self.speculative.update,
            )  # fmt: skip

    class Generator:
        def __init__(self, model, options):
            self.options, self.sequence = options, []
            self.append_tokens = self.sequence.extend

        def is_done(self):
            return len(self.sequence) >= self.options.search["max_length"]

        def generate_next_token(self):
            self.sequence.append(self.options.speculative.get("ngram_size", 0))

        def get_sequence(self, index):
            return np.array(self.sequence)

    library = SimpleNamespace(Model=lambda folder: folder, GeneratorParams=Options, Generator=Generator)
    monkeypatch.setitem(sys.modules, "onnxruntime_genai", library)
    monkeypatch.setattr("specdemo.bench.peer_engines._build_onnx", build)
    return built


def test_onnx_runtime_gets_both_models_converted_to_a_precision_it_has(models, onnx):
    peers = list(_onnxruntime_genai(models))
    assert names(peers) == [
        ("plain", "fp32", True),
        ("draft model", "fp32", False),
        ("prompt lookup", "fp32", False),
    ]
    assert onnx == [("target", "fp32"), (models.folder.name, "fp32")]
    config = json.loads((models.folder / "onnx" / "genai_config.json").read_text())["model"]
    assert config["eos_token_id"] == [EOS]
    for number, name in enumerate(("decoder", "draft"), 1):
        assert config[name]["filename"] == f"{'target' if number == 1 else 'draft'}/model.onnx"
        assert config[name]["layers"] == number
        assert config[name]["session_options"] == {"log_id": "x", "intra_op_num_threads": 2}
    alone = json.loads((models.folder / "onnx" / "target" / "genai_config.json").read_text())["model"]
    assert alone["decoder"]["filename"] == "model.onnx" and "draft" not in alone
    assert [peer.generate(IDS, 2) for peer in peers] == [[0, 0], [0, 0], [ONNX_LOOKUP["ngram_size"]] * 2]


def test_beside_our_int4_onnx_runtime_runs_its_own(models, onnx, tmp_path):
    int4 = PeerModels(models.target, None, tmp_path, None, models.eos_ids, "int4", 2)
    assert {peer.precision for peer in _onnxruntime_genai(int4)} == {"int4"}


def test_a_converter_that_fails_is_quoted(tmp_path):
    with pytest.raises(RuntimeError, match="its converter said: "):
        _build_onnx(tmp_path / "nothing", tmp_path / "out", "fp32", tmp_path / "cache")


@pytest.mark.parametrize("engine", [_llama_cpp, _xllamacpp, _openvino_genai])
def test_without_a_file_there_is_nothing_to_read(engine, models, monkeypatch):
    for name in ("llama_cpp", "xllamacpp", "openvino", "openvino_genai"):
        monkeypatch.setitem(sys.modules, name, SimpleNamespace(Llama=None))
    lookup = SimpleNamespace(LlamaPromptLookupDecoding=None)
    monkeypatch.setitem(sys.modules, "llama_cpp.llama_speculative", lookup)
    bare = PeerModels(None, None, models.folder, None, models.eos_ids, "fp32", 1)
    with pytest.raises(ImportError, match="--gguf names none"):
        list(engine(bare))
