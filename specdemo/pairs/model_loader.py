"""Loading of a pair's models: read them, check them, and convert them to their fastest form."""

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import transformers
from safetensors import SafetensorError
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel
from transformers.utils.logging import set_tqdm_hook

from specdemo.models.attention import ATTENTION
from specdemo.models.compiled.openmp import missing
from specdemo.models.execution import CausalLM, WholeModel
from specdemo.models.feature_draft import FeatureDraft, load_feature_draft
from specdemo.models.fused_llama import FusedLlama, can_fuse
from specdemo.models.layer_views import (
    CHECKED_LAYERS,
    CHECKED_TOKENS,
    first_layers,
    input_embedding,
    is_dispatched,
    logits_fault,
)
from specdemo.models.n_gram import NGramTable, load_n_gram
from specdemo.models.reduced_draft import ReducedHeadDraft, is_reduced_draft, load_draft
from specdemo.models.weight_files import loading_faults
from specdemo.pairs.builtin_target import Progress, no_progress
from specdemo.pairs.compatible import (
    PLAIN,
    align_rows,
    require_known_ids,
    require_no_state,
    require_numbers,
    require_rollback,
    require_same_tokens,
)
from specdemo.pairs.hardware import Placement
from specdemo.pairs.hub import Files, counting_bar
from specdemo.records.limits import UserError, reason_of, show

if TYPE_CHECKING:  # numba takes half a second to import
    from specdemo.models.compiled.feature import CompiledFeatureDraft
    from specdemo.models.compiled.llama import CompiledLlama
    from specdemo.models.compiled.product import Matrix

# Type in which the weights are loaded; ``auto`` for the type in which they are stored.
DTYPES: dict[str, Any] = {"auto": "auto", "int8": "auto", "bf16": torch.bfloat16, "fp32": torch.float32}
NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
ROUNDED = "int8"
MIN_LINEAR_SHARE = 0.9  # share of the weights that must be in linear layers to round a model
_log = logging.getLogger(__name__)

Loaded = TypeVar("Loaded", bound=PreTrainedModel | ReducedHeadDraft)


