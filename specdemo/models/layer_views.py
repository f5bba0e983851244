"""Where a transformers model keeps its decoder layers, and views of a model that use only some of them."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel

from specdemo.records.limits import UserError

if TYPE_CHECKING:
    from specdemo.models.reduced_draft import ReducedHeadDraft

M = TypeVar("M", bound=nn.Module)
Layered = TypeVar("Layered", bound="PreTrainedModel | ReducedHeadDraft")
"""A model whose decoder layers can be found."""


class EmbeddingOwner(Protocol):
    """A model whose input embedding others may look at or borrow."""

    def get_input_embeddings(self) -> nn.Module:
        """The embedding."""
        ...


def decoder_layers(model: "PreTrainedModel | ReducedHeadDraft") -> nn.ModuleList:
    """The list of decoder layers of a causal language model.

    Raises:
        UserError: The model is not a plain stack of layers.
    """
    return _found_layers(model)[1]


def first_layers(model: Layered, count: int) -> Layered:
    """A view of ``model`` that runs its first ``count`` layers, then its norm and head. Nothing is copied.

    Raises:
        UserError: The model is not a plain stack of layers.
    """
    kept = nn.ModuleList(list(decoder_layers(model))[:count])
    config = config_with_layers(model.config, list(range(count)))
    shell = _shallow(model, config)
    view: nn.Module = shell
    base = next(name for name, child in model.named_children() if child is model.base_model)
    *parents, last = [base, *layers_path(model).split(".")]
    for name in parents:
        below = _shallow(view.get_submodule(name), config)
        view._modules[name] = below
        view = below
    view._modules[last] = kept
    return shell


def is_dispatched(model: nn.Module) -> bool:
    """Whether accelerate spread the model over devices, and moves what its modules read to where they are."""
    return bool(getattr(model, "hf_device_map", None))


def input_embedding(model: EmbeddingOwner) -> nn.Embedding:
    """The matrix with a vector for each id, [V, d], which every family of language models begins with."""
    return cast(nn.Embedding, model.get_input_embeddings())


def output_layer(model: PreTrainedModel) -> nn.Linear:
    """The matrix with a row for each id, [V, d], which every family of language models ends with."""
    return cast(nn.Linear, model.get_output_embeddings())


@contextmanager
def hidden_states(layers: Sequence[nn.Module]) -> Iterator[list[Tensor]]:
    """Collect what ``layers`` put out, in the order they run, while the context is open."""
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
    """A copy of ``config`` for a model made of these of its layers."""
    other = copy.deepcopy(config)
    other._attn_implementation = config._attn_implementation
    text = other.get_text_config()
    text.num_hidden_layers = len(layers)
    if getattr(text, "layer_types", None):
        text.layer_types = [text.layer_types[index] for index in layers]
    return other


def layers_path(model: "PreTrainedModel | ReducedHeadDraft") -> str:
    """Name of the list of decoder layers below ``model.base_model``; raises as :func:`decoder_layers`."""
    return _found_layers(model)[0]


def _found_layers(model: "PreTrainedModel | ReducedHeadDraft") -> tuple[str, nn.ModuleList]:
    count = model.config.get_text_config().num_hidden_layers
    for name, child in model.base_model.named_modules():
        if isinstance(child, nn.ModuleList) and len(child) == count:
            return name, child
    raise UserError(
        f"{type(model).__name__} is not a plain stack of layers; choose another drafter or another target."
    )


def _shallow(module: M, config: PretrainedConfig) -> M:
    """A copy that shares parameters and submodules but may be given others."""
    view = copy.copy(module)
    view._modules = dict(module._modules)
    # Accelerate's forward is bound to the whole model; the parts, which hold the weights, keep theirs.
    view.__dict__.pop("forward", None)
    view.__dict__["config"] = config
    return view
