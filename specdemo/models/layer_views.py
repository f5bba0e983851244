"""Where a transformers model keeps its decoder layers, and views of a model that use only some of them."""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import Tensor, nn
from transformers import PretrainedConfig

from specdemo.records.limits import UserError


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    """The list of decoder layers of a causal language model.

    Raises:
        UserError: The model is not a plain stack of layers.
    """
    return model.base_model.get_submodule(layers_path(model))


def first_layers(model: nn.Module, count: int) -> nn.Module:
    """A view of ``model`` that runs its first ``count`` layers, then its norm and head. Nothing is copied.

    Raises:
        UserError: The model is not a plain stack of layers.
    """
    kept = nn.ModuleList(list(decoder_layers(model))[:count])
    config = config_with_layers(model.config, list(range(count)))
    shell = view = _shallow(model, config)
    base = next(name for name, child in model.named_children() if child is model.base_model)
    *parents, last = [base, *layers_path(model).split(".")]
    for name in parents:
        view._modules[name] = _shallow(view._modules[name], config)
        view = view._modules[name]
    view._modules[last] = kept
    return shell


def is_dispatched(model: nn.Module) -> bool:
    """Whether accelerate spread the model over devices, and moves what its modules read to where they are."""
    return bool(getattr(model, "hf_device_map", None))


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


def layers_path(model: nn.Module) -> str:
    """Name of the list of decoder layers below ``model.base_model``.

    Raises:
        UserError: There is no such list.
    """
    count = model.config.get_text_config().num_hidden_layers
    for name, child in model.base_model.named_modules():
        if isinstance(child, nn.ModuleList) and len(child) == count:
            return name
    raise UserError(
        f"{type(model).__name__} is not a plain stack of layers; choose another drafter or another target."
    )


def _shallow(module: nn.Module, config: PretrainedConfig) -> nn.Module:
    """A copy that shares parameters and submodules but may be given others."""
    view = copy.copy(module)
    view._modules = dict(module._modules)
    # Accelerate's forward is bound to the whole model; the parts, which hold the weights, keep theirs.
    view.__dict__.pop("forward", None)
    view.config = config
    return view
