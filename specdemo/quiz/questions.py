"""The eight questions of the quiz, each with its options, the two runs that answer it, and figures to show.

Every option has an explanation, because the measurement can support any of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specdemo.bench.prompts import Prompt
from specdemo.lab.conditions import NONE, Ablation
from specdemo.quiz import judging
from specdemo.quiz.judging import MARGIN, Outcome
from specdemo.records.limits import MAX_K
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Mode, Rule

TOO_CLOSE = (
    f"Too close to call: a figure is within {MARGIN:.0%} of the edge between two answers, "
    "or other work disturbed the runs."
)
WRONG_TEXT = (
    "The text is not the target's here, which must not happen: please report it. The target "
    "decides every token, so a bad draft can cost time but never change words."
)


class Figure(NamedTuple):
    """A figure of a run: its label, the function that reads it from the outcome, and its format."""

    label: str
    read: Callable[[Outcome], float | None]
    pattern: str


@dataclass(frozen=True)
class QuizSide:
    """One of the two runs that are compared.

    Attributes:
        label: The difference from the other side, in a few words.
        prompt: The prompt of the run.
        figures: The figures to show; both sides of a question have figures with the same labels.
        change: Run settings that differ from the quiz's defaults.
        ablation: The change to the draft model.
    """

    label: str
    prompt: Prompt
    figures: tuple[Figure, ...]
    change: Mapping[str, Any] = field(default_factory=dict)
    ablation: Ablation = NONE


class Option(NamedTuple):
    """A prediction, and the explanation that is shown if the measurement supports it."""

    text: str
    why: str


@dataclass(frozen=True)
class Question:
    """One question of the quiz.

    Attributes:
        name: A short name, which must not change because browsers store answers under it.
        text: The question.
        setup: A one-line description of the runs.
        options: Three or four options.
        sides: The two runs, in the order of measurement.
        decide: Takes both outcomes; returns the index of the option that they support, or None.
        undecided: The explanation to show if ``decide`` returns None.
    """

    name: str
    text: str
    setup: str
    options: tuple[Option, ...]
    sides: tuple[QuizSide, QuizSide]
    decide: Callable[[Outcome, Outcome], int | None]
    undecided: str = TOO_CLOSE


def _same_tokens(lane: str) -> Figure:
    return Figure("Tokens that are the target's own", lambda run: run.share_same(lane), "{:.0%}")


SPEEDUP = Figure("Speedup S over the target alone", lambda run: run.totals.speedup, "{:.2f}×")
ALPHA = Figure("Acceptance rate α", lambda run: run.totals.alpha_compared, "{:.0%}")
TAU = Figure("Tokens per target pass (τ)", lambda run: run.totals.tau, "{:.2f}")
SAME = _same_tokens(SPECULATIVE)
ALONE_RATE = Figure("Tokens per second", lambda run: run.totals.baseline_tokens_per_s, "{:.0f}")
DRAFT_RATE = Figure("Tokens per second", lambda run: run.totals.draft_alone_tokens_per_s, "{:.0f}")
ALONE_PASSES = Figure("Target passes", lambda run: run.totals.baseline_passes, "{:.0f}")
PASSES = Figure("Target passes", lambda run: run.totals.passes, "{:.0f}")


def _chat(name: str, text: str) -> Prompt:
    return Prompt(name, "quiz", Mode.CHAT, text)


FIBONACCI = _chat(
    "fibonacci", "Write a Python function that returns the first n Fibonacci numbers as a list."
)
EMAIL = Prompt("email", "quiz", Mode.RAW, "Thank you for your email. I will get back to you")
SKY = _chat("sky", "Why is the sky blue? Answer in two sentences.")
LEAVES = _chat("leaves", "Why do leaves change colour in autumn?")
STORY = _chat("story", "Write a short story about a lighthouse keeper who finds a message.")
NOTICE = _chat(
    "notice",
    "Rewrite this so that Friday becomes Thursday: The meeting has moved to Friday afternoon. "
    "Please send your slides before Friday noon, and tell me by Friday morning if you cannot come.",
)

FIVE_TOKENS = {"k": 4, "max_new_tokens": 5}
LONG = {"max_new_tokens": 96}
SAMPLED = {"temperature": 0.8}
LOOKUP = {"drafter": "prompt-lookup"}
WITH_DRAFT_ALONE = {"draft_alone": True}

QUESTIONS = (
    Question(
        "five",
        "The draft proposes four tokens and the target agrees with all of them. How many target passes do "
        "five tokens take?",
        f"“{FIBONACCI.prompt}” Five tokens, k = 4.",
        (
            Option(
                "One",
                "The target verifies all four draft tokens in a single pass, since none has to wait for the "
                "one before. The same pass also gives the token after the last one: the fifth.",
            ),
            Option(
                "Two: one for the draft, one for the fifth token",
                "Two passes ran here although every draft token was accepted. One is usually enough, because "
                "the pass that verifies four tokens also gives the next one.",
            ),
            Option(
                "Four: one for each draft token",
                "Four passes ran here although every draft token was accepted. One is usually enough, "
                "because draft tokens are verified together.",
            ),
            Option(
                "Five: one for each token",
                "Drafting saved no pass here although every draft token was accepted. One is usually enough, "
                "because draft tokens are verified together.",
            ),
        ),
        (
            QuizSide("the target alone", FIBONACCI, (ALONE_PASSES, SAME), FIVE_TOKENS),
            QuizSide("with four draft tokens", FIBONACCI, (PASSES, SAME), FIVE_TOKENS),
        ),
        judging.five,
        "Draft and target did not agree on all four tokens here, so the question does not apply.",
    ),
    Question(
        "noise",
        "Noise replaces everything the draft has learned, so its tokens are random. What happens to the text "
        "and the speed?",
        f"“{EMAIL.prompt}” continues for 48 tokens, k = 6.",
        (
            Option(
                "Wrong words get into the text; still faster than the target alone",
                WRONG_TEXT,
            ),
            Option(
                "Wrong words get into the text; slower than the target alone",
                WRONG_TEXT,
            ),
            Option(
                "The text stays the same; still faster than the target alone",
                "The target decides every token, so a bad draft cannot change the text. Drafting and "
                "verification are so cheap here that even a few lucky tokens pay.",
            ),
            Option(
                "The text stays the same; slower than the target alone",
                "The target decides every token, so a bad draft cannot change the text. But it is drafted "
                "and verified all the same, which is lost time if nearly every token is rejected.",
            ),
        ),
        (
            QuizSide("the draft as it is", EMAIL, (ALPHA, SPEEDUP, SAME), {"k": 6}),
            QuizSide("a draft of pure noise", EMAIL, (ALPHA, SPEEDUP, SAME), {"k": 6}, Ablation(noise=1.0)),
        ),
        judging.noise,
    ),
    Question(
        "cost",
        "Every draft step is computed eight times: the same draft tokens at eight times the cost. What "
        "happens to the acceptance rate α and the speedup S?",
        f"“{FIBONACCI.prompt}” 48 tokens, k = 3.",
        (
            Option(
                "α stays, and S stays within a fifth",
                "The draft tokens are the same, so the target accepts as many of them. Draft steps are so "
                "cheap compared with target passes here that even eight of them hardly count.",
            ),
            Option(
                "α falls, S stays within a fifth",
                "The target accepted fewer draft tokens here, although they should be the same. Draft steps "
                "are so cheap compared with target passes that eight of them hardly count.",
            ),
            Option(
                "α stays, S falls by more than a fifth",
                "The draft tokens are the same, so the target accepts as many of them. But each one costs "
                "its step, accepted or not, so a draft must be much cheaper than its target.",
            ),
            Option(
                "Both fall",
                "The target accepted fewer draft tokens here, although they should be the same. And each one "
                "costs its step, accepted or not, so a draft must be much cheaper than its target.",
            ),
        ),
        (
            QuizSide("each step computed once", FIBONACCI, (ALPHA, SPEEDUP, SAME)),
            QuizSide(
                "each step computed 8 times", FIBONACCI, (ALPHA, SPEEDUP, SAME), {}, Ablation(repeats=8)
            ),
        ),
        judging.cost,
    ),
    Question(
        "length",
        f"The draft length is {MAX_K} instead of 3, so a target pass can accept four times as many tokens. "
        "What happens to the speedup S?",
        f"“{SKY.prompt}” 48 tokens.",
        (
            Option(
                "It more than doubles",
                "Long drafts were accepted almost in full here, so each target pass gave many tokens. That "
                "takes very predictable text and a draft that closely matches its target.",
            ),
            Option(
                "It rises, but does not double",
                "Enough of the later draft tokens were accepted to pay for the longer drafts. It is less "
                "than four times as much because a token counts only if all before it were accepted.",
            ),
            Option(
                "It falls",
                "A draft token counts only if all before it were accepted, so most of a long draft is "
                "discarded. All of it was drafted and verified, and that time is lost.",
            ),
        ),
        (
            QuizSide("k = 3", SKY, (TAU, SPEEDUP), {"k": 3}),
            QuizSide(f"k = {MAX_K}", SKY, (TAU, SPEEDUP), {"k": MAX_K}),
        ),
        judging.length,
    ),
    Question(
        "temperature",
        "Instead of always taking the likeliest token, the text is sampled at temperature 1.5, with "
        "rejection sampling as the rule. What happens to the acceptance rate α?",
        f"“{EMAIL.prompt}” continues for 96 tokens, k = 3.",
        (
            Option(
                "It rises: a target that samples is less strict",
                "Draft and target overlap more as distributions here than in their first choices. Each token "
                "is accepted with probability min(1, p/q), which forgives a draft that is roughly right.",
            ),
            Option(
                "It stays about the same",
                "Temperature makes tokens harder to predict, and rejection sampling makes up for it here. "
                "Each token is accepted with probability min(1, p/q) instead of all or nothing.",
            ),
            Option(
                "It falls: chance is harder to predict",
                "At a high temperature the target spreads its choice over many tokens, and the draft over "
                "others. The less the two distributions overlap, the fewer tokens are accepted.",
            ),
        ),
        (
            QuizSide("always the likeliest token", EMAIL, (ALPHA, TAU, SPEEDUP), LONG),
            QuizSide(
                "sampled at temperature 1.5", EMAIL, (ALPHA, TAU, SPEEDUP), {**LONG, "temperature": 1.5}
            ),
        ),
        judging.temperature,
    ),
    Question(
        "alone",
        "Why not just use the small model? If the draft writes the whole answer alone, what do you get?",
        f"“{LEAVES.prompt}” 48 tokens.",
        (
            Option(
                "The target's text, faster",
                "The draft agreed with the target on every token here. That is luck over a short text: only "
                "the target's verification guarantees it.",
            ),
            Option(
                "The target's text, not faster",
                "The draft agreed with the target on every token here, which is luck over a short text. And "
                "it was not faster, so there is nothing to gain from it on this machine.",
            ),
            Option(
                "Another text, faster",
                "The draft is many times as fast, but nothing corrects it when it differs from the target. "
                "As a draft model it gives its speed, while the target decides every token.",
            ),
            Option(
                "Another text, not faster",
                "The draft differs from the target and nothing corrects it. And it was not faster here, so "
                "it would not help as a draft model either.",
            ),
        ),
        (
            QuizSide("the target alone", LEAVES, (ALONE_RATE, _same_tokens(BASELINE)), WITH_DRAFT_ALONE),
            QuizSide("the draft alone", LEAVES, (DRAFT_RATE, _same_tokens(DRAFT)), WITH_DRAFT_ALONE),
        ),
        judging.alone,
    ),
    Question(
        "chance",
        "A story is sampled at temperature 0.8, once with drafts and once by the target alone. Under which "
        "rule do both write the same tokens?",
        f"“{STORY.prompt}” 48 tokens, k = 3.",
        (
            Option(
                "Under neither: sampling is random",
                "Under rejection sampling the two texts are independent samples of one distribution and "
                "differ. Shared noise should have made them identical; here it did not.",
            ),
            Option(
                "Under both",
                "Shared noise makes both texts identical. Under rejection sampling they are equal by luck: "
                "the two texts are independent samples of one distribution.",
            ),
            Option(
                "Only under shared noise",
                "Rejection sampling guarantees the same distribution, so the two texts are independent "
                "samples. Shared noise uses the same random numbers in both lanes, so the tokens are equal.",
            ),
            Option(
                "Only under rejection sampling",
                "Rejection sampling guarantees the same distribution, and two equal samples are luck. Shared "
                "noise should have made the texts identical; here it did not.",
            ),
        ),
        (
            QuizSide("rejection sampling", STORY, (SAME, ALPHA), {**SAMPLED, "rule": Rule.REJECTION}),
            QuizSide("shared noise", STORY, (SAME, ALPHA), {**SAMPLED, "rule": Rule.SHARED_NOISE}),
        ),
        judging.chance,
    ),
    Question(
        "copies",
        "No model drafts: draft tokens are copied from an earlier occurrence of the last words, at no cost. "
        "For which task does a target pass give more tokens?",
        "Changing a day in a notice, or inventing a story; 48 tokens each, k = 3.",
        (
            Option(
                "Editing the notice",
                "An edited text repeats the prompt, so long copies are accepted. An invented text repeats "
                "little, and a rejected copy gains nothing.",
            ),
            Option(
                "Inventing the story",
                "The story repeated itself more than the notice was repeated here. Copies pay if the next "
                "words have occurred before, whatever the task.",
            ),
            Option(
                "Both about the same",
                "The notice was repeated no more than the story repeated itself here. Copies pay only if the "
                "next words have occurred before.",
            ),
        ),
        (
            QuizSide("editing the notice", NOTICE, (TAU, ALPHA, SPEEDUP), LOOKUP),
            QuizSide("inventing the story", STORY, (TAU, ALPHA, SPEEDUP), LOOKUP),
        ),
        judging.copies,
    ),
)
