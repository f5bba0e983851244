"""Load a pair of models and check that they fit each other.

Which models exist is said here and nowhere else. Knows no UI and no decoding.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

from specdemo.draft_model import is_reduced_draft, load_draft
from specdemo.feature_draft import FeatureDraft, load_feature_draft
from specdemo.fetch import Progress, embedded_target, silent
from specdemo.limits import UserError
from specdemo.pair import Pair
from specdemo.runtime import ATTENTION, ModelRuntime, UnsupportedAttentionError, capacity_for
from specdemo.text import PieceTable

EMBEDDED = "embedded"
ASSETS = Path(__file__).parent.parent / "assets"
EMBEDDED_DRAFT = ASSETS / "draft"
EMBEDDED_FEATURE_DRAFT = ASSETS / "feature-draft"
PRECISIONS = {"bf16": torch.bfloat16, "fp32": torch.float32}

PROBE_TOKENS = 32
PROBE_CACHE = 2048
SAME_UP_TO = 0.1
"""Relative distance of logits that rounding in bf16 does not reach and another computation exceeds."""
PLAIN = "choose a model with plain attention"


def load_pair(
    target: str = EMBEDDED,
    draft: str | None = EMBEDDED,
    feature_draft: str | None = None,
    device: str | None = None,
    precision: str = "bf16",
    progress: Progress = silent,
) -> Pair:
    """Load two models that share a tokeniser.

    Args:
        target: ``embedded``, a hub id, or a folder.
        draft: ``embedded`` (only with the embedded target), a hub id, or a folder; a folder may hold
            a full model or a reduced-head draft. None loads no draft model; drafters that need none
            still run.
        feature_draft: A folder written by ``specdemo train --kind feature`` for this target; the
            embedded target has one of its own.
        device: ``cpu``, ``cuda``, ``cuda:1``, …; by default CUDA where there is one.
        precision: ``bf16`` or ``fp32``.

    Raises:
        UserError: A device or model cannot be used, or the two models do not fit; the sentence names
            the first difference.
    """
    if precision not in PRECISIONS:
        raise UserError(f"Unknown precision {precision!r}; choose one of: {', '.join(PRECISIONS)}.")
    if draft == EMBEDDED and target != EMBEDDED:
        raise UserError("The embedded draft fits only the embedded target; name a draft for this target too.")
    place = chosen_device(device)
    dtype = PRECISIONS[precision]
    target_path = str(embedded_target(progress)) if target == EMBEDDED else target
    progress("Loading the models", 0.9)
    target_model = _load_model("target", target_path, dtype, place)
    tokenizer = loading(AutoTokenizer.from_pretrained, target_path)
    draft_path = str(EMBEDDED_DRAFT) if draft == EMBEDDED else draft
    draft_model, id_map = (
        (None, None) if draft_path is None else _load_draft(draft_path, target_model, tokenizer, dtype, place)
    )
    pair = Pair(
        target_name=Path(target_path).name if target == EMBEDDED else target,
        draft_name="distilled draft" if draft == EMBEDDED else draft or "none",
        target=target_model,
        draft=draft_model,
        id_map=id_map,
        tokenizer=tokenizer,
        precision=precision,
        pieces=PieceTable(tokenizer),
        feature_draft=_feature_draft(target, feature_draft, target_model),
    )
    progress("Measuring pass costs and warming up", 0.95)
    pair.warm_up()
    progress("Ready", 1.0)
    return pair


def _load_draft(
    path: str, target: nn.Module, tokenizer: Any, dtype: torch.dtype, place: torch.device
) -> tuple[nn.Module, torch.Tensor | None]:
    """A draft model that fits ``target``, and its id map if it scores fewer tokens."""
    if is_reduced_draft(Path(path)):
        draft = load_draft(Path(path), target, ATTENTION)
        _require_known_ids(draft.id_map, target)
        return draft, draft.id_map
    draft = _load_model("draft", path, dtype, place)
    require_same_tokens(tokenizer, loading(AutoTokenizer.from_pretrained, path))
    return _shared_rows(target, draft)


def _feature_draft(target: str, folder: str | None, model: nn.Module) -> FeatureDraft | None:
    path = Path(folder) if folder else EMBEDDED_FEATURE_DRAFT
    if folder is None and (target != EMBEDDED or not path.is_dir()):
        return None
    try:
        draft = load_feature_draft(path, model)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UserError(
            f"Cannot load a feature draft of this target from {path}; name a folder written by "
            "`specdemo train --kind feature` for it."
        ) from error
    _require_known_ids(draft.id_map, model)
    return draft


def require_same_tokens(target: Any, draft: Any) -> None:
    """Refuse two tokenisers that disagree about any id.

    Raises:
        UserError: Naming the first id that differs.
    """
    left = {token: name for name, token in target.get_vocab().items()}
    right = {token: name for name, token in draft.get_vocab().items()}
    for token in sorted(left.keys() | right.keys()):
        if left.get(token) != right.get(token):
            raise UserError(
                f"The draft does not share the target's tokeniser: token {token} is "
                f"{_named(left.get(token))} in the target and {_named(right.get(token))} in the draft; "
                "choose a draft of the same model family."
            )


def require_rollback(role: str, name: str, model: nn.Module) -> None:
    """Refuse a model that, over a cache whose last positions are forgotten, does not give its own scores.

    A recurrent state is recognised by what transformers says of the model. Everything else (attention
    in both directions or with unusual inputs, a cache kept elsewhere or not at all) shows in a short
    text, read once without a cache, as transformers does it, and once in passes with a rollback.

    Args:
        role: ``target`` or ``draft``, for the message.
        model: Loaded with ``attn_implementation=ATTENTION``.

    Raises:
        UserError: Saying why the model cannot be used.
    """
    if _keeps_a_state(model):
        raise UserError(f"The {role} {name} keeps a recurrent state that cannot be rolled back; {PLAIN}.")
    try:
        distance = _distance_after_rollback(model)
    except UnsupportedAttentionError as error:
        raise UserError(f"The {role} {name} uses {error}, which is not computed here; {PLAIN}.") from error
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever foreign code raises when it misses its own kind of cache
        raise UserError(f"The {role} {name} cannot run over a cache that is rolled back; {PLAIN}.") from error
    if not distance < SAME_UP_TO:
        raise UserError(f"The {role} {name} gives other scores over a cache than without one; {PLAIN}.")


def _keeps_a_state(model: nn.Module) -> bool:
    """Whether a layer sums the text up instead of keeping its positions apart."""
    layers = DynamicCache(config=model.config).layers
    return model._is_stateful or any(hasattr(layer, "update_recurrent_state") for layer in layers)


@torch.inference_mode()
def _distance_after_rollback(model: nn.Module) -> float:
    """How far logits over the cursor cache are from those without a cache, relative to their spread.

    The median over positions: a router that tips to another expert at a near-tie does not count.
    """
    runtime = ModelRuntime(model)
    rows = model.get_input_embeddings().num_embeddings
    ids = torch.randint(rows, (PROBE_TOKENS,), generator=torch.Generator().manual_seed(0)).to(runtime.device)
    # transformers' eager attention rounds its scores to bf16, which alone is far off in some families.
    model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")
    try:
        expected = model(input_ids=ids[None], use_cache=False).logits[0]
    finally:
        model.set_attn_implementation(ATTENTION)
    # Capacities are rounded up, also beyond the last position; some models fail there.
    runtime.begin(capacity_for(min(runtime.max_context, PROBE_CACHE) + 1))
    half = PROBE_TOKENS // 2
    runtime.prefill(ids[:half])
    runtime.forward(ids[:half].flip(0))
    runtime.rollback(half)
    got = torch.cat([runtime.forward(ids[half : half + 1]), runtime.forward(ids[half + 1 :])])
    expected, got = (x.float() - x.float().mean(-1, keepdim=True) for x in (expected[half:], got))
    return ((got - expected).norm(dim=-1) / expected.norm(dim=-1)).median().item()


class _FittedDraft(nn.Module):
    """A draft whose matrices have another number of padding rows than the target's.

    Its logits are cut to ids the target can score; an id it cannot read, which no tokeniser gives,
    is read as its last one: a draft may be wrong, it may not fail.
    """

    def __init__(self, model: nn.Module, target_rows: int):
        super().__init__()
        self.model = model
        self.config = model.config
        self._target_rows = target_rows
        self._last_readable = model.get_input_embeddings().num_embeddings - 1

    def forward(self, input_ids: torch.Tensor, **kwargs: Any) -> Any:
        """The model's output with fitted logits."""
        output = self.model(input_ids=input_ids.clamp_max(self._last_readable), **kwargs)
        output.logits = output.logits[..., : self._target_rows]
        return output


