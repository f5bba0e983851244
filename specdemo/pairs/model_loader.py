"""Loading of a pair's models: read them, check them, and convert them to their fastest form."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils.logging import set_tqdm_hook

from specdemo.models.attention import ATTENTION
from specdemo.models.execution import CausalLM, WholeModel
from specdemo.models.feature_draft import FeatureDraft, load_feature_draft
from specdemo.models.fused_llama import FusedLlama, can_fuse
from specdemo.models.layer_views import is_dispatched
from specdemo.models.n_gram import NGramTable, load_n_gram
from specdemo.models.onnx_draft import OnnxFeatureDraft, onnx_draft, onnx_feature_draft, runs_graphs
from specdemo.models.packed_linear import CPU_PRECISIONS, DTYPES, linear_share, pack_linears
from specdemo.models.reduced_draft import ReducedHeadDraft, is_reduced_draft, load_draft
from specdemo.pairs.compatible import (
    PLAIN,
    align_rows,
    require_known_ids,
    require_numbers,
    require_rollback,
    require_same_tokens,
)
from specdemo.pairs.embedded import Progress
from specdemo.pairs.hub import Files, counting_bar
from specdemo.pairs.placement import Placement
from specdemo.records.limits import UserError

TARGET_HEAD_PRECISIONS = {"int4": "int8"}
"""Precision of the target's output layer, for precisions of the other layers in which it differs."""
MIN_LINEAR_SHARE = 0.9
"""Minimum share of a model's weights that must be in linear layers for a packed precision."""

Loaded = TypeVar("Loaded", bound=PreTrainedModel | ReducedHeadDraft)


@dataclass(frozen=True)
class Loader:
    """Loads the models of one pair, with common settings.

    Attributes:
        precision: Precision of the target, and of a draft model that is a whole model.
        draft_precision: Precision of drafts made by ``specdemo train``.
        placement: Devices that the models will run on.
        checked_on: Device on which the models are loaded and checked; None for the devices in ``placement``.
    """

    precision: str
    draft_precision: str
    placement: Placement
    checked_on: str | None

    def model(self, role: str, files: Files, progress: Progress) -> PreTrainedModel:
        """Load a transformers model, and check that its cache can be rolled back.

        Drafts may first be built from its parts; :meth:`finished` then converts it to the chosen precision.

        Args:
            role: ``target`` or ``draft``.
            files: The model's files.
            progress: Called with the share that is loaded.

        Raises:
            UserError: The model cannot be loaded, does not fit on the GPUs, or cannot be rolled back.
        """
        options, shards = {}, self.placement.shards if role == "target" else None
        if shards is not None:
            most = {torch.device(name).index: count for name, count in shards.items()}
            options = {"device_map": "auto", "max_memory": most}
        with weights_counted(files.name, progress):
            model = loading(
                AutoModelForCausalLM.from_pretrained,
                str(files.folder),
                files.name,
                dtype=DTYPES[self.precision],
                attn_implementation=ATTENTION,
                use_safetensors=True,
                **options,
            )
        if shards is None:
            model.to(self.checked_on or getattr(self.placement, role))
        elif {"cpu", "disk"} & set(map(str, model.hf_device_map.values())):
            raise UserError(f"{files.name} does not fit on the GPUs here; choose a smaller model.")
        model.eval()
        if not can_fuse(model):  # FusedLlama needs no check: it can always roll back
            require_rollback(role, files.name, model)
        return model

    def finished(self, role: str, files: Files, model: PreTrainedModel) -> WholeModel:
        """Convert a model to its fastest form; raise ``UserError`` if its logits are NaN or infinite.

        ``model`` must not be used afterwards.
        """
        head = TARGET_HEAD_PRECISIONS.get(self.precision)
        finished = executable(model, self.precision, head, torch.device(getattr(self.placement, role)))
        if isinstance(finished, FusedLlama):
            require_numbers(role, files.name, finished)
        return finished

    def draft(
        self, files: Files | None, target: PreTrainedModel, tokenizer: Any, progress: Progress
    ) -> tuple[CausalLM | None, torch.Tensor | None]:
        """Load the draft model and check that it fits ``target``.

        Returns:
            The draft model and its id map, shape [H]. The id map is None if the draft scores all target ids;
            both are None if ``files`` is None.
        """
        if files is None:
            return None, None
        if is_reduced_draft(files.folder):
            precision, device = self.draft_precision, torch.device(self.placement.target)

            def small(attention: str, dtype: torch.dtype) -> ReducedHeadDraft:
                found = load_draft(files.folder, target, attention, dtype)
                require_known_ids(found.id_map, target)
                return found

            if runs_graphs(device) and (graph := onnx_draft(small("sdpa", torch.float32))) is not None:
                return graph, graph.id_map
            plain = small(ATTENTION, DTYPES[precision])
            return executable(plain, precision, None, device), plain.id_map
        draft = self.model("draft", files, progress)
        require_same_tokens(tokenizer, tokenizer_of(files))
        id_map = align_rows(target, draft)
        return self.finished("draft", files, draft), id_map

    def feature_draft(
        self, path: Path | None, target: PreTrainedModel
    ) -> FeatureDraft | OnnxFeatureDraft | None:
        """Load the feature draft in ``path``, which shares the target's embedding; None if ``path`` is None.

        Raises:
            UserError: The feature draft cannot be loaded, or is for another target.
        """
        if path is None:
            return None
        precision, device = self.draft_precision, torch.device(self.placement.target)

        def loaded(dtype: torch.dtype) -> FeatureDraft:
            try:
                found = load_feature_draft(path, target, dtype)
            except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
                raise UserError(
                    f"Cannot load a feature draft of this target from {path}; name a folder written by "
                    "`specdemo train --kind feature` for it."
                ) from error
            require_known_ids(found.id_map, target)
            return found

        if runs_graphs(device) and (graph := onnx_feature_draft(loaded(torch.float32))) is not None:
            return graph
        return pack_linears(loaded(DTYPES[precision]), precision, precision, device)

    def n_gram(self, path: Path | None, target: PreTrainedModel) -> NGramTable | None:
        """Load the n-gram table in ``path``; return None if ``path`` is None.

        Raises:
            UserError: The table cannot be loaded, or is for another target.
        """
        if path is None:
            return None
        try:
            return load_n_gram(path, target.config.get_text_config().vocab_size)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise UserError(
                f"Cannot load a table of n-grams of this target from {path}; name a folder written by "
                "`specdemo train --kind n-gram` for it."
            ) from error


