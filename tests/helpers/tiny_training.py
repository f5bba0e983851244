"""A tiny target, prompts for it and the command that trains for it, for the tests of training."""

import torch

from specdemo.cli import main as cli
from specdemo.models.feature_draft import default_taps
from specdemo.training.pace import Trial

VOCAB = 60
TAPS = default_taps(2)
EOS = frozenset({3})
TRIAL = Trial({"bf16": {1: 0.01, 8: 0.02}}, {"bf16": 1000.0}, load_s=0.1)


class KilledError(Exception):
    """Stands for a kill."""


def random_prompts(count, seed=0):
    """``count`` prompts of three tokens."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(VOCAB, (count, 3), generator=generator).tolist()


def train(folder, out, *more):
    """The exit status of ``specdemo train`` for the target in ``folder``."""
    arguments = ["train", "--target", folder, "--out", str(out), "--device", "cpu"]
    sizes = [] if "--start" in more else ["--layers", "1", "--head", "200"]
    return cli.main([*arguments, *sizes, *more])
