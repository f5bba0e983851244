"""The eight questions of the quiz. Data: what is asked, what is run for it, and how the figures decide.

Every option has its own explanation, also those that are not expected: what a machine measured is what it
is told about. Edges between options are chosen where the embedded pair is far from them.
"""

from specdemo.bench.bench import Prompt
from specdemo.lab.handicap import Handicap
from specdemo.quiz.quiz import (
    ALPHA,
    KEPT,
    SPEEDUP,
    TAU,
    Figure,
    Option,
    Outcome,
    Question,
    QuizSide,
    band,
    kept_by,
)
from specdemo.records.limits import MAX_K
from specdemo.records.trace import BASELINE, DRAFT, SPECULATIVE, Mode, Rule


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

FIVE = {"k": 4, "max_new_tokens": 5}
STEADY = 0.02
"""α counts as unchanged within this. It does not depend on the clock."""
ALPHA_SHIFT, ALPHA_MARGIN = 0.08, 0.03
"""A sampled text of a hundred tokens has its luck: a smaller shift of α, or one this near, says nothing."""
LOST = 0.8
"""Ratio of speedups from which on speed counts as kept."""
SAMPLED = {"temperature": 0.8, "rule": Rule.SHARED_NOISE}
DRAWN = {"temperature": 0.8, "rule": Rule.REJECTION}


def five_tokens(_alone: Outcome, drafted: Outcome) -> int | None:
    """By the passes, where all four guesses stood."""
    if drafted.totals.alpha_compared != 1.0:
        return None
    return {1: 0, 2: 1, 4: 2, 5: 3}.get(drafted.totals.passes)


def noise(_plain: Outcome, noisy: Outcome) -> int | None:
    """By the text (same or not) and the noisy speedup (below or above 1)."""
    faster = band(noisy.speedup, (1.0,))
    if faster is None:
        return None
    return (2 if noisy.same(SPECULATIVE) else 0) + (1 - faster)


def cost(plain: Outcome, dear: Outcome) -> int | None:
    """By the change of α and the ratio of the speedups."""
    shift = _difference(plain.totals.alpha_compared, dear.totals.alpha_compared)
    kept = band(_ratio(plain.speedup, dear.speedup), (LOST,))
    if shift is None or kept is None or shift > STEADY:
        return None
    return (1 if shift < -STEADY else 0) + (0 if kept else 2)


def length(short: Outcome, long: Outcome) -> int | None:
    """By the ratio of the speedups: more than doubled, risen, fallen."""
    found = band(_ratio(short.speedup, long.speedup), (1.0, 2.0))
    return None if found is None else 2 - found


def temperature(likeliest: Outcome, drawn: Outcome) -> int | None:
    """By the shift of α: risen, about the same, fallen."""
    shift = _difference(likeliest.totals.alpha_compared, drawn.totals.alpha_compared)
    if shift is None or abs(abs(shift) - ALPHA_SHIFT) <= ALPHA_MARGIN:
        return None
    if abs(shift) < ALPHA_SHIFT:
        return 1
    return 0 if shift > 0 else 2


def alone(_target: Outcome, draft: Outcome) -> int | None:
    """By the draft's text (the target's or not) and its rate (below or above the target's)."""
    totals = draft.totals
    sooner = band(_ratio(totals.baseline_tokens_per_s, totals.draft_alone_tokens_per_s), (1.0,))
    if sooner is None:
        return None
    return (0 if draft.same(DRAFT) else 2) + (1 - sooner)


def chance(drawn: Outcome, shared: Outcome) -> int:
    """By the tokens alone."""
    under_rejection, under_noise = drawn.same(SPECULATIVE), shared.same(SPECULATIVE)
    return {(False, False): 0, (True, True): 1, (False, True): 2, (True, False): 3}[
        under_rejection, under_noise
    ]


def copies(edited: Outcome, invented: Outcome) -> int | None:
    """By the ratio of τ, which does not depend on the clock."""
    found = band(_ratio(edited.totals.tau, invented.totals.tau), (0.9, 1.1), margin=0.02)
    return None if found is None else (0, 2, 1)[found]


