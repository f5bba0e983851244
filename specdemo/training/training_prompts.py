"""Prompts for training text: templates filled with topics, and prompts that a chat model proposes itself."""

import random
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from specdemo.pairs.pair import encode_prompt
from specdemo.records.trace import Mode

TOPICS_FILE = Path(__file__).parent / "topics.txt"
TEMPLATES_FILE = Path(__file__).parent / "templates.toml"
ATTEMPTS_PER_PROMPT = 50
ARTICLE = re.compile(r"\b([Aa])(?= [aeiouAEIO])")
MESSAGE_MARK, ANSWER_MARK = "\u2042", "\u2043"
"""Placeholders for messages in a rendered chat template; no template contains them."""
MAX_SAME_OPENING, OPENING_WORDS = 12, 4
"""Maximum number of proposals that begin with the same words, and how many words are compared."""
SHARED_WORDS = 8
"""A prompt that shares so many consecutive words with a forbidden prompt is not used."""
MIN_WORDS, MAX_CHARACTERS = 3, 600
MIN_ASCII_SHARE = 0.97
"""The embedded target answers only English."""
WORD = re.compile(r"[a-z0-9']+")
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
"""Requests to change a text that the target wrote."""


@dataclass(frozen=True)
class PoolPrompt:
    """One prompt made from templates, and its style."""

    style: str
    mode: Mode
    prompt: str


def prompt_pool(count: int, seed: int) -> list[PoolPrompt]:
    """Return ``count`` distinct prompts, evenly over the styles; a longer pool begins with a shorter one.

    Every prompt draws a style, a template and topics independently: a draft trained on a narrow pool looks
    good on held-out text of that pool and fails on a visitor's prompt.

    Raises:
        ValueError: The templates cannot make that many.
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
    """Return the token ids of a prompt of the pool."""
    return encode_prompt(tokenizer, prompt.prompt, mode_for(tokenizer, prompt))


@cache
def topics() -> dict[str, list[str]]:
    """Return the topics of ``topics.txt`` by kind."""
    lines = TOPICS_FILE.read_text(encoding="utf-8").splitlines()
    kinds = (line.partition(":") for line in lines if line and not line.startswith("#"))
    return {kind: sorted({word.strip() for word in words.split(",")}) for kind, _, words in kinds}


@cache
def templates() -> dict[str, Any]:
    """Return ``templates.toml``: sentences, word lists, and templates by style and mode."""
    return tomllib.loads(TEMPLATES_FILE.read_text(encoding="utf-8"))


def fill(template: str, rng: random.Random) -> str:
    """Replace every ``{slot}`` of ``template``; a slot that occurs twice gets the same value.

    ``{thing2}`` is another draw of the kind ``thing``. Slots are the kinds of ``topics.txt``, the word lists
    of ``templates.toml``, and the composed texts of ``_draw``.
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
    """The token ids that a chat template puts around messages.

    After ``user`` a chat model writes what a user may ask (Magpie, Xu et al. 2024), after ``next_user`` what
    the user may say next.

    Args:
        tokenizer: A tokenizer with a chat template.
        eos_ids: Ids that end a message.

    Attributes:
        user: The ids before a user's first message.
        next_user: The ids between the end of an answer and the user's next message.
        answer: The ids between the end of a user's message and the answer.
    """

    def __init__(self, tokenizer: Any, eos_ids: frozenset[int]):
        self._tokenizer, self._eos = tokenizer, eos_ids
        question = {"role": "user", "content": MESSAGE_MARK}
        first, _, after = self._render([question]).partition(MESSAGE_MARK)
        turns = self._render([question, {"role": "assistant", "content": ANSWER_MARK}, question])
        between = turns.partition(ANSWER_MARK)[2].partition(MESSAGE_MARK)[0]
        self.user = self._encode(first)
        self.next_user = self._after_end(between)
        self.answer = self._after_end(after)

    def message(self, ids: Sequence[int]) -> str:
        """Return the text of a message that the model wrote, without its end."""
        return self._tokenizer.decode([token for token in ids if token not in self._eos]).strip()

    def _after_end(self, text: str) -> list[int]:
        """Return the ids of ``text`` after the token that ends a message, which the model has written."""
        ids = self._encode(text)
        return ids[next((n + 1 for n, token in enumerate(ids) if token in self._eos), 0) :]

    def _render(self, messages: list[dict[str, str]]) -> str:
        return self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


class PromptFilter:
    """A filter for proposed prompts: plain, each used once, none similar to a forbidden prompt.

    Args:
        forbidden: Prompts that drafts will be measured on.
    """

    def __init__(self, forbidden: Iterable[str]):
        self._forbidden = {run for prompt in forbidden for run in _word_runs(prompt)}
        self._seen: set[str] = set()
        self._openings: Counter[str] = Counter()

    def allows(self, prompt: str) -> bool:
        """Return whether ``prompt`` shares no run of words with a forbidden prompt."""
        return self._forbidden.isdisjoint(_word_runs(prompt))

    def take(self, prompt: str, alone: bool = True) -> bool:
        """Return whether to use ``prompt``, and remember it if so.

        Args:
            prompt: The model's proposal.
            alone: Whether it opens a conversation; then the number of similar openings is limited.
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
    """Return every ``SHARED_WORDS`` consecutive words, or the whole prompt if it has fewer."""
    words = WORD.findall(prompt.lower())
    size = max(1, min(SHARED_WORDS, len(words)))
    return [" ".join(words[at : at + size]) for at in range(len(words) - size + 1)]
