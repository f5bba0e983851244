"""Checks that two models make a pair and that each can run over a cache that is rolled back."""

from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from specdemo.models.attention import ATTENTION, UnsupportedAttentionError
from specdemo.models.execution import CausalLM
from specdemo.models.layer_views import input_embedding, output_layer
from specdemo.models.runtime import ModelRuntime, capacity_for
from specdemo.records.limits import UserError

PROBE_TOKENS = 32
PROBE_CACHE = 2048
SAME_UP_TO = 0.1
"""Maximum relative distance of equal logits: rounding in bf16 stays below, another computation exceeds it."""
PLAIN = "choose a model with plain attention"


def require_same_tokens(target: Any, draft: Any) -> None:
    """Refuse two tokenizers that differ in any id.

    Raises:
        UserError: The tokenizers differ; the message names the first such id.
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


def require_rollback(role: str, name: str, model: PreTrainedModel) -> None:
    """Refuse a model whose logits change when its cache is rolled back.

    transformers reports recurrent states. Everything else (attention in both directions or with unusual
    inputs, a cache kept elsewhere or not at all) shows when a short text is processed once without a cache,
    as transformers does it, and once in passes with a rollback.

    Args:
        role: ``target`` or ``draft``, for the message.
        name: Name of the model, for the message.
        model: Loaded with ``attn_implementation=ATTENTION``.

    Raises:
        UserError: The model cannot be used; the message gives the reason.
    """
    if _keeps_a_state(model):
        raise UserError(f"The {role} {name} keeps a recurrent state that cannot be rolled back; {PLAIN}.")
    try:
        distance = _distance_after_rollback(model)
    except UnsupportedAttentionError as error:
        raise UserError(f"The {role} {name} uses {error}, which is not computed here; {PLAIN}.") from error
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # foreign code may raise anything when it misses its own kind of cache
        raise UserError(f"The {role} {name} cannot run over a cache that is rolled back; {PLAIN}.") from error
    if not distance < SAME_UP_TO:
        raise UserError(f"The {role} {name} gives other scores over a cache than without one; {PLAIN}.")


def require_numbers(role: str, name: str, model: CausalLM) -> None:
    """Raise ``UserError`` if the logits of a model that is ready to run are not numbers."""
    runtime = ModelRuntime(model)
    runtime.begin(capacity_for(PROBE_TOKENS))
    scores = runtime.forward(torch.arange(PROBE_TOKENS, device=runtime.device))
    if not scores.isfinite().all():
        raise UserError(f"The {role} {name} gives scores that are no numbers; its files may be damaged.")


def _keeps_a_state(model: PreTrainedModel) -> bool:
    """Return whether a layer keeps a recurrent state instead of one entry per position."""
    layers = DynamicCache(config=model.config).layers
    return model._is_stateful or any(hasattr(layer, "update_recurrent_state") for layer in layers)


@torch.inference_mode()
def _distance_after_rollback(model: PreTrainedModel) -> float:
    """Return the distance of logits over the cursor cache from those without a cache, relative to their norm.

    It is the median over positions, so that a router that picks another expert at a near-tie does not count.
    """
    runtime = ModelRuntime(model)
    rows = input_embedding(model).num_embeddings
    ids = torch.randint(rows, (PROBE_TOKENS,), generator=torch.Generator().manual_seed(0)).to(runtime.device)
    # transformers' eager attention rounds its scores to bf16, which alone is far off in some families.
    model.set_attn_implementation("sdpa" if model._supports_sdpa else "eager")
    try:
        expected = model(input_ids=ids[None], use_cache=False).logits[0]
    finally:
        model.set_attn_implementation(ATTENTION)
    # A capacity is rounded up, possibly beyond the last position, and some models fail there.
    runtime.begin(capacity_for(min(runtime.max_context, PROBE_CACHE) + 1))
    half = PROBE_TOKENS // 2
    runtime.prefill(ids[:half])
    runtime.forward(ids[:half].flip(0))
    runtime.rollback(half)
    got = torch.cat([runtime.forward(ids[half : half + 1]), runtime.forward(ids[half + 1 :])])
    expected, got = (x.float() - x.float().mean(-1, keepdim=True) for x in (expected[half:], got))
    return ((got - expected).norm(dim=-1) / expected.norm(dim=-1)).median().item()


@torch.no_grad()
def align_rows(target: PreTrainedModel, draft: PreTrainedModel) -> torch.Tensor | None:
    """Give a draft the target's number of vocabulary rows if its padding differs.

    It no longer scores ids that the target lacks, and reads ids that it lacks as its own last one: a draft
    may be wrong, but it must not fail.

    Returns:
        Target id of each row it scores, shape [H]; None if it scores all of the target's.
    """
    rows = output_layer(target).weight.shape[0]
    head, embedding = output_layer(draft), input_embedding(draft)
    own = head.weight.shape[0]
    if own > rows:
        head.weight, head.out_features = nn.Parameter(head.weight[:rows], requires_grad=False), rows
        if getattr(head, "bias", None) is not None:
            head.bias = nn.Parameter(head.bias[:rows], requires_grad=False)
    missing = rows - embedding.num_embeddings
    if missing > 0:
        weight = torch.cat([embedding.weight, embedding.weight[-1:].expand(missing, -1)])
        embedding.weight, embedding.num_embeddings = nn.Parameter(weight, requires_grad=False), rows
    return torch.arange(own, device=head.weight.device) if own < rows else None


def require_known_ids(id_map: torch.Tensor, target: PreTrainedModel) -> None:
    """Refuse a draft that writes tokens which its target does not have.

    Raises:
        UserError: There is such a token; the message names the largest.
    """
    rows = output_layer(target).weight.shape[0]
    if int(id_map.max()) >= rows:
        raise UserError(
            f"This draft writes token {int(id_map.max())}, which the target's {rows} tokens do not include; "
            "use it with the target it was distilled from."
        )


def _named(token: str | None) -> str:
    return "missing" if token is None else repr(token)
