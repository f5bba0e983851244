"""Text of many makes that a target writes itself: what trainings can learn from beside the pool's answers.

Answers to the pool and to prompts the target proposes, second and third turns of those, changes of texts it
wrote before, and raw text. What repeats itself is ended: copying is learned by nobody and known to all.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from specdemo.pairs.pair import encode_prompt, eos_ids_of
from specdemo.records.trace import Mode
from specdemo.training.batched import BatchedDecoder
from specdemo.training.growing_batch import GrowingBatch
from specdemo.training.n_grams import WrittenText
from specdemo.training.pool import mode_for, prompt_pool, topics
from specdemo.training.proposals import EDITS, ChatHeaders, PromptFilter
from specdemo.training.write import TEMPERATURES

ROWS = 256
"""Texts written at once."""
PROPOSED, POOLED, FREE = 1024, 512, 256
"""Prompts a round begins with: proposed (of which about two thirds are used), of the pool, of raw text."""
POOL_ROUNDS = 64
"""Rounds after which the pool's prompts come again."""
POOL_SEED = 77_000
"""Far from those of trainings, whose evaluation is on prompts of the same pool."""
LONGEST_PROMPT = 320
"""Tokens a text is begun after; a longer conversation is not carried on."""
PROPOSAL_TOKENS, ANSWER_TOKENS, FREE_TOKENS = 96, 224, 320
"""Longest proposed prompt, answer and raw text."""
PROPOSAL_TEMPERATURES = (0.7, 0.8, 0.9)
FREE_TEMPERATURES = (0.6, 0.7, 0.8)
REPEATED = 24
"""A text that ends in so many tokens which stood in it in a row before is ended."""
LOOK_EVERY = 16
"""Steps between two looks for that."""
SHRINK_AT = 0.85
"""Rows that have ended leave the batch once no more than this share of it goes on."""
PARAGRAPH = (60, 600)
"""Characters of a paragraph that an edit may be asked of."""
OPENINGS = ("", "The ", "How ", "A ", "Why ", "In the ", "# ", "What is ", "Chapter 1\n\n", "def ", "import ")
PROPOSED_MAKE = "proposed"
BETWEEN_DOCUMENTS = "<|endoftext|>"
Prompt = list[int]


@dataclass(frozen=True)
class Made:
    """Texts of one make.

    Attributes:
        make: What they are, in a word or two.
        texts: Their ids, of which the last message is the target's own.
        ended: Of each text, whether the target ended it.
    """

    make: str
    texts: list[WrittenText]
    ended: list[bool]


