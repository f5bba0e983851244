"""Prompts that a chat model proposes itself, and which of them are worth an answer.

After the header of a user's message it writes what such a user may ask (Magpie, Xu et al. 2024), after an
answer what the user may say next.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

MARK = "\u2042"
"""Stands for a message in a rendered template; occurs in none."""
ANSWER = "\u2043"
SAME_OPENING, OPENING_WORDS = 12, 4
"""Most proposals that open with the same words, and how many words that is."""
SHARED_WORDS = 8
"""A prompt that has so many words in a row in common with a forbidden one is not used."""
FEWEST_WORDS, MOST_CHARACTERS = 3, 600
PLAIN = 0.97
"""Least share of a proposal that is ASCII: the embedded target answers nothing but English."""
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
"""Requests to change a text of the target's own."""


class ChatHeaders:
    """What a chat template puts around messages, as token ids.

    Args:
        tokenizer: Has a chat template.
        eos_ids: Ids that end a message.

    Attributes:
        user: What stands before the first message of a user.
        next_user: What stands between an answer, its end included, and the user's next message.
        answer: What stands between a message of the user's, its end included, and the answer.
    """

    def __init__(self, tokenizer: Any, eos_ids: frozenset[int]):
        self._tokenizer, self._eos = tokenizer, eos_ids
        first, _, after = self._rendered([_user(MARK)]).partition(MARK)
        turns = [_user(MARK), {"role": "assistant", "content": ANSWER}, _user(MARK)]
        between = self._rendered(turns).partition(ANSWER)[2].partition(MARK)[0]
        self.user = self._encoded(first)
        self.next_user = self._behind_end(between)
        self.answer = self._behind_end(after)

    def message(self, ids: Sequence[int]) -> str:
        """The text of a message the model has written, its end left out."""
        return self._tokenizer.decode([token for token in ids if token not in self._eos]).strip()

    def _behind_end(self, text: str) -> list[int]:
        """Ids of ``text`` behind the token that ends a message, which the model has written itself."""
        ids = self._encoded(text)
        ends = [index for index, token in enumerate(ids) if token in self._eos]
        return ids[ends[0] + 1 :] if ends else ids

    def _rendered(self, messages: list[dict[str, str]]) -> str:
        return self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)

    def _encoded(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])


class PromptFilter:
    """Which proposals to use: plain sentences, each once, none that shares much with a forbidden prompt.

    Args:
        forbidden: Prompts that something is to be measured on.
    """

    def __init__(self, forbidden: Iterable[str]):
        self._forbidden = {run for prompt in forbidden for run in _runs(prompt)}
        self._seen: set[str] = set()
        self._openings: Counter[str] = Counter()

    def allowed(self, prompt: str) -> bool:
        """Whether it has nothing in common with a forbidden prompt."""
        return self._forbidden.isdisjoint(_runs(prompt))

    def take(self, prompt: str, alone: bool = True) -> bool:
        """Whether to use it; what is used once is not used again.

        Args:
            prompt: What the model proposes.
            alone: It opens a conversation; then few may open alike.
        """
        words = WORD.findall(prompt.lower())
        text, opening = " ".join(words), " ".join(words[:OPENING_WORDS])
        if not _is_plain(prompt, words) or text in self._seen or not self.allowed(prompt):
            return False
        if alone and self._openings[opening] >= SAME_OPENING:
            return False
        self._seen.add(text)
        self._openings[opening] += 1
        return True


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def _is_plain(prompt: str, words: list[str]) -> bool:
    ascii_share = sum(char.isascii() for char in prompt) / max(1, len(prompt))
    return len(words) >= FEWEST_WORDS and len(prompt) <= MOST_CHARACTERS and ascii_share >= PLAIN


def _runs(prompt: str) -> Iterator[str]:
    """Every ``SHARED_WORDS`` words in a row; all of a prompt that has fewer."""
    words = WORD.findall(prompt.lower())
    size = max(1, min(SHARED_WORDS, len(words)))
    return (" ".join(words[at : at + size]) for at in range(len(words) - size + 1))
