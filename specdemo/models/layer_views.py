"""The layers, embedding and head of a transformers model, its first layers as a model, and the check of a
converted model's logits against torch's."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar, cast

from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from specdemo.records.limits import UserError

# The logits of a converted model are compared with torch's after so many tokens and layers.
CHECKED_TOKENS, CHECKED_LAYERS = 8, 2
MAX_ERROR = 0.3  # maximum error of logits ÷ their standard deviation; torch may compute in bf16

M = TypeVar("M", bound=nn.Module)


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    return _found_layers(model)[1]


def first_layers(model: M, count: int) -> M:
    """Return a model of the first ``count`` layers, the norm and the head, with the weights of ``model``."""
    source = cast(PreTrainedModel, model)
    kept = nn.ModuleList(list(decoder_layers(model))[:count])
    config = config_with_layers(source.config, list(range(count)))
    shell = _shallow(model, config)
    view: nn.Module = shell
    *parents, last = layers_path(model).split(".")
    for name in parents:
        below = _shallow(view.get_submodule(name), config)
        view._modules[name] = below
        view = below
    view._modules[last] = kept
    return shell


def is_dispatched(model: nn.Module) -> bool:
    """Return whether accelerate has spread the model over several devices."""
    return bool(getattr(model, "hf_device_map", None))


def input_embedding(model: nn.Module) -> nn.Embedding:
    return cast(PreTrainedModel, model).get_input_embeddings()  # pyright: ignore[reportReturnType]


def vocabulary_of(model: nn.Module) -> int:
    own = getattr(model, "vocabulary", None)
    return input_embedding(model).num_embeddings if own is None else own


def output_layer(model: PreTrainedModel) -> nn.Linear:
    return cast(nn.Linear, model.get_output_embeddings())


@contextmanager
def hidden_states(layers: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Yield a list to which every call of one of ``layers`` appends its output."""
    found: list[Tensor] = []

    def keep(module: nn.Module, args: tuple, output: Tensor | tuple[Tensor, ...]) -> None:
        found.append(output if isinstance(output, Tensor) else output[0])

    handles = [layer.register_forward_hook(keep) for layer in layers]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def config_with_layers(config: PretrainedConfig, layers: list[int]) -> PretrainedConfig:
    other = copy.deepcopy(config)
    other._attn_implementation = config._attn_implementation
    text = other.get_text_config()
    text.num_hidden_layers = len(layers)
    if vars(text).get("layer_types"):  # some configurations compute it from other settings
        text.layer_types = [text.layer_types[index] for index in layers]
    return other


def layers_path(model: nn.Module) -> str:
    """Return the name of the list of decoder layers."""
    return _found_layers(model)[0]


def _found_layers(model: nn.Module) -> tuple[str, nn.ModuleList]:
    # The cast also covers ``ReducedHeadDraft``, which has the attributes used here.
    source = cast(PreTrainedModel, model)
    count = source.config.get_text_config().num_hidden_layers
    text_layers = set(source.get_decoder().modules())  # a model may also have layers for images
    for name, child in source.named_modules():
        if child in text_layers and isinstance(child, nn.ModuleList) and len(child) == count:
            return name, child
    raise UserError(
        f"The layers of {type(model).__name__} do not form one list, which this drafter needs; choose "
        "another drafter or target."
    )


def _shallow(module: M, config: PretrainedConfig) -> M:
    """Return a shallow copy. Its submodules are those of ``module``, but they can be replaced in the copy."""
    view = copy.copy(module)
    view._modules = dict(module._modules)
    # accelerate's ``forward`` of this module would run the original module. Submodules keep theirs.
    view.__dict__.pop("forward", None)
    # A model of text and images has a configuration for each, and its text model has only that for text.
    own = type(getattr(module, "config", config)) is type(config)
    view.__dict__["config"] = config if own else config.get_text_config()
    return view


def logits_fault(found: Tensor, wanted: Tensor) -> str | None:
    """Return how logits [n, V] of a converted model differ from torch's; None if only by rounding.

    With a screen, only the largest logits of a row are exact.
    """
    best = wanted.argmax(-1, keepdim=True)
    error = (found.gather(1, best) - wanted.gather(1, best)).abs().max()
    if error <= MAX_ERROR * wanted.std() or not wanted.isfinite().all():
        return None
    return f"their logits differ from torch's by {error:.2g}"
