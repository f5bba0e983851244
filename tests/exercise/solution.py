"""A solution of the exercise in ``assets/exercise``."""

import torch


class Solution:
    """The three functions of the exercise; ``exercise`` is the module with the models."""

    def __init__(self, exercise):
        self.exercise = exercise

    def draft(self, model, ids, k, temperature, rng):
        self.forget(model, ids)
        drafted, rows = [], []
        for _ in range(k):
            logits = model.read([*ids, *drafted][model.length :])[-1]
            rows.append(self.exercise.distribution(logits, temperature))
            drafted.append(self.exercise.draw(rows[-1], rng))
        return drafted, torch.stack(rows)

    def forget(self, model, ids):
        model.cut(min(model.length, len(ids) - 1))

    def residual(self, p, q):
        rest = (p - q).clamp(min=0)
        return rest / rest.sum() if rest.sum() > 0 else p

    def accepts(self, p, q, rng):
        return torch.rand((), generator=rng) * q < p

    def verify(self, drafted, p, q, rng):
        for index, token in enumerate(drafted):
            if not self.accepts(p[index, token], q[index, token], rng):
                return [*drafted[:index], self.exercise.draw(self.residual(p[index], q[index]), rng)]
            if token == self.exercise.END:
                return drafted[: index + 1]
        return [*drafted, self.exercise.draw(p[-1], rng)]
