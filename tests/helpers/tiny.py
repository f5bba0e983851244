"""Tiny random models, and a lookup table in place of a model for statistics over many runs."""

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.engine.speculate import autoregress, speculate
from specdemo.models.attention import ATTENTION
from specdemo.models.batch_invariance import ROWS, find_batch_invariant_rows
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair
from specdemo.records.limits import MAX_K
from specdemo.records.pieces import PieceTable
from specdemo.records.trace import Calibration, Mode, Round, Rule, RunConfig
from specdemo.service.service import Service, local_service

PLANTED_V = tuple(1 + 0.01 * n for n in range(MAX_K + 1))
CHAT_TEMPLATE = "{% for m in messages %}<s>{{ m['content'] }}</s>{% endfor %}"


def config_for(rule: Rule = Rule.GREEDY, **changes: object) -> RunConfig:
    base = RunConfig(prompt="x", mode=Mode.RAW, rule=rule, temperature=0.0 if rule is Rule.GREEDY else 1.0)
    return replace(base, **changes)


def tiny_llama(
    vocab: int, seed: int, dtype=torch.float64, spread: float = 0.6, context: int = 512, width: int = 16
) -> LlamaForCausalLM:
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        initializer_range=spread,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    config._attn_implementation = ATTENTION
    torch.manual_seed(seed)
    return LlamaForCausalLM(config).to(dtype).eval()


def nearby(model: nn.Module, seed: int, noise: float) -> nn.Module:
    """Return a copy of ``model`` with noise on its weights: a draft that agrees sometimes."""
    other = LlamaForCausalLM(model.config).to(next(model.parameters()).dtype).eval()
    other.load_state_dict(model.state_dict())
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            weight += noise * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return other


class TableRuntime:
    """A runtime that looks logits up by context, so that it is fast."""

    def __init__(self, table: dict[tuple[int, ...], Tensor]):
        self.table = table
        self.device = torch.device("cpu")
        self.id_map = None
        self.max_context = 1 << 20
        self._text: list[int] = []

    @classmethod
    def of(cls, model: nn.Module, prompt: Sequence[int], depth: int) -> "TableRuntime":
        vocab = model.config.vocab_size
        table = {}
        for size in range(depth + 1):
            contexts = [(*prompt, *tail) for tail in itertools.product(range(vocab), repeat=size)]
            with torch.inference_mode():
                logits = model(torch.tensor(contexts), use_cache=False).logits[:, -1]
            table |= dict(zip(contexts, logits, strict=True))
        return cls(table)

    @property
    def length(self) -> int:
        return len(self._text)

    def begin(self, capacity: int) -> None:
        self._text = []

    def prefill(self, ids: Tensor) -> None:
        self._text += ids.tolist()

    def forward(self, ids: Tensor) -> Tensor:
        rows = []
        for token in ids.tolist():
            self._text.append(token)
            rows.append(self.table[tuple(self._text)])
        return torch.stack(rows)

    def rollback(self, length: int) -> None:
        assert 0 <= length <= len(self._text)
        del self._text[length:]


class Choosy(DraftModelDrafter):
    """A wrong drafter: drops a token after it was drawn if it was unlikely."""

    def propose(self, text, length, rule):
        draft = super().propose(text, length, rule)
        if len(draft) == 0 or draft.probs[0, draft.rows[0]] > 0.5:
            return draft
        return replace(draft, ids=draft.ids[:0], probs=draft.probs[:0], rows=draft.rows[:0])


def speculative_rounds(
    target: nn.Module, draft: nn.Module, prompt: Sequence[int], config: RunConfig, **options: object
) -> list[Round]:
    drafter = DraftModelDrafter(ModelRuntime(draft))
    return list(speculate(ModelRuntime(target), drafter, prompt, config, **options))


def baseline_rounds(
    target: nn.Module, prompt: Sequence[int], config: RunConfig, **options: object
) -> list[Round]:
    return list(autoregress(ModelRuntime(target), prompt, config, **options))


def at_least(rows: int) -> tuple[int, ...]:
    return tuple(max(rows, count) for count in range(1, ROWS + 1))


def padding(model: nn.Module) -> tuple[int, ...]:
    """Return the padding with which a model's passes agree bit for bit here; empty if there is none."""
    good = find_batch_invariant_rows(model)
    return tuple(min(n for n in good if n >= count) for count in range(1, ROWS + 1) if good)


def emitted(rounds: Sequence[Round]) -> list[int]:
    return [token for round_ in rounds for token in round_.emitted]


def byte_tokenizer(extra: Sequence[str] = ()) -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer without merges: 256 bytes and two control tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<s>", "</s>", *alphabet, *extra]
    backend = Tokenizer(models.BPE({name: i for i, name in enumerate(names)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def tiny_pair(seed: int = 0, noise: float = 0.05) -> Pair:
    """Return a pair over the byte tokenizer, in float32, with the costs of :func:`planted_costs`."""
    pair = unmeasured_pair(seed, noise)
    pair.costs.known |= planted_costs(seed)
    return pair


@functools.cache
def planted_costs(seed: int) -> dict[str, Calibration]:
    """Return a pair's costs with the same figures on every machine, but this machine's own row counts."""
    pair = unmeasured_pair(seed, noise=0.0)
    for drafter in ("draft-model", "early-exit"):
        Lanes(pair).calibrate(config_for(drafter=drafter))
    return {
        kind: replace(found, step_s=1e-3, c=0.1 if kind else 0.0, v=PLANTED_V, scatter=0.0)
        for kind, found in pair.costs.known.items()
    }


def unmeasured_pair(seed: int = 0, noise: float = 0.05) -> Pair:
    """Return the same pair without costs; it measures them at first use."""
    tokenizer = byte_tokenizer()
    target = tiny_llama(len(tokenizer), seed, torch.float32, spread=0.4)
    return Pair(
        target_name="tiny target",
        draft_name="tiny draft",
        target=target,
        draft=nearby(target, seed + 1, noise),
        id_map=None,
        tokenizer=tokenizer,
        precision="fp32",
        pieces=PieceTable(tokenizer),
    )


def service_of(pair: Pair) -> Service:
    return local_service(lambda _name, _progress: pair)