QUESTIONS = (
    Question(
        "five",
        "The draft proposes four tokens, and the target agrees with all four. How many target passes do five "
        "tokens take?",
        f"“{FIBONACCI.prompt}” Five tokens, k = 4.",
        (
            Option(
                "One",
                "The target reads all four guesses in a single pass, since none of them has to wait for the "
                "one before. The same pass also says what follows the last guess: the fifth token.",
            ),
            Option(
                "Two: one for the guesses, one for the fifth token",
                "Two passes were made here although every guess stood. As a rule one is enough, because the "
                "pass that checks four guesses also gives the token after them.",
            ),
            Option(
                "Four: one for each guess",
                "Four passes were made here although every guess stood. As a rule one is enough, because "
                "guesses that are already there are checked together.",
            ),
            Option(
                "Five: one for each token",
                "Drafts saved no pass here although every guess stood. As a rule one is enough, because "
                "guesses that are already there are checked together.",
            ),
        ),
        (
            QuizSide(
                "the target alone",
                FIBONACCI,
                (Figure("Target passes", lambda run: run.totals.baseline_passes, "{:.0f}"), KEPT),
                FIVE,
            ),
            QuizSide(
                "with four guesses",
                FIBONACCI,
                (Figure("Target passes", lambda run: run.totals.passes, "{:.0f}"), KEPT),
                FIVE,
            ),
        ),
        five_tokens,
        "Draft and target did not agree on all four tokens here, so what is asked about did not happen.",
    ),
    Question(
        "noise",
        "Noise takes the place of all that the draft has learnt: its guesses are random now. What becomes of "
        "the text, and of the speed?",
        f"“{EMAIL.prompt}” goes on for 48 tokens, k = 6.",
        (
            Option(
                "Wrong words get into the text; still faster than the target alone",
                "The text is not the target's here, which must not happen: please report it. The target "
                "decides on every token, so a bad draft can cost time, never words.",
            ),
            Option(
                "Wrong words get into the text; slower than the target alone",
                "The text is not the target's here, which must not happen: please report it. The target "
                "decides on every token, so a bad draft can cost time, never words.",
            ),
            Option(
                "The text stays the same; still faster than the target alone",
                "The target decides on every token, so a bad draft cannot change the text. Drafting and "
                "checking cost so little here that even a few lucky guesses pay.",
            ),
            Option(
                "The text stays the same; slower than the target alone",
                "The target decides on every token, so a bad draft cannot change the text. But it has to be "
                "drafted and checked, and where nearly every guess falls that is time lost.",
            ),
        ),
        (
            QuizSide("the draft as it is", EMAIL, (ALPHA, SPEEDUP, KEPT), {"k": 6}),
            QuizSide("a draft of pure noise", EMAIL, (ALPHA, SPEEDUP, KEPT), {"k": 6}, Handicap(noise=1.0)),
        ),
        noise,
    ),
    Question(
        "cost",
        "Every draft step is made eight times over: the same guesses, at eight times the price. What becomes "
        "of the share of accepted guesses α, and of the speedup S?",
        f"“{FIBONACCI.prompt}” 48 tokens, k = 3.",
        (
            Option(
                "α stays, and S stays within a fifth",
                "The guesses are the same, so the target accepts as many of them. Draft steps are so cheap "
                "beside target passes here that even eight of them hardly count.",
            ),
            Option(
                "α falls, S stays within a fifth",
                "The target accepted fewer guesses here, although they should be the same ones. Draft steps "
                "are so cheap beside target passes that eight of them hardly count.",
            ),
            Option(
                "α stays, S falls by more than a fifth",
                "The guesses are the same, so the target accepts as many of them. But each is paid for "
                "whether it stays or not, so a draft must be much cheaper than its target.",
            ),
            Option(
                "Both fall",
                "The target accepted fewer guesses here, although they should be the same ones. And each is "
                "paid for whether it stays or not, so a draft must be much cheaper than its target.",
            ),
        ),
        (
            QuizSide("each step made once", FIBONACCI, (ALPHA, SPEEDUP, KEPT)),
            QuizSide("each step made 8 times", FIBONACCI, (ALPHA, SPEEDUP, KEPT), {}, Handicap(repeats=8)),
        ),
        cost,
    ),
    Question(
        "length",
        f"Drafts of {MAX_K} tokens instead of 3: each target pass can win four times as many guesses. What "
        "becomes of the speedup S?",
        f"“{SKY.prompt}” 48 tokens.",
        (
            Option(
                "It more than doubles",
                "Long drafts stood nearly whole here, so that each target pass gave many tokens. That takes "
                "very predictable text and a draft that thinks like its target.",
            ),
            Option(
                "It rises, but does not double",
                "Enough of the later guesses stood to pay for the longer drafts. It is less than four times "
                "as much because a guess counts only if all before it were right.",
            ),
            Option(
                "It falls",
                "A guess counts only if all before it were right, so most of a long draft is thrown away. "
                "All of it has been drafted and checked, and that time is gone.",
            ),
        ),
        (
            QuizSide("k = 3", SKY, (TAU, SPEEDUP), {"k": 3}),
            QuizSide(f"k = {MAX_K}", SKY, (TAU, SPEEDUP), {"k": MAX_K}),
        ),
        length,
    ),
    Question(
        "temperature",
        "Instead of always taking the likeliest token, the text is drawn at temperature 1.5, and rejection "
        "sampling judges the guesses. What becomes of α, the share that is accepted?",
        f"“{EMAIL.prompt}” goes on for 96 tokens, k = 3.",
        (
            Option(
                "It rises: a target that draws is less strict",
                "Draft and target overlap more as distributions here than in their first choices. Each guess "
                "stays with probability min(1, p/q), which forgives a draft that is only roughly right.",
            ),
            Option(
                "It stays about the same",
                "What temperature adds in surprise, rejection sampling gives back here by forgiving small "
                "differences. Each guess stays with probability min(1, p/q) instead of all or nothing.",
            ),
            Option(
                "It falls: chance is harder to guess",
                "At a high temperature the target spreads its choice over many tokens, and the draft over "
                "others. The less the two distributions overlap, the fewer guesses stay.",
            ),
        ),
        (
            QuizSide("always the likeliest token", EMAIL, (ALPHA, TAU, SPEEDUP), {"max_new_tokens": 96}),
            QuizSide(
                "drawn at temperature 1.5",
                EMAIL,
                (ALPHA, TAU, SPEEDUP),
                {"max_new_tokens": 96, "temperature": 1.5},
            ),
        ),
        temperature,
    ),
    Question(
        "alone",
        "Why not just use the small model? Let the draft write the whole answer by itself: what do you get?",
        f"“{LEAVES.prompt}” 48 tokens.",
        (
            Option(
                "The target's text, sooner",
                "The draft agreed with the target at every single token here. That is luck over a short "
                "text: nothing but the target's check makes sure of it.",
            ),
            Option(
                "The target's text, no sooner",
                "The draft agreed with the target at every single token here, which is luck over a short "
                "text. And it was no faster, so there is nothing to gain from it on this machine.",
            ),
            Option(
                "Another text, sooner",
                "The draft is many times as fast, but where it departs from the target nobody corrects it. "
                "As a proposer it lends its speed, and the target keeps its say over every token.",
            ),
            Option(
                "Another text, no sooner",
                "The draft departs from the target and nobody corrects it. And it was no faster here, so it "
                "would not help as a proposer either.",
            ),
        ),
        (
            QuizSide(
                "the target alone",
                LEAVES,
                (
                    Figure("Tokens per second", lambda run: run.totals.baseline_tokens_per_s, "{:.0f}"),
                    Figure(
                        "Tokens that are the target's own", lambda run: run.share_same(BASELINE), "{:.0%}"
                    ),
                ),
                {"draft_alone": True},
            ),
            QuizSide(
                "the draft alone",
                LEAVES,
                (
                    Figure("Tokens per second", lambda run: run.totals.draft_alone_tokens_per_s, "{:.0f}"),
                    kept_by(DRAFT),
                ),
                {"draft_alone": True},
            ),
        ),
        alone,
    ),
    Question(
        "chance",
        "A story is drawn by chance at temperature 0.8, once with drafts and once by the target alone. Under "
        "which rule do both write the same tokens?",
        f"“{STORY.prompt}” 48 tokens, k = 3.",
        (
            Option(
                "Under neither: chance is chance",
                "Under rejection sampling the two texts are two draws from one distribution and differ. "
                "Shared noise should have made them equal token for token; here it did not.",
            ),
            Option(
                "Under both",
                "Shared noise makes both texts equal token for token. That rejection sampling did too is "
                "luck: its two texts are two draws from one distribution.",
            ),
            Option(
                "Only under shared noise",
                "Rejection sampling promises the same distribution, so the two texts are two draws from it. "
                "Shared noise gives both the same chance at each position, so their tokens are equal too.",
            ),
            Option(
                "Only under rejection sampling",
                "Rejection sampling promises the same distribution, and two equal draws from it are luck. "
                "Shared noise should have made the texts equal token for token; here it did not.",
            ),
        ),
        (
            QuizSide("rejection sampling", STORY, (KEPT, ALPHA), DRAWN),
            QuizSide("shared noise", STORY, (KEPT, ALPHA), SAMPLED),
        ),
        chance,
    ),
    Question(
        "copies",
        "No model drafts: guesses are copied from wherever the last words occurred before, at no cost. For "
        "which task does a target pass yield more tokens?",
        "Changing a day in a notice, or inventing a story; 48 tokens each, k = 3.",
        (
            Option(
                "Editing the notice",
                "An edited text repeats what stands in the question, so whole runs of copied tokens are "
                "right. An invented one repeats little, and a copy that falls wins nothing.",
            ),
            Option(
                "Inventing the story",
                "The story repeated itself more than the notice was repeated here. Copies pay wherever the "
                "next words have occurred before, whatever the task is called.",
            ),
            Option(
                "Both about the same",
                "The notice was repeated no more than the story repeated itself here. Copies pay only where "
                "the next words have occurred before.",
            ),
        ),
        (
            QuizSide("editing the notice", NOTICE, (TAU, ALPHA, SPEEDUP), {"drafter": "prompt-lookup"}),
            QuizSide("inventing the story", STORY, (TAU, ALPHA, SPEEDUP), {"drafter": "prompt-lookup"}),
        ),
        copies,
    ),
)


def _ratio(first: float | None, second: float | None) -> float | None:
    """``second`` in units of ``first``."""
    return second / first if first and second is not None else None


def _difference(first: float | None, second: float | None) -> float | None:
    return None if first is None or second is None else second - first
