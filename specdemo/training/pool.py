"""The prompts a target is asked to continue: templates filled with topics, all of our own making.

Breadth is what counts. A draft trained on a narrow pool looks good on that pool's held-out part and
fails on a stranger's prompt, so every prompt draws a style, a template and topics independently, and
the styles are those a visitor tries: questions, letters, code, lists, stories, edits of given text.
Needs no model.
"""

import random
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from specdemo.records.trace import Mode

TOPICS_FILE = Path(__file__).parent / "topics.txt"
TEMPLATES_FILE = Path(__file__).parent / "templates.toml"
ATTEMPTS_PER_PROMPT = 50
ARTICLE = re.compile(r"\b([Aa])(?= [aeiouAEIO])")


@dataclass(frozen=True)
class PoolPrompt:
    """One prompt, and the style it was drawn from."""

    style: str
    mode: Mode
    prompt: str


def prompt_pool(count: int, seed: int) -> list[PoolPrompt]:
    """``count`` distinct prompts, the styles in equal shares; a longer pool begins with the shorter one.

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
    """The prompt's own mode; raw where the tokeniser has no chat template."""
    return prompt.mode if tokenizer.chat_template else Mode.RAW


@cache
def topics() -> dict[str, list[str]]:
    """Topics by kind, from ``topics.txt``."""
    lines = TOPICS_FILE.read_text(encoding="utf-8").splitlines()
    kinds = (line.partition(":") for line in lines if line and not line.startswith("#"))
    return {kind: sorted({word.strip() for word in words.split(",")}) for kind, _, words in kinds}


@cache
def templates() -> dict[str, Any]:
    """``templates.toml``: sentences, word lists, and templates by style and mode."""
    return tomllib.loads(TEMPLATES_FILE.read_text(encoding="utf-8"))


def fill(template: str, rng: random.Random) -> str:
    """Replace every ``{slot}``; a slot used twice (``{thing}`` … ``{thing}``) gets one value.

    ``{thing2}`` is another draw of the same kind. Slots are the kinds of ``topics.txt``, the word
    lists of ``templates.toml``, and the made texts below.
    """
    values: dict[str, str] = {}

    class Slots(dict):
        def __missing__(self, slot: str) -> str:
            return values.setdefault(slot, _draw(slot.rstrip("23"), rng))

    return ARTICLE.sub(r"\1n", template.format_map(Slots()))


def _draw(kind: str, rng: random.Random) -> str:
    made: dict[str, Callable[[random.Random], str]] = {
        "topic": _topic,
        "sentence": _sentence,
        "text": lambda r: " ".join(_sentence(r) for _ in range(r.randint(2, 4))),
        "typos": lambda r: _misspelt(_sentence(r), r),
        "items": lambda r: ", ".join(_several(r, 4, 7)),
        "bullets": lambda r: "\n".join(f"- {item}" for item in _several(r, 3, 5)),
        "opening": lambda r: " ".join(_sentence(r).split()[: r.randint(3, 8)]),
        "year": lambda r: str(r.randint(1500, 2020)),
        "amount": lambda r: str(r.choice([r.randint(2, 99), r.randint(1, 90) * 10, r.randint(1, 50) * 100])),
    }
    if kind in made:
        return made[kind](rng)
    return rng.choice(topics()[kind] if kind in topics() else templates()["words"][kind])


def _topic(rng: random.Random) -> str:
    """A topic of any general kind, sometimes seen from one side or beside another."""
    topic = rng.choice(topics()[rng.choice(("thing", "animal", "nature", "idea", "place", "person", "job"))])
    kind = rng.random()
    if kind < 0.25:
        return f"{rng.choice(templates()['words']['aspect'])} {topic}"
    if kind < 0.35:
        return f"{topic} and {rng.choice(topics()[rng.choice(('thing', 'nature', 'idea'))])}"
    return topic


def _sentence(rng: random.Random) -> str:
    sentence = fill(rng.choice(templates()["sentences"]), rng)
    return sentence[0].upper() + sentence[1:]


def _several(rng: random.Random, low: int, high: int) -> Iterator[str]:
    kind = rng.choice(("thing", "thing", "animal", "place", "name", "job", "nature"))
    yield from rng.sample(topics()[kind], rng.randint(low, high))


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
