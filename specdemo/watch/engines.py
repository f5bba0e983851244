"""Which program a server is, and with it how its streams are asked for and read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from specdemo.records.limits import UserError
from specdemo.service.queue import Stop
from specdemo.watch import llama_server, lm_studio, sglang, vllm
from specdemo.watch.servers import Server
from specdemo.watch.steps import Reader
from specdemo.watch.stream import reply


@dataclass(frozen=True)
class Engine:
    """A kind of server.

    Attributes:
        title: What visitors call it.
        reader: Reads its streams; made for each run with the server's name.
        fields, continuation_fields: What is asked of it beside the text, for a chat and for a continuation.
        silent: What it does not tell, as a sentence each.
        rounds: Whether the steps it tells while it writes are rounds; None where it tells them at the end.
    """

    title: str
    reader: Callable[[str], Reader]
    fields: Mapping[str, Any]
    continuation_fields: Mapping[str, Any]
    silent: tuple[str, ...]
    rounds: bool | None


def _engine(title: str, module: Any, reader: Callable[[str], Reader], rounds: bool | None) -> Engine:
    continuation = getattr(module, "CONTINUATION_FIELDS", module.FIELDS)
    return Engine(title, reader, module.FIELDS, continuation, module.SILENT, rounds)


LLAMA_SERVER = _engine("llama.cpp's server", llama_server, llama_server.LlamaServerReader, True)
VLLM = _engine("vLLM", vllm, vllm.VllmReader, None)
SGLANG = _engine("SGLang", sglang, sglang.SglangReader, None)
LM_STUDIO = _engine("LM Studio", lm_studio, lm_studio.PlainReader, False)
RAY_SERVE = _engine("Ray Serve LLM", vllm, vllm.VllmReader, None)
OTHER = _engine("a server of OpenAI's API", lm_studio, lm_studio.PlainReader, False)
OWNERS = {
    "llamacpp": LLAMA_SERVER,
    "vllm": VLLM,
    "sglang": SGLANG,
    "organization_owner": LM_STUDIO,
    "organization-owner": RAY_SERVE,
}
"""By what each says in ``owned_by`` of its models."""


@dataclass(frozen=True)
class Found:
    """A server as it was found: its engine and the model it serves."""

    engine: Engine
    model: str


def find(url: str, name: str, stop: Stop) -> Found | None:
    """Ask a server what it is; its first model is the one that is watched. None where ``stop`` says so.

    Raises:
        UserError: It cannot be reached, or serves no model.
    """
    answer = reply(f"{url}/v1/models", name, stop)
    if answer is None:
        return None
    listed = answer.get("data")
    first = listed[0] if isinstance(listed, list) and listed else None
    first = first if isinstance(first, dict) else {}
    model = first.get("id")
    if not isinstance(model, str) or not model:
        raise UserError(f"{name} lists no model; its host has to give the address of a model server.")
    return Found(OWNERS.get(str(first.get("owned_by")), OTHER), model)


def title_of(server: Server) -> str:
    """What the menu of models calls a server."""
    return f"{server.name} (watched)"
