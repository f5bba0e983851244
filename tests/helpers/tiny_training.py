"""A tiny vocabulary, prompts of it, and the command that trains for a tiny target."""

import itertools

import torch

from specdemo.cli import main as cli
from specdemo.models.feature_draft import default_taps

VOCAB = 60
TAPS = default_taps(2)
EOS = frozenset({3})


class KilledError(Exception):
    """An interruption of a training."""


def killed_at(call, function):
    """Return ``function``, which raises :class:`KilledError` at the given call, counted from 0."""
    calls = itertools.count()

    def dying(*arguments):
        if next(calls) == call:
            raise KilledError
        return function(*arguments)

    return dying


def random_prompts(count, seed=0):
    """Return ``count`` prompts of one token to five, each 32 of another longest length."""
    rows = torch.randint(VOCAB, (count, 5), generator=torch.Generator().manual_seed(seed)).tolist()
    return [row[: 1 + index % (1 + index // 32 % 5)] for index, row in enumerate(rows)]


def train(folder, out, *more):
    """Run ``specdemo train`` for the target in ``folder`` and return the exit status."""
    arguments = ["train", "--target", folder, "--out", str(out), "--device", "cpu"]
    sizes = [] if "--start" in more else ["--layers", "1", "--head", "200"]
    return cli.main([*arguments, *sizes, *more])
