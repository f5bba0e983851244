"""What is run for each question of the quiz: two sides, and the figures that are shown of them."""

from specdemo.bench.prompts import Prompt
from specdemo.lab.handicap import Handicap
from specdemo.quiz.question import ALPHA, KEPT, SPEEDUP, TAU, Figure, QuizSide, kept_by
from specdemo.records.limits import MAX_K
from specdemo.records.trace import BASELINE, DRAFT, Mode, Rule


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

FIVE = (
    QuizSide(
        "the target alone",
        FIBONACCI,
        (Figure("Target passes", lambda run: run.totals.baseline_passes, "{:.0f}"), KEPT),
        {"k": 4, "max_new_tokens": 5},
    ),
    QuizSide(
        "with four guesses",
        FIBONACCI,
        (Figure("Target passes", lambda run: run.totals.passes, "{:.0f}"), KEPT),
        {"k": 4, "max_new_tokens": 5},
    ),
)

NOISE = (
    QuizSide("the draft as it is", EMAIL, (ALPHA, SPEEDUP, KEPT), {"k": 6}),
    QuizSide("a draft of pure noise", EMAIL, (ALPHA, SPEEDUP, KEPT), {"k": 6}, Handicap(noise=1.0)),
)

COST = (
    QuizSide("each step made once", FIBONACCI, (ALPHA, SPEEDUP, KEPT)),
    QuizSide("each step made 8 times", FIBONACCI, (ALPHA, SPEEDUP, KEPT), {}, Handicap(repeats=8)),
)

LENGTH = (
    QuizSide("k = 3", SKY, (TAU, SPEEDUP), {"k": 3}),
    QuizSide(f"k = {MAX_K}", SKY, (TAU, SPEEDUP), {"k": MAX_K}),
)

TEMPERATURE = (
    QuizSide("always the likeliest token", EMAIL, (ALPHA, TAU, SPEEDUP), {"max_new_tokens": 96}),
    QuizSide(
        "drawn at temperature 1.5",
        EMAIL,
        (ALPHA, TAU, SPEEDUP),
        {"max_new_tokens": 96, "temperature": 1.5},
    ),
)

ALONE = (
    QuizSide(
        "the target alone",
        LEAVES,
        (
            Figure("Tokens per second", lambda run: run.totals.baseline_tokens_per_s, "{:.0f}"),
            kept_by(BASELINE),
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
)

CHANCE = (
    QuizSide("rejection sampling", STORY, (KEPT, ALPHA), {"temperature": 0.8, "rule": Rule.REJECTION}),
    QuizSide("shared noise", STORY, (KEPT, ALPHA), {"temperature": 0.8, "rule": Rule.SHARED_NOISE}),
)

COPIES = (
    QuizSide("editing the notice", NOTICE, (TAU, ALPHA, SPEEDUP), {"drafter": "prompt-lookup"}),
    QuizSide("inventing the story", STORY, (TAU, ALPHA, SPEEDUP), {"drafter": "prompt-lookup"}),
)