def _shared_rows(target: nn.Module, draft: nn.Module) -> tuple[nn.Module, torch.Tensor | None]:
    """Fit a draft whose output matrix is padded to another size than the target's."""
    target_rows = target.get_output_embeddings().weight.shape[0]
    draft_rows = draft.get_output_embeddings().weight.shape[0]
    if draft_rows == target_rows:
        return draft, None
    scored = torch.arange(draft_rows, device=next(draft.parameters()).device)
    return _FittedDraft(draft, target_rows), scored if draft_rows < target_rows else None


def _require_known_ids(id_map: torch.Tensor, target: nn.Module) -> None:
    rows = target.get_output_embeddings().weight.shape[0]
    if int(id_map.max()) >= rows:
        raise UserError(
            f"This draft writes token {int(id_map.max())}, which the target's {rows} tokens do not include; "
            "use it with the target it was distilled from."
        )


def chosen_device(name: str | None) -> torch.device:
    """The device asked for, or the best one here, once a tensor could be put on it."""
    best = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(name or best)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The device {name!r} cannot be used here; choose {best}.") from error
    return place


def _load_model(role: str, path: str, dtype: torch.dtype, device: torch.device) -> nn.Module:
    model = loading(
        AutoModelForCausalLM.from_pretrained,
        path,
        dtype=dtype,
        attn_implementation=ATTENTION,
        use_safetensors=True,
    )
    model = model.to(device).eval()
    require_rollback(role, path, model)
    return model


def loading(loader: Callable[..., Any], path: str, **options: Any) -> Any:
    """Call a ``from_pretrained``, with its many ways to fail put into words."""
    try:
        return loader(path, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        if error.args == (ATTENTION,):  # looked up in a list of the model's own
            raise UserError(f"{path} does not let its attention be replaced; {PLAIN}.") from error
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(
            f"Cannot load {path}: {reason}. Check the name or folder and the connection."
        ) from error


def _named(token: str | None) -> str:
    return "missing" if token is None else repr(token)
