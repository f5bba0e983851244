"""Checks that two models can form a pair, and that each still works after its cache is rolled back."""

from typing import Any

import torch
from torch import nn
from transformers import DynamicCache, PreTrainedModel

from specdemo.models.attention import ATTENTION, UnsupportedAttentionError
from specdemo.models.execution import CausalLM
from specdemo.models.layer_views import input_embedding, output_layer, vocabulary_of
from specdemo.models.runtime import ModelRuntime, capacity_for
from specdemo.models.weight_files import NAMED
from specdemo.records.limits import UserError, first_names, show

PROBE_TOKENS = 32
PROBE_CACHE = 2048
SAME_UP_TO = 0.1  # maximum relative distance of equal logits; rounding to bf16 stays below it
PLAIN = "choose a model with standard causal attention"
# Settings of transformers' ``generate`` that change a greedy text and are not applied here, with the value at
# which they change nothing.
UNCHANGED_BY: dict[str, Any] = {
    "repetition_penalty": 1,
    "encoder_repetition_penalty": 1,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "force_words_ids": None,
    "constraints": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "sequence_bias": None,
    "exponential_decay_length_penalty": None,
    "min_length": 0,
    "min_new_tokens": 0,
    "num_beams": 1,
    "penalty_alpha": 0,
    "dola_layers": None,
    "guidance_scale": 1,
    "watermarking_config": None,
    "stop_strings": None,
    "token_healing": False,
}


def require_same_tokens(target: Any, draft: Any) -> None:
    left = {token: name for name, token in target.get_vocab().items()}
    right = {token: name for name, token in draft.get_vocab().items()}
    for token in sorted(left.keys() | right.keys()):
        if left.get(token) != right.get(token):
            raise UserError(
                f"The draft model and the target have different tokenizers: token {token} is "
                f"{_named(left.get(token))} in the target's and {_named(right.get(token))} in the draft "
                "model's; choose a draft model of the target's family."
            )


def require_no_state(role: str, name: str, model: PreTrainedModel) -> None:
    """Check that no layer keeps a recurrent state instead of one entry per position."""
    if getattr(model.config.get_text_config(), "layer_types", None):  # the model may have attention only
        layers = DynamicCache(config=model.config).layers
        recurrent = any(hasattr(layer, "update_recurrent_state") for layer in layers)
    else:
        recurrent = model._is_stateful
    if recurrent:
        raise UserError(
            f"The {role} model {name} has a recurrent state, which cannot be rolled back; {PLAIN}."
        )


def require_rollback(role: str, name: str, model: PreTrainedModel) -> None:
    """Check that a model's logits stay correct when its cache is rolled back.

    Problems such as bidirectional attention show in the logits of a short text, processed without a cache and
    again in parts with a rollback. The model must have the form that runs, which may compute in another type
    than that of the stored weights.
    """
    try:
        expected, got = _logits_without_and_with_rollback(model)
    except UnsupportedAttentionError as error:
        raise UserError(
            f"The {role} model {name} uses {error}, which specdemo does not support; {PLAIN}."
        ) from error
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # foreign code may raise anything when it misses its own kind of cache
        raise UserError(
            f"The {role} model {name} fails after a rollback of the KV cache; {PLAIN}."
        ) from error
    _require_finite(role, name, expected)
    # The median over positions, because rounding may change the choice of an expert at single positions.
    expected, got = (x - x.mean(-1, keepdim=True) for x in (expected, got))
    distance = ((got - expected).norm(dim=-1) / expected.norm(dim=-1)).median()
    if not distance < SAME_UP_TO:
        raise UserError(
            f"The {role} model {name} computes different logits with a KV cache than without one; {PLAIN}."
        )


def require_numbers(role: str, name: str, model: CausalLM) -> None:
    runtime = ModelRuntime(model)
    runtime.begin(capacity_for(PROBE_TOKENS))
    _require_finite(role, name, runtime.forward(torch.arange(PROBE_TOKENS, device=runtime.device)))


def _require_finite(role: str, name: str, scores: torch.Tensor) -> None:
    if not scores.isfinite().all():
        raise UserError(
            f"The {role} model {name} computes NaN or infinite logits, so the files may be damaged; "
            "download or copy the files of this model again."
        )


@torch.inference_mode()
def _logits_without_and_with_rollback(model: PreTrainedModel) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the logits of a short text without a cache and with a rolled-back cache, each [n, V], fp32."""
    runtime = ModelRuntime(model)
    rows = vocabulary_of(model)
    ids = torch.randint(rows, (PROBE_TOKENS,), generator=torch.Generator().manual_seed(0)).to(runtime.device)
    # Prefer sdpa: eager attention rounds scores to bf16, which changes some models' logits too much.
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
    return expected[half:].float(), got.float()


@torch.no_grad()
def align_rows(target: PreTrainedModel, draft: PreTrainedModel) -> torch.Tensor | None:
    """Adapt a draft whose vocabulary is padded to another number of rows than the target's.

    Ids that the target lacks are removed from the draft's output. Ids that the draft lacks get the embedding
    of the draft's last id: a draft may be wrong, but it must not fail. Return the target id of each row of
    the draft's output, shape [H]; None if the draft scores all target ids.
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
    """Check that the target has every id in a draft's ``id_map``, and that the map has each id once."""
    rows = output_layer(target).weight.shape[0]
    if not len(id_map) or int(id_map.min()) < 0 or len(id_map.unique()) < len(id_map):
        raise UserError("The token ids in this draft's files are damaged; copy these files again.")
    if int(id_map.max()) >= rows:
        raise UserError(
            f"This draft contains token id {int(id_map.max())}, but the target's highest token id is "
            f"{rows - 1}; choose the target for which this draft was trained."
        )


def notes_on(target: PreTrainedModel, tokenizer: Any) -> str:
    """Return sentences for the page on what differs from the target's usual decoding; often empty."""
    settings = target.generation_config
    ignored = [
        name
        for name, neutral in UNCHANGED_BY.items()
        if getattr(settings, name, None) not in (None, neutral, [], {})
    ]
    rows = vocabulary_of(target)
    unknown = sorted((token, name) for name, token in tokenizer.get_vocab().items() if token >= rows)
    notes = (
        [f"These generation settings of the target are not applied: {', '.join(ignored)}."] if ignored else []
    )
    if unknown:
        names = first_names([show(name) for _, name in unknown], NAMED)
        notes.append(f"The target has no embedding for {names}; prompts with these tokens are refused.")
    return " ".join(notes)


def _named(token: str | None) -> str:
    return "missing" if token is None else repr(token)
