"""Write a verdict down as plain data: the tokens, probabilities and top fives of one round.

Runs after the round's clock has stopped. It reads the tensors the engine decided with and computes
nothing that the decision depends on; only top fives, and under greedy the temperature-1
probabilities, are made here, because they exist only to be shown.
"""

import torch
from torch import Tensor

from specdemo.engine.rules import Draft, Verdict
from specdemo.engine.sampling import probabilities
from specdemo.records.trace import Alternative, Emission, Status, Token

TOP = 5


def describe_draft(
    draft: Draft, verdict: Verdict, logits: Tensor, accepted: int, kept: int, compared: int
) -> tuple[Token, ...]:
    """The drafted tokens with their verdicts.

    Args:
        draft, verdict, logits: As the engine used them; ``logits`` is [k + 1, V].
        accepted: Leading tokens the rule accepted.
        kept: How many of those entered the text (fewer where an accepted token ended the run).
        compared: How many tokens count as compared: one more than ``kept`` after a rejection.
    """
    k = len(draft)
    if k == 0:
        return ()
    ids = draft.ids.tolist()
    shown = verdict.p if verdict.p is not None else probabilities(logits)
    target_tops = _tops(shown[:k], None)
    draft_tops = _draft_tops(draft) or [()] * k
    facts = (
        _greedy_facts(draft, shown, accepted) if verdict.p is None else _sampled_facts(verdict, accepted, k)
    )
    if verdict.noise is not None:
        for fact, noise in zip(
            facts, verdict.noise[:k].gather(1, draft.ids[:, None])[:, 0].tolist(), strict=True
        ):
            fact["noise"] = noise
    return tuple(
        Token(
            id=ids[i],
            status=Status.ACCEPTED if i < kept else Status.DISCARDED,
            compared=i < compared,
            rejected=kept <= i < compared,
            draft_top=draft_tops[i],
            target_top=target_tops[i],
            **facts[i],
        )
        for i in range(k)
    )


def describe_emission(draft: Draft, verdict: Verdict, logits: Tensor, accepted: int, token: int) -> Emission:
    """The target's own token after ``accepted`` drafted ones."""
    row = logits[accepted]
    raw = probabilities(row)
    status = Status.CORRECTED if accepted < len(draft) else Status.BONUS
    if verdict.p is None:
        top = _tops(raw[None], None)[0]
        gap = top[0].prob - top[1].prob if len(top) > 1 else None
        return Emission(token, status, prob=1.0, raw_prob=raw[token].item(), top=top, gap=gap)
    source = verdict.p[accepted] if verdict.residual is None else verdict.residual / verdict.residual.sum()
    gap = None
    if verdict.noise is not None:
        best = (verdict.p[accepted].log() + verdict.noise[accepted]).topk(2).values
        gap = (best[0] - best[1]).item() if torch.isfinite(best[1]) else None
    return Emission(
        token,
        status,
        prob=source[token].item(),
        noise=None if verdict.noise is None else verdict.noise[accepted, token].item(),
        residual_mass=verdict.residual_mass.item()
        if verdict.residual_mass is not None and status is Status.CORRECTED
        else None,
        top=_tops(source[None], None)[0],
        gap=gap,
    )


def _greedy_facts(draft: Draft, target_probs: Tensor, accepted: int) -> list[dict]:
    k = len(draft)
    raw_p = target_probs[:k].gather(1, draft.ids[:, None])[:, 0].tolist()
    raw_q = _greedy_raw_q(draft)
    agrees = (target_probs[:k].argmax(-1) == draft.ids).tolist()
    # Up to the first rejection the rule's own verdict counts; behind it the argmax is only informative.
    agrees[: accepted + 1] = [i < accepted for i in range(min(k, accepted + 1))]
    return [
        {"q": 1.0, "p": float(agree), "accept_prob": float(agree), "raw_q": raw_q[i], "raw_p": raw_p[i]}
        for i, agree in enumerate(agrees)
    ]


def _greedy_raw_q(draft: Draft) -> list[float | None]:
    if draft.logits is None:
        return [None] * len(draft)
    return probabilities(draft.logits).amax(-1).tolist()


def _sampled_facts(verdict: Verdict, accepted: int, k: int) -> list[dict]:
    p, q = verdict.p_of_draft.tolist(), verdict.q_of_draft.tolist()
    facts: list[dict] = [{"q": q[i], "p": p[i]} for i in range(k)]
    if verdict.coins is not None:
        for i, coin in enumerate(verdict.coins.tolist()):
            # As tensors divide: what was drawn with a q that rounds to 0 stays, unless p is 0 as well.
            facts[i]["accept_prob"] = min(1.0, p[i] / q[i]) if q[i] else float(p[i] > 0)
            facts[i]["u"] = coin if i <= accepted else None
    return facts


def _draft_tops(draft: Draft) -> list[tuple[Alternative, ...]] | None:
    if draft.logits is None:
        return None
    return _tops(probabilities(draft.logits) if draft.probs is None else draft.probs, draft.id_map)


def _tops(probs: Tensor, id_map: Tensor | None) -> list[tuple[Alternative, ...]]:
    """Top five of each row, impossible tokens left out."""
    values, ids = probs.topk(min(TOP, probs.shape[-1]))
    if id_map is not None:
        ids = id_map[ids]
    return [
        tuple(Alternative(i, v) for i, v in zip(row_ids, row, strict=True) if v > 0)
        for row_ids, row in zip(ids.tolist(), values.tolist(), strict=True)
    ]
