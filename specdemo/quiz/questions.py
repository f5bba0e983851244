"""The eight questions of the quiz, in words.

Every option has its own explanation, also those that are not expected: what a machine measured is what it
is told about.
"""

from specdemo.quiz import decisions, sides
from specdemo.quiz.question import Option, Question
from specdemo.records.limits import MAX_K

QUESTIONS = (
    Question(
        "five",
        "The draft proposes four tokens, and the target agrees with all four. How many target passes do five "
        "tokens take?",
        f"“{sides.FIBONACCI.prompt}” Five tokens, k = 4.",
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
        sides.FIVE,
        decisions.five,
        "Draft and target did not agree on all four tokens here, so what is asked about did not happen.",
    ),
    Question(
        "noise",
        "Noise takes the place of all that the draft has learnt: its guesses are random now. What becomes of "
        "the text, and of the speed?",
        f"“{sides.EMAIL.prompt}” goes on for 48 tokens, k = 6.",
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
        sides.NOISE,
        decisions.noise,
    ),
    Question(
        "cost",
        "Every draft step is made eight times over: the same guesses, at eight times the price. What becomes "
        "of the share of accepted guesses α, and of the speedup S?",
        f"“{sides.FIBONACCI.prompt}” 48 tokens, k = 3.",
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
        sides.COST,
        decisions.cost,
    ),
    Question(
        "length",
        f"Drafts of {MAX_K} tokens instead of 3: each target pass can win four times as many guesses. What "
        "becomes of the speedup S?",
        f"“{sides.SKY.prompt}” 48 tokens.",
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
        sides.LENGTH,
        decisions.length,
    ),
    Question(
        "temperature",
        "Instead of always taking the likeliest token, the text is drawn at temperature 1.5, and rejection "
        "sampling judges the guesses. What becomes of α, the share that is accepted?",
        f"“{sides.EMAIL.prompt}” goes on for 96 tokens, k = 3.",
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
        sides.TEMPERATURE,
        decisions.temperature,
    ),
    Question(
        "alone",
        "Why not just use the small model? Let the draft write the whole answer by itself: what do you get?",
        f"“{sides.LEAVES.prompt}” 48 tokens.",
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
        sides.ALONE,
        decisions.alone,
    ),
    Question(
        "chance",
        "A story is drawn by chance at temperature 0.8, once with drafts and once by the target alone. Under "
        "which rule do both write the same tokens?",
        f"“{sides.STORY.prompt}” 48 tokens, k = 3.",
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
        sides.CHANCE,
        decisions.chance,
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
        sides.COPIES,
        decisions.copies,
    ),
)
