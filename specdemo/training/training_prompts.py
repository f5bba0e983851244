"""Prompts for training text: templates filled with topics, and a filter for prompts that a model proposes."""

import random
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from specdemo.pairs.pair import chat_text, encode_prompt
from specdemo.records.trace import Mode

TOPICS_FILE = Path(__file__).parent / "topics.txt"
TEMPLATES_FILE = Path(__file__).parent / "templates.toml"
ATTEMPTS_PER_PROMPT = 50
ARTICLE = re.compile(r"\b([Aa])(?= [aeiouAEIO])")
# Placeholders for messages in a rendered chat template; no template contains them.
MESSAGE_MARK, ANSWER_MARK = "\u2042", "\u2043"
# Proposals with the same opening, and the number of words of an opening.
MAX_SAME_OPENING, OPENING_WORDS = 12, 4
SHARED_WORDS = 8  # a prompt that shares this many consecutive words with a forbidden prompt is not used
MIN_WORDS, MAX_CHARACTERS = 3, 600
MIN_ASCII_SHARE = 0.97  # of a prompt, because the built-in target answers only in English
WORD = re.compile(r"[a-z0-9']+")
# Requests to edit a text that the target wrote.
EDITS = (
    "Correct the spelling and grammar of this text:\n\n{}",
    "Rewrite this text in simpler words:\n\n{}",
    "Rewrite this text in a more formal tone:\n\n{}",
    "Summarize this text in one sentence:\n\n{}",
    "Turn this text into a bulleted list:\n\n{}",
    "Make this text shorter:\n\n{}",
    "Rewrite the following in the past tense:\n\n{}",
    "Proofread the following text and return it with corrections.\n\n{}",
    "Continue this text:\n\n{}",
    "{}\n\nWhat is the main idea of the text above?",
    "{}\n\nRewrite the text above in the first person.",
    "Replace every name in this text with another one:\n\n{}",
)


@dataclass(frozen=True)
class PoolPrompt:
    """A prompt that was made from templates."""

    style: str
    mode: Mode
    prompt: str


def prompt_pool(count: int, seed: int) -> list[PoolPrompt]:
    """Return ``count`` distinct prompts, distributed evenly over the styles.

    With the same seed, a longer pool begins with all prompts of a shorter one. Mode, template and topics of
    each prompt are drawn independently for variety: a draft trained on a narrow pool looks good on held-out
    text of that pool but fails on a visitor's prompt.
    """
    rng = random.Random(seed)
    found: dict[str, PoolPrompt] = {}
    styles = templates()["styles"]
    for _ in range(count * ATTEMPTS_PER_PROMPT):
        if len(found) == count:
            return list(found.values())
        style = list(styles)[len(found) % len(styles)]
        mode = rng.choice(list(styles[style]))
        prompt = fill(rng.choice(styles[style][mode]), rng)
        found.setdefault(prompt, PoolPrompt(style, Mode(mode), prompt))
    raise ValueError(f"the templates make fewer than {count} distinct prompts")


def mode_for(tokenizer: Any, prompt: PoolPrompt) -> Mode:
    """Return the prompt's mode, or raw if the tokenizer has no chat template."""
    return prompt.mode if tokenizer.chat_template else Mode.RAW


def pool_ids(tokenizer: Any, prompt: PoolPrompt) -> list[int]:
    return encode_prompt(tokenizer, prompt.prompt, mode_for(tokenizer, prompt))


@cache
def topics() -> dict[str, list[str]]:
    lines = TOPICS_FILE.read_text(encoding="utf-8").splitlines()
    kinds = (line.partition(":") for line in lines if line and not line.startswith("#"))
    return {kind: sorted({word.strip() for word in words.split(",")}) for kind, _, words in kinds}


@cache
def templates() -> dict[str, Any]:
    """Return the content of ``templates.toml``: sentences, word lists, and templates by style and mode."""
    return tomllib.loads(TEMPLATES_FILE.read_text(encoding="utf-8"))


def fill(template: str, rng: random.Random) -> str:
    """Replace every ``{slot}`` of ``template`` with a random value; a repeated slot gets the same value.

    ``{thing2}`` and ``{thing3}`` are further draws of the kind ``thing``.
    """
    values: dict[str, str] = {}

    class Slots(dict):
        def __missing__(self, slot: str) -> str:
            return values.setdefault(slot, _draw(slot.rstrip("23"), rng))

    return ARTICLE.sub(r"\1n", template.format_map(Slots()))