class CorpusWriter:
    """Writes round by round; what a round holds follows from the seed, its number and those before.

    Args:
        target: A causal language model on its device.
        tokenizer: Its tokeniser; without a chat template there are only the pool and raw text.
        forbidden: Prompts with which nothing that is written may share much.
        seed: Of all draws.
        wrote: Told after each step how many tokens it wrote.
    """

    def __init__(
        self,
        target: PreTrainedModel,
        tokenizer: Any,
        forbidden: Sequence[str],
        seed: int,
        wrote: Callable[[int], None] = lambda tokens: None,
    ):
        self._tokenizer, self._seed, self._wrote = tokenizer, seed, wrote
        self._decoder = BatchedDecoder(target)
        self._eos = eos_ids_of(target, tokenizer)
        self._filter = PromptFilter(forbidden)
        self._chat = ChatHeaders(tokenizer, self._eos) if tokenizer.chat_template else None
        self._pool = prompt_pool(POOL_ROUNDS * POOLED, POOL_SEED + seed)

    def round(self, number: int) -> list[Made]:
        """One of everything: 1,200 to 1,800 texts."""
        rng = random.Random(f"{self._seed}/{number}")
        made = [self._free(rng), self._pooled(number, rng)]
        if self._chat:
            first = self._answers(PROPOSED_MAKE, self._proposals(rng, self._chat), rng)
            second = self._answers("second turn", self._next_turns(first, rng, self._chat), rng)
            third = self._answers("third turn", self._next_turns(second, rng, self._chat), rng)
            made += [first, second, third, self._answers("edit", self._edits(first, rng), rng)]
        return made

    def known(self, made: Sequence[Made]) -> None:
        """Take note of an earlier round, so that no conversation is begun as one of its was."""
        if not self._chat:
            return
        for part in made:
            for text in part.texts if part.make == PROPOSED_MAKE else ():
                self._filter.take(self._chat.message(self._first_message(text, self._chat)))

    def _first_message(self, text: WrittenText, chat: ChatHeaders) -> list[int]:
        asked = text.ids[len(chat.user) : text.start].tolist()
        ends = [index for index, token in enumerate(asked) if token in self._eos]
        return asked[: ends[0]] if ends else asked

    def _free(self, rng: random.Random) -> Made:
        """Raw text: half from the token between documents, half from that and some words."""
        vocabulary = self._tokenizer.get_vocab()
        begin = vocabulary.get(BETWEEN_DOCUMENTS, min(self._eos, default=0))
        words = [word for kind in topics().values() for word in kind]
        starts = [[begin] for _ in range(FREE // 2)]
        for _ in range(FREE - FREE // 2):
            opening = rng.choice(OPENINGS) + rng.choice(words)
            starts.append([begin, *self._tokenizer(opening, add_special_tokens=False)["input_ids"]])
        return self._write("free", starts, FREE_TOKENS, FREE_TEMPERATURES, rng)

    def _pooled(self, number: int, rng: random.Random) -> Made:
        at = number % POOL_ROUNDS * POOLED
        items = [item for item in self._pool[at : at + POOLED] if self._filter.allowed(item.prompt)]
        prompts = [encode_prompt(self._tokenizer, i.prompt, mode_for(self._tokenizer, i)) for i in items]
        return self._answers("pool", prompts, rng)

    def _proposals(self, rng: random.Random, chat: ChatHeaders) -> list[Prompt]:
        """Prompts the target proposes, ready to be answered."""
        made = self._write("", [chat.user] * PROPOSED, PROPOSAL_TOKENS, PROPOSAL_TEMPERATURES, rng)
        messages = [chat.message(own) for own in _own_of_ended(made)]
        return [self._asked(message) for message in messages if self._filter.take(message)]

    def _next_turns(self, before: Made, rng: random.Random, chat: ChatHeaders) -> list[Prompt]:
        """Conversations with a next message that the target proposes for its user, ready to be answered."""
        ended = [text.ids.tolist() for text, done in zip(before.texts, before.ended, strict=True) if done]
        starts = [[*ids, *chat.next_user] for ids in ended if len(ids) <= LONGEST_PROMPT]
        made = self._write("", starts, PROPOSAL_TOKENS, PROPOSAL_TEMPERATURES, rng)
        return [
            [*text.ids.tolist(), *chat.answer]
            for text, done in zip(made.texts, made.ended, strict=True)
            if done and self._filter.take(chat.message(text.ids[text.start :].tolist()), alone=False)
        ]

    def _edits(self, of: Made, rng: random.Random) -> list[Prompt]:
        """Requests to change a paragraph the target wrote before, for every other text."""
        found = []
        for own in _own_of_ended(of):
            text = self._tokenizer.decode(own, skip_special_tokens=True)
            paragraph = max(text.strip().split("\n\n"), key=len)
            if PARAGRAPH[0] <= len(paragraph) <= PARAGRAPH[1] and rng.random() < 0.5:
                found.append(self._asked(rng.choice(EDITS).format(paragraph)))
        return found

    def _asked(self, message: str) -> Prompt:
        return encode_prompt(self._tokenizer, message, Mode.CHAT)

    def _answers(self, make: str, prompts: list[Prompt], rng: random.Random) -> Made:
        kept = [prompt for prompt in prompts if len(prompt) <= LONGEST_PROMPT]
        return self._write(make, kept, ANSWER_TOKENS, TEMPERATURES, rng)

    def _write(
        self,
        make: str,
        prompts: list[Prompt],
        limit: int,
        temperatures: Sequence[float],
        rng: random.Random,
    ) -> Made:
        """A continuation of each prompt, in batches of prompts alike in length."""
        ordered = sorted(prompts, key=len)
        texts, ended = [], []
        for at in range(0, len(ordered), ROWS):
            for prompt, own in self._batch(ordered[at : at + ROWS], limit, temperatures, rng):
                texts.append(WrittenText(np.concatenate([prompt, own]).astype(np.int32), len(prompt)))
                ended.append(bool(len(own)) and int(own[-1]) in self._eos)
        return Made(make, texts, ended)

    @torch.inference_mode()
    def _batch(
        self, prompts: list[Prompt], limit: int, temperatures: Sequence[float], rng: random.Random
    ) -> Iterator[tuple[Prompt, NDArray]]:
        """Each prompt and what was written after it, up to ``limit`` tokens."""
        generator = torch.Generator(self._decoder.device).manual_seed(rng.getrandbits(48))
        warmth = [rng.choice(temperatures) for _ in prompts]
        batch = GrowingBatch(self._decoder, prompts, limit, warmth, self._eos, generator)
        written = np.zeros((len(prompts), limit), dtype=np.int32)
        lengths = np.zeros(len(prompts), dtype=int)
        for step in range(limit):
            live, tokens = batch.choose(batch.logits.argmax(-1))
            rows = batch.active[live].cpu().numpy()
            written[rows, step], lengths[rows] = tokens[live].cpu().numpy(), step + 1
            self._wrote(len(rows))
            if step % LOOK_EVERY == LOOK_EVERY - 1:
                batch.end([row for row in batch.active.tolist() if repeats(written[row, : step + 1])])
            if not batch.advance(SHRINK_AT):
                break
        for prompt, row, length in zip(prompts, written, lengths, strict=True):
            yield prompt, row[:length]


def repeats(own: NDArray) -> bool:
    """Whether the last ``REPEATED`` tokens of ``own`` [n] stand in a row earlier in it, too."""
    if len(own) <= REPEATED:
        return False
    windows = np.lib.stride_tricks.sliding_window_view(own[:-1], REPEATED)
    return bool((windows == own[-REPEATED:]).all(1).any())


def _own_of_ended(made: Made) -> list[list[int]]:
    """What the target wrote in each text that it ended."""
    return [
        text.ids[text.start :].tolist() for text, done in zip(made.texts, made.ended, strict=True) if done
    ]
