"""The laws of speculative decoding, for the exercise speculative.py. A failed test names the broken law."""

import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import speculative
from speculative import END, VOCABULARY, Model, distribution, draw

PROMPT = [3, 1, 4, 1, 5]
DRAWS = 4_000
FAR = 0.04  # 4,000 draws of the right distribution are practically never further away
P = torch.tensor([[0.5, 0.3, 0.2, 0.0], [0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)
Q = torch.tensor([[0.1, 0.2, 0.3, 0.4]], dtype=torch.float64)


def alone(seed: int, tokens: int) -> list[int]:
    """Return the greedy text of the target without drafts."""
    target, ids = Model(seed), [*PROMPT]
    while len(ids) < len(PROMPT) + tokens and ids[-1] != END:
        ids.append(int(target.read(ids[target.length :])[-1].argmax()))
    return ids[len(PROMPT) :]


@pytest.mark.parametrize("noise", [0.0, 0.4, 2.0])
@pytest.mark.parametrize("k", [1, 3])
def test_greedy_text_is_the_targets_own(k, noise):
    for seed in range(6):
        text = speculative.generate(Model(seed), Model(seed, noise), PROMPT, k, 24, 0.0, 0)
        assert text == alone(seed, 24), "identity: with greedy decoding, drafts must not change the text"


def test_a_perfect_draft_is_accepted_whole():
    rng = torch.Generator().manual_seed(0)
    p = torch.full((4, VOCABULARY), 1 / VOCABULARY, dtype=torch.float64)
    added = speculative.verify([5, 6, 7], p, p[:3], rng)
    assert added[:3] == [5, 6, 7], "acceptance: where p = q, every draft token is accepted"
    assert len(added) == 4, "bonus: after a whole accepted draft, the target adds a token of its own"


def test_the_residual_distribution():
    expected = torch.tensor([0.8, 0.2, 0.0, 0.0], dtype=torch.float64)
    torch.testing.assert_close(speculative.residual(P[0], Q[0]), expected)
    torch.testing.assert_close(speculative.residual(P[0], P[0]), P[0])


def test_sampled_tokens_have_the_targets_distribution():
    rng = torch.Generator().manual_seed(1)
    first, bonus = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
    for _ in range(DRAWS):
        token, *more = speculative.verify([draw(Q[0], rng)], P, Q, rng)
        first[token] += 1
        for other in more:
            bonus[other] += 1
    for counts, row in ((first, P[0]), (bonus, P[1])):
        shares = counts / counts.sum()
        distance = float((shares - row).abs().sum() / 2)
        assert distance < FAR, f"distribution: drawn {shares.tolist()}, but the target has {row.tolist()}"


def test_a_draft_forgets_rejected_tokens():
    model, rng = Model(7, noise=1.0), torch.Generator().manual_seed(0)
    ids = [*PROMPT]
    for accepted in (1, 4, 0):  # of the draft before
        drafted, _ = speculative.draft(model, ids, 4, 1.0, rng)
        corrected = (drafted[accepted] if accepted < 4 else 6) % (VOCABULARY - 1) + 1
        ids += [*drafted[:accepted], corrected]
        copy = Model(7, noise=1.0)
        copy.keys, copy.values = model.keys, model.values
        drafted, q = speculative.draft(copy, ids, 3, 0.8, rng)
        logits = Model(7, noise=1.0).read([*ids, *drafted[:-1]])[-3:]
        law = "rollback: q must follow from the text alone, without the tokens rejected in the last round"
        torch.testing.assert_close(q, distribution(logits, 0.8), msg=law)


@pytest.mark.parametrize(("drafted", "added"), [([5, END, 7], [5, END]), ([END, END, END], [END])])
def test_nothing_follows_the_end_of_a_text_inside_a_draft(drafted, added):
    q = torch.nn.functional.one_hot(torch.tensor(drafted), VOCABULARY).double()
    p = torch.cat([q, q[:1]])
    found = speculative.verify(drafted, p, q, torch.Generator())
    assert found == added, "end: an accepted END is the last token, and no bonus token follows"