@dataclass(frozen=True)
class Loader:
    """Loads the models of one pair, with common settings."""

    precision: str  # of the target and of a draft that is a whole model; a key of ``DTYPES``
    placement: Placement
    checked_on: str | None  # where models are loaded and checked; None for the devices in ``placement``

    @property
    def on_cpu(self) -> bool:
        return torch.device(self.placement.target).type == "cpu"

    def model(self, role: str, files: Files, progress: Progress) -> PreTrainedModel:
        """Load the ``target`` or ``draft`` from transformers.

        Drafts may first be built from its parts; :meth:`finished` then converts it to the chosen precision.
        """
        options, shards = {}, self.placement.shards if role == "target" else None
        if shards is not None:
            most = {torch.device(name).index: count for name, count in shards.items()}
            options = {"device_map": "auto", "max_memory": most}
        with weights_counted(files.name, progress):
            model: Any = load_causal_lm(
                str(files.folder),
                files.name,
                dtype=DTYPES[self.precision],
                attn_implementation=ATTENTION,
                **options,
            )
        if shards is None:
            model.to(self.checked_on or getattr(self.placement, role))
        elif {"cpu", "disk"} & set(map(str, model.hf_device_map.values())):
            raise UserError(f"{files.name} does not fit into the memory of the GPUs; choose a smaller model.")
        model.eval()
        require_no_state(role, files.name, model)
        return model

    def shared_embedding(self, target: PreTrainedModel) -> "Matrix | None":
        """Return the target's embedding for compiled passes; None if they are not compiled."""
        if not (self.on_cpu and missing() is None and can_fuse(target)):
            return None
        from specdemo.models.compiled.product import pack

        return pack(input_embedding(target).weight, rounded=self.precision == ROUNDED)

    def finished(
        self, role: str, files: Files, model: PreTrainedModel, embedding: "Matrix | None" = None
    ) -> WholeModel:
        """Convert a model to its fastest form, in which it computes in runs, and check its logits.

        ``model`` must not be used afterwards.
        """
        again = partial(self.model, role, files, no_progress)
        # Llama types can always be rolled back.
        check: Callable[..., None] = require_numbers if can_fuse(model) else require_rollback
        finished = self.executable(model, self.precision == ROUNDED, embedding, again)
        check(role, files.name, finished)
        return finished

    def draft(
        self,
        files: Files | None,
        target: PreTrainedModel,
        tokenizer: Any,
        progress: Progress,
        embedding: "Matrix | None" = None,
    ) -> tuple[CausalLM | None, torch.Tensor | None]:
        """Load the draft model and check that it fits ``target``; return it with its id map.

        ``embedding`` is the target's. The id map, shape [H], is None if the draft scores all target ids; both
        are None if ``files`` is None.
        """
        if files is None:
            return None, None
        if is_reduced_draft(files.folder):
            dtype = torch.float32 if self.on_cpu else None
            again = partial(load_draft, files.folder, target, ATTENTION, dtype)
            with _trained("a draft", "model", files.folder):
                small = again()
            require_known_ids(small.id_map, target)
            return self.executable(small, embedding is not None, embedding, again), small.id_map
        draft = self.model("draft", files, progress)
        require_same_tokens(tokenizer, tokenizer_of(files))
        id_map = align_rows(target, draft)
        return self.finished("draft", files, draft), id_map

    def feature_draft(
        self, path: Path | None, target: PreTrainedModel, embedding: "Matrix | None" = None
    ) -> "FeatureDraft | CompiledFeatureDraft | None":
        """Load the feature draft in ``path``, which shares the target's embedding."""
        if path is None:
            return None
        dtype = torch.float32 if self.on_cpu else None
        with _trained("a feature draft", "feature", path):
            found = load_feature_draft(path, target, dtype)
        require_known_ids(found.id_map, target)
        if embedding is None:
            return found
        from specdemo.models.compiled.feature import CompiledFeatureDraft

        return CompiledFeatureDraft(found, embedding)

    def n_gram(self, path: Path | None, target: PreTrainedModel) -> NGramTable | None:
        if path is None:
            return None
        with _trained("a table of n-grams", "n-gram", path):
            return load_n_gram(path, target.config.get_text_config().vocab_size)

    def executable(
        self,
        model: Loaded,
        rounded: bool,
        embedding: "Matrix | None",
        again: "Callable[[], Loaded]",
    ) -> "Loaded | FusedLlama | CompiledLlama":
        """Return ``model`` in its fastest form; the model passed in must not be used again.

        ``again`` loads the model again, if compiled passes compute other logits than torch.
        """
        if is_dispatched(model):
            return model  # accelerate's hooks work only with the original modules
        if not self.on_cpu:
            return FusedLlama(model) if can_fuse(model) else model
        if rounded and not can_fuse(model) and linear_share(model) < MIN_LINEAR_SHARE:
            raise UserError(
                f"Precision int8 needs linear layers, but most weights of {type(model).__name__} are in "
                "other layers; choose bf16 or fp32."
            )
        uncompiled = missing()
        if uncompiled is not None and rounded:
            raise UserError(
                f"Precision int8 needs compiled passes, but {uncompiled}; set the precision to auto."
            )
        if uncompiled is not None:
            _log.warning("Passes are not compiled, because %s.", uncompiled)
            return model.float()
        if can_fuse(model):
            return _compiled(model, rounded, embedding) or again().float()
        from specdemo.models.compiled.linear import compile_linears

        return compile_linears(model, rounded)