def _draw(kind: str, rng: random.Random) -> str:
    match kind:
        case "topic":
            return _topic(rng)
        case "sentence":
            return _sentence(rng)
        case "text":
            return " ".join(_sentence(rng) for _ in range(rng.randint(2, 4)))
        case "typos":
            return _misspelt(_sentence(rng), rng)
        case "items":
            return ", ".join(_several(rng, 4, 7))
        case "bullets":
            return "\n".join(f"- {item}" for item in _several(rng, 3, 5))
        case "opening":
            return " ".join(_sentence(rng).split()[: rng.randint(3, 8)])
        case "year":
            return str(rng.randint(1500, 2020))
        case "amount":
            return str(rng.choice([rng.randint(2, 99), rng.randint(1, 90) * 10, rng.randint(1, 50) * 100]))
    return rng.choice(topics()[kind] if kind in topics() else templates()["words"][kind])


def _topic(rng: random.Random) -> str:
    topic = rng.choice(topics()[rng.choice(("thing", "animal", "nature", "idea", "place", "person", "job"))])
    draw = rng.random()
    if draw < 0.25:
        return f"{rng.choice(templates()['words']['aspect'])} {topic}"
    if draw < 0.35:
        return f"{topic} and {rng.choice(topics()[rng.choice(('thing', 'nature', 'idea'))])}"
    return topic


def _sentence(rng: random.Random) -> str:
    sentence = fill(rng.choice(templates()["sentences"]), rng)
    return sentence[0].upper() + sentence[1:]


def _several(rng: random.Random, low: int, high: int) -> list[str]:
    kind = rng.choice(("thing", "thing", "animal", "place", "name", "job", "nature"))
    return rng.sample(topics()[kind], rng.randint(low, high))


def _misspelt(sentence: str, rng: random.Random) -> str:
    """Drop, double or swap a letter in about every third word."""
    words = sentence.split()
    for index, word in enumerate(words):
        if len(word) > 3 and rng.random() < 0.35:
            at = rng.randrange(1, len(word) - 1)
            edits = (word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:])
            swapped = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
            words[index] = rng.choice((*edits, swapped))
    return " ".join(words)


class ChatHeaders:
    """The token ids that a chat template puts before and between messages.

    If a chat model continues ``user``, it writes a message that a user might send (Magpie, Xu et al. 2024).
    If it continues a conversation followed by ``next_user``, it writes the user's next message. ``answer``
    has the ids between the end of a user's message and the answer.
    """

    def __init__(self, tokenizer: Any, eos_ids: frozenset[int]):
        self._tokenizer, self._eos = tokenizer, eos_ids
        first, _, after = chat_text(tokenizer, MESSAGE_MARK).partition(MESSAGE_MARK)
        turns = chat_text(tokenizer, MESSAGE_MARK, ANSWER_MARK, MESSAGE_MARK)
        between = turns.partition(ANSWER_MARK)[2].partition(MESSAGE_MARK)[0]
        self.user = self._encode(first)
        self.next_user = self._after_end(between)
        self.answer = self._after_end(after)

    def message(self, ids: Sequence[int]) -> str:
        """Return the text of a message that the model wrote, without the tokens that end it."""
        return self._tokenizer.decode([token for token in ids if token not in self._eos]).strip()

    def _after_end(self, text: str) -> list[int]:
        """Return the ids of ``text`` after its first end-of-message token, which the model itself writes."""
        ids = self._encode(text)
        return ids[next((n + 1 for n, token in enumerate(ids) if token in self._eos), 0) :]

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


class PromptFilter:
    """A filter that rejects proposed prompts if they are unsuitable, repeated, or like a forbidden prompt."""

    def __init__(self, forbidden: Iterable[str]):
        self._forbidden = {run for prompt in forbidden for run in _word_runs(prompt)}
        self._seen: set[str] = set()
        self._openings: Counter[str] = Counter()

    def allows(self, prompt: str) -> bool:
        """Return True unless ``prompt`` shares ``SHARED_WORDS`` consecutive words with a forbidden prompt."""
        return self._forbidden.isdisjoint(_word_runs(prompt))

    def take(self, prompt: str, alone: bool = True) -> bool:
        """Return True and remember ``prompt`` if it can be used; return False otherwise.

        If ``alone``, the prompt opens a conversation; then only ``MAX_SAME_OPENING`` may have the same
        opening.
        """
        words = WORD.findall(prompt.lower())
        text, opening = " ".join(words), " ".join(words[:OPENING_WORDS])
        ascii_share = sum(char.isascii() for char in prompt) / max(1, len(prompt))
        plain = len(words) >= MIN_WORDS and len(prompt) <= MAX_CHARACTERS and ascii_share >= MIN_ASCII_SHARE
        if not plain or text in self._seen or not self.allows(prompt):
            return False
        if alone and self._openings[opening] >= MAX_SAME_OPENING:
            return False
        self._seen.add(text)
        self._openings[opening] += 1
        return True


def _word_runs(prompt: str) -> list[str]:
    """Return all runs of ``SHARED_WORDS`` consecutive words, or one run if the prompt has fewer words."""
    words = WORD.findall(prompt.lower())
    size = max(1, min(SHARED_WORDS, len(words)))
    return [" ".join(words[at : at + size]) for at in range(len(words) - size + 1)]
