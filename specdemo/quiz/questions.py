"""The eight questions of the quiz, each with its options, the two runs that answer it, and their figures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from specdemo.bench.prompts import Prompt
from specdemo.lab.conditions import NONE, Ablation
from specdemo.quiz import judging
from specdemo.quiz.judging import MARGIN, SideResult
from specdemo.records.limits import MAX_K
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Mode, Rule

TOO_CLOSE = f"Too close to call: a figure is within {MARGIN:.0%} of the limit between two answers."
DISTURBED = (
    "Other work disturbed a run, so its speedup says little. Run it again when the machine has nothing else "
    "to do."
)
WRONG_TEXT = (
    "The text differs from the target's, which must not happen: please report it. The target decides every "
    "token, so a bad draft model can cost time but never change the text."
)


class Figure(NamedTuple):
    label: str
    read: Callable[[SideResult], float | None]
    pattern: str  # of ``str.format``


@dataclass(frozen=True)
class QuizSide:
    """One of the two runs that are compared."""

    label: str  # the difference from the other side
    prompt: Prompt
    figures: tuple[Figure, ...]  # with the same labels on both sides
    change: Mapping[str, Any] = field(default_factory=dict)  # settings that differ from the quiz's defaults
    ablation: Ablation = NONE


class Option(NamedTuple):
    text: str
    why: str  # shown if the measurement supports this option


@dataclass(frozen=True)
class Question:
    name: str  # must not change: browsers store answers under it
    text: str
    setup: str  # of the runs
    options: tuple[Option, ...]
    sides: tuple[QuizSide, QuizSide]  # in the order of measurement
    decide: Callable[[SideResult, SideResult], int | None]
    """Return the index of the option that the outcomes support, or None."""
    undecided: str = TOO_CLOSE  # shown if ``decide`` returns None although no run was disturbed


def _same_tokens(lane: str) -> Figure:
    return Figure("Tokens equal to the target's", lambda run: run.share_same(lane), "{:.0%}")


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
    "Rewrite this so that Friday becomes Thursday: The meeting has moved to Friday afternoon. Please send "
    "your slides before Friday noon, and tell me by Friday morning if you cannot come.",
)

FIVE_TOKENS = {"k": 4, "max_new_tokens": 5}
LONG = {"max_new_tokens": 96}
SAMPLED = {"temperature": 0.8}
LOOKUP = {"drafter": "prompt-lookup"}
WITH_DRAFT_ALONE = {"draft_alone": True}

QUESTIONS = (
    Question(
        "five",
        "The draft model proposes four tokens and the target accepts all of them. How many target passes do "
        "five tokens take?",
        f"“{FIBONACCI.prompt}” Five tokens, k = 4.",
        (
            Option(
                "One",
                "The target verifies all four draft tokens in one pass, because it reads them at the same "
                "time. The same pass also gives the next token: the fifth.",
            ),
            Option(
                "Two: one for the draft tokens, one for the fifth token",
                "This run took two passes although every draft token was accepted. One is usually enough, "
                "because the pass that verifies four tokens also gives the next token.",
            ),
            Option(
                "Four: one for each draft token",
                "This run took four passes although every draft token was accepted. One is usually enough, "
                "because the target verifies all draft tokens in one pass.",
            ),
            Option(
                "Five: one for each token",
                "This run took five passes although every draft token was accepted. One is usually enough, "
                "because the target verifies all draft tokens in one pass.",
            ),
        ),
        (
            QuizSide("the target alone", FIBONACCI, (ALONE_PASSES, SAME), FIVE_TOKENS),
            QuizSide("with four draft tokens", FIBONACCI, (PASSES, SAME), FIVE_TOKENS),
        ),
        judging.five,
        "The target rejected a draft token in this run, so the question does not apply.",
    ),
    Question(
        "noise",
        "Noise replaces everything the draft model has learned, so its draft tokens are random. What happens "
        "to the text and the speed?",
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
                "The target decides every token, so a bad draft model cannot change the text. Drafting and "
                "verification are so cheap here that a few accepted tokens are enough for a speedup.",
            ),
            Option(
                "The text stays the same; slower than the target alone",
                "The target decides every token, so a bad draft model cannot change the text. But drafting "
                "and verification take time, which is lost if nearly every draft token is rejected.",
            ),
        ),
        (
            QuizSide("the unchanged draft model", EMAIL, (ALPHA, SPEEDUP, SAME), {"k": 6}),
            QuizSide(
                "a draft model of pure noise", EMAIL, (ALPHA, SPEEDUP, SAME), {"k": 6}, Ablation(noise=1.0)
            ),
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
                "The draft tokens are the same, so the target accepts as many of them. Here a draft step is "
                "so cheap compared with a target pass that eight steps hardly matter.",
            ),
            Option(
                "α falls, S stays within a fifth",
                "The target accepted fewer draft tokens, although the draft tokens should be the same. Here "
                "a draft step is so cheap compared with a target pass that eight steps hardly matter.",
            ),
            Option(
                "α stays, S falls by more than a fifth",
                "The draft tokens are the same, so the target accepts as many of them. But every draft token "
                "costs a draft step, accepted or not, so a draft model must be much cheaper than its target.",
            ),
            Option(
                "Both fall",
                "The target accepted fewer draft tokens, although the draft tokens should be the same. Every "
                "draft token costs a draft step, so a draft model must be much cheaper than its target.",
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
                "Nearly all draft tokens were accepted, so each target pass gave many tokens. That needs "
                "very predictable text and a draft model that closely matches its target.",
            ),
            Option(
                "It rises, but does not double",
                "Enough of the additional draft tokens were accepted to pay for their cost. The speedup is "
                "less than four times as high because the first rejected token discards all tokens after it.",
            ),
            Option(
                "It falls",
                "The first rejected token discards all draft tokens after it, so most of a long draft is "
                "discarded. Drafting and verifying the discarded tokens took time, which is lost.",
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
        "The text is sampled at temperature 1.5 with rejection sampling, instead of always choosing the most "
        "likely token. What happens to the acceptance rate α?",
        f"“{FIBONACCI.prompt}” 96 tokens, k = 3.",
        (
            Option(
                "It rises: a target that samples is less strict",
                "In this run, the two distributions overlapped more than the two models agreed on the most "
                "likely token. That can happen if the greedy text is hard to draft; on average, α falls.",
            ),
            Option(
                "It stays about the same",
                "In this run, the two distributions overlapped as much as the two models agreed on the most "
                "likely token. That can happen if the greedy text is hard to draft; on average, α falls.",
            ),
            Option(
                "It falls: the two distributions overlap less",
                "At a high temperature, both models spread their probability over many tokens, and not over "
                "the same ones. A draft token is accepted with a probability equal to the overlap of both "
                "distributions, so fewer are accepted.",
            ),
        ),
        (
            QuizSide("always the most likely token", FIBONACCI, (ALPHA, TAU, SPEEDUP), LONG),
            QuizSide(
                "sampled at temperature 1.5", FIBONACCI, (ALPHA, TAU, SPEEDUP), {**LONG, "temperature": 1.5}
            ),
        ),
        judging.temperature,
    ),
    Question(
        "alone",
        "Why not use only the small model? What do you get if the draft model writes the whole answer alone?",
        f"“{LEAVES.prompt}” 48 tokens.",
        (
            Option(
                "The target's text, faster",
                "The draft model wrote every token as the target would. That is luck in a short text: only "
                "the target's verification guarantees the same text.",
            ),
            Option(
                "The target's text, not faster",
                "The draft model wrote every token as the target would, which is luck in a short text. It "
                "was not faster, so it gives no speedup on this machine.",
            ),
            Option(
                "A different text, faster",
                "The draft model is faster, but nothing corrects it when it differs from the target. "
                "Speculative decoding combines its speed with the target's verification of every token.",
            ),
            Option(
                "A different text, not faster",
                "Its text differs from the target's, and nothing corrects it. It was not faster either, so "
                "it gives no speedup on this machine.",
            ),
        ),
        (
            QuizSide("the target alone", LEAVES, (ALONE_RATE, _same_tokens(BASELINE)), WITH_DRAFT_ALONE),
            QuizSide("the draft model alone", LEAVES, (DRAFT_RATE, _same_tokens(DRAFT)), WITH_DRAFT_ALONE),
        ),
        judging.alone,
    ),
    Question(
        "chance",
        "A story is sampled at temperature 0.8, once with draft tokens and once by the target alone. Under "
        "which rule are both texts the same?",
        f"“{STORY.prompt}” 48 tokens, k = 3.",
        (
            Option(
                "Under neither: sampling is random",
                "Under rejection sampling, the texts are independent samples of one distribution, so they "
                "differ. Under shared noise, they should be identical, but were not in this run.",
            ),
            Option(
                "Under both",
                "Under shared noise, the texts are always identical. Under rejection sampling, they are "
                "independent samples of one distribution and were equal by luck.",
            ),
            Option(
                "Only under shared noise",
                "Under rejection sampling, the texts are independent samples of one distribution, so they "
                "differ. Shared noise uses the same random numbers for both texts, so they are identical.",
            ),
            Option(
                "Only under rejection sampling",
                "Under rejection sampling, the texts are independent samples of one distribution and were "
                "equal by luck. Under shared noise, they should be identical, but were not in this run.",
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
        "Without a draft model, draft tokens are copied from an earlier occurrence of the last words, at no "
        "cost. For which task does a target pass give more tokens?",
        "Change a day in a notice, or invent a story; 48 tokens each, k = 3.",
        (
            Option(
                "Editing the notice",
                "The edited notice repeats the prompt, so many copied tokens are accepted. The invented "
                "story repeats little, so few are accepted.",
            ),
            Option(
                "Inventing the story",
                "In this run, the story repeated itself more than the notice repeated its prompt. Copied "
                "tokens are accepted if the text has contained the next words before.",
            ),
            Option(
                "Both about the same",
                "In this run, the story repeated itself as much as the notice repeated its prompt. Copied "
                "tokens are accepted if the text has contained the next words before.",
            ),
        ),
        (
            QuizSide("editing the notice", NOTICE, (TAU, ALPHA, SPEEDUP), LOOKUP),
            QuizSide("inventing the story", STORY, (TAU, ALPHA, SPEEDUP), LOOKUP),
        ),
        judging.copies,
    ),
)