@torch.inference_mode()
def _compiled(model: Any, rounded: bool, embedding: "Matrix | None") -> "CompiledLlama | None":
    """Return a model for compiled passes; None if these compute other logits than torch."""
    from specdemo.models.compiled.llama import CompiledLlama

    ids = getattr(model, "id_map", torch.arange(model.config.vocab_size))[:CHECKED_TOKENS]
    # In bf16, torch's rounding grows from layer to layer.
    depth = min(CHECKED_LAYERS, model.config.num_hidden_layers)
    wanted = first_layers(model, depth)(input_ids=ids[None], use_cache=False).logits[0].float()
    compiled = CompiledLlama(model, rounded, embedding)
    execution = compiled.execution.first(depth)
    logits, _ = execution.run(ids, 0, execution.open(len(ids)), len(ids), ())
    fault = logits_fault(logits, wanted)
    if fault is None:
        return compiled
    _log.warning("Passes are not compiled: %s.", fault)
    return None


def linear_share(model: nn.Module) -> float:
    """Return the share of a model's weights, embeddings excluded, that are in linear layers."""
    linears = [m.weight for m in model.modules() if type(m) is nn.Linear]
    embeddings = {id(m.weight) for m in model.modules() if isinstance(m, nn.Embedding)}
    others = [p for p in model.parameters() if p.dim() > 1 and id(p) not in embeddings]
    total = sum(p.numel() for p in {id(p): p for p in (*linears, *others)}.values())
    return sum(w.numel() for w in linears) / total if total else 0.0


def tokenizer_of(files: Files) -> Any:
    return loading(AutoTokenizer.from_pretrained, str(files.folder), files.name)


@contextmanager
def _trained(what: str, kind: str, path: Path) -> Iterator[None]:
    """Raise ``UserError`` for any error of reading a draft that ``specdemo train`` wrote to ``path``."""
    try:
        yield
    except (UserError, torch.OutOfMemoryError):
        raise
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise UserError(
            f"Cannot load {what} for this target from {path} ({reason_of(error)}); choose a folder that "
            f"`specdemo train --kind {kind}` wrote for this target."
        ) from error


# Around loading: transformers' progress hook and torch's default dtype are global.
_ONE_AT_A_TIME = threading.RLock()


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


def load_causal_lm(path: str, name: str | None = None, **options: Any) -> PreTrainedModel:
    """Load a causal language model of transformers from safetensors files.

    The files must have exactly the tensors of its architecture, except those that transformers declares
    optional.
    """
    model, found = loading(
        AutoModelForCausalLM.from_pretrained,
        path,
        name,
        use_safetensors=True,
        ignore_mismatched_sizes=True,  # they are refused below, with their names
        output_loading_info=True,
        **options,
    )
    if faults := loading_faults(model, found):
        raise UserError(
            f"Cannot load {name or path}: the weights do not match the {type(model).__name__} in the "
            f"configuration ({faults}); choose a complete checkpoint of a causal language model."
        )
    return model


def loading(loader: Callable[..., Any], path: str, name: str | None = None, **options: Any) -> Any:
    """Call a ``from_pretrained`` method, and never run code from the model's files.

    ``name`` is the model's name in messages; None for ``path``.
    """
    name = name or path
    try:
        with _ONE_AT_A_TIME:
            return loader(path, trust_remote_code=False, **options)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise UserError(
            f"{name} does not fit into the memory of this machine; choose a smaller model."
        ) from error
    except Exception as error:  # each library that reads files raises errors of its own
        if error.args == (ATTENTION,):  # raised by models that do not support registered attentions
            raise UserError(
                f"{name} computes attention in a way that specdemo cannot replace; {PLAIN}."
            ) from error
        if "conversion of the weights" in str(error):  # transformers names the tensors only in its log
            raise UserError(
                f"Cannot load {name}: tensors of some layers are missing or have the wrong shape; choose a "
                "complete checkpoint of a causal language model."
            ) from error
        unknown_type = re.fullmatch(r"module 'torch' has no attribute '(.*)'", str(error))
        reason = (
            f"its configuration names the type {show(unknown_type[1])}, which torch {torch.__version__} lacks"
            if unknown_type
            else f"unknown value {reason_of(error)}"
            if isinstance(error, KeyError)  # its message is the key alone
            else reason_of(error)
        )
        raise UserError(
            f"Cannot load {name}: {reason}; choose a checkpoint that transformers {transformers.__version__} "
            "can load."
        ) from error