def executable(
    model: Loaded,
    precision: str,
    head_precision: str | None = None,
    destination: torch.device | None = None,
) -> Loaded | FusedLlama:
    """Return ``model`` in its fastest form on this machine; the model passed in must not be used again.

    Args:
        model: A model of transformers, or a reduced-head draft.
        precision: Precision of the layers, a key of ``packed_linear.DTYPES``.
        head_precision: Precision of the output layer; None for ``precision``.
        destination: Device that the model will run on; None for its current device.

    Raises:
        UserError: Most of the model's weights are not in linear layers, so the precision cannot be used.
    """
    head_precision = head_precision or precision
    if is_dispatched(model):
        return model  # accelerate's hooks work only with the original modules
    if can_fuse(model):
        return FusedLlama(model, precision, head_precision, destination)
    if not takes_precision(model, precision):
        raise UserError(
            f"{type(model).__name__} keeps its weights in layers that {precision} does not reach; "
            "choose bf16 or fp32."
        )
    return pack_linears(model, precision, head_precision, destination)


def takes_precision(model: PreTrainedModel | ReducedHeadDraft, precision: str) -> bool:
    """Return whether a model can run in ``precision``; some need most weights to be in linear layers."""
    return precision not in CPU_PRECISIONS or can_fuse(model) or linear_share(model) >= MIN_LINEAR_SHARE


def tokenizer_of(files: Files) -> Any:
    """Load the tokenizer in a model's folder."""
    return loading(AutoTokenizer.from_pretrained, str(files.folder), files.name)


_ONE_AT_A_TIME = threading.RLock()
"""A lock around loading: transformers' progress hook and torch's default dtype are global."""


@contextmanager
def weights_counted(name: str, progress: Progress) -> Iterator[None]:
    """Call ``progress`` with the share of tensors that transformers has loaded, while the context is open."""

    def show(done: float, total: float | None, unit: str) -> None:
        progress(f"Loading {name}", done / total if total else 0.0)

    bar = counting_bar(show)
    with _ONE_AT_A_TIME:
        before = set_tqdm_hook(lambda factory, arguments, options: bar(*arguments, **options))
        try:
            yield
        finally:
            set_tqdm_hook(before)


def loading(loader: Callable[..., Any], path: str, name: str | None = None, **options: Any) -> Any:
    """Call a ``from_pretrained`` method, and never run code from the model's files.

    Args:
        loader: The ``from_pretrained`` method.
        path: Folder or hub id of the model.
        name: Name of the model in messages; None for ``path``.
        options: Other arguments of ``loader``.

    Raises:
        UserError: The model cannot be loaded; the message gives the reason.
    """
    name = name or path
    try:
        with _ONE_AT_A_TIME:
            return loader(path, trust_remote_code=False, **options)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise UserError(f"{name} does not fit into memory here; choose a smaller model.") from error
    except Exception as error:  # each library that reads files raises errors of its own
        if error.args == (ATTENTION,):  # raised by models that do not support registered attentions
            raise UserError(f"{name} does not let its attention be replaced; {PLAIN}.") from error
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(
            f"Cannot load {name}: {reason}. Check the name or folder and the connection."
        ) from error
