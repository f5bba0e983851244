"""Load a pair of models and check that they fit each other.

Which models exist is said here and nowhere else. Knows no UI and no decoding.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from specdemo.draft_model import is_reduced_draft, load_draft
from specdemo.fetch import Progress, embedded_target, silent
from specdemo.limits import UserError
from specdemo.pair import Pair
from specdemo.runtime import ATTENTION
from specdemo.text import PieceTable

EMBEDDED = "embedded"
EMBEDDED_DRAFT = Path(__file__).parent.parent / "assets" / "draft"
PRECISIONS = {"bf16": torch.bfloat16, "fp32": torch.float32}


def load_pair(
    target: str = EMBEDDED,
    draft: str = EMBEDDED,
    device: str | None = None,
    precision: str = "bf16",
    progress: Progress = silent,
) -> Pair:
    """Load two models that share a tokeniser.

    Args:
        target: ``embedded``, a hub id, or a folder.
        draft: ``embedded`` (only with the embedded target), a hub id, or a folder; a folder may hold
            a full model or a reduced-head draft.
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
    place = _device(device)
    dtype = PRECISIONS[precision]
    target_path = str(embedded_target(progress)) if target == EMBEDDED else target
    draft_path = str(EMBEDDED_DRAFT) if draft == EMBEDDED else draft
    progress("Loading the models", 0.9)
    target_model = _load_model(target_path, dtype, place)
    tokenizer = _loading(AutoTokenizer.from_pretrained, target_path)
    if is_reduced_draft(Path(draft_path)):
        draft_model = load_draft(Path(draft_path), target_model, ATTENTION)
        id_map = draft_model.id_map
        _require_known_ids(id_map, target_model)
    else:
        draft_model = _load_model(draft_path, dtype, place)
        require_same_tokens(tokenizer, _loading(AutoTokenizer.from_pretrained, draft_path))
        draft_model, id_map = _shared_rows(target_model, draft_model)
    pair = Pair(
        target_name=Path(target_path).name if target == EMBEDDED else target,
        draft_name="distilled draft" if draft == EMBEDDED else draft,
        target=target_model,
        draft=draft_model,
        id_map=id_map,
        tokenizer=tokenizer,
        precision=precision,
        pieces=PieceTable(tokenizer),
    )
    progress("Measuring pass costs and warming up", 0.95)
    pair.warm_up()
    progress("Ready", 1.0)
    return pair


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


def _device(name: str | None) -> torch.device:
    """The device asked for, or the best one here, once a tensor could be put on it."""
    best = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        place = torch.device(name or best)
        torch.empty(1, device=place)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"The device {name!r} cannot be used here; choose {best}.") from error
    return place


def _load_model(path: str, dtype: torch.dtype, device: torch.device) -> nn.Module:
    model = _loading(
        AutoModelForCausalLM.from_pretrained,
        path,
        dtype=dtype,
        attn_implementation=ATTENTION,
        use_safetensors=True,
    )
    return model.to(device).eval()


def _loading(loader: Callable[..., Any], path: str, **options: Any) -> Any:
    try:
        return loader(path, **options)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UserError(
            f"Cannot load {path}: {reason}. Check the name or folder and the connection."
        ) from error


def _named(token: str | None) -> str:
    return "missing" if token is None else repr(token)
