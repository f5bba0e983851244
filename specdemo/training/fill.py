"""Fill a folder with a target's own texts, round by round, until it holds as many tokens as asked for."""

from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoTokenizer

from specdemo.pairs.model_loader import loading
from specdemo.training import clock
from specdemo.training.arithmetic import TargetFiles, chosen, path_of_target, try_writing, writers
from specdemo.training.corpus import CorpusWriter, Made
from specdemo.training.pace import Trial
from specdemo.training.text_files import load_made, next_number, own_or_refuse, path_of, paths_of, save_made

LONGEST_STEP_S = 5.0
"""A trial of arithmetics looks at no more rows than take this long."""


def fill(
    target: str, folder: Path, tokens: int, device: torch.device, seed: int, forbidden: Sequence[str]
) -> int:
    """Write rounds of texts into ``folder``; finished rounds are kept, a folder with some is gone on with.

    Args:
        target: ``embedded``, a hub id, or a folder.
        tokens: Of the target's own, which ``folder`` holds at least afterwards.
        forbidden: Prompts that something will be measured on.

    Returns:
        How many tokens of the target's own it holds.

    Raises:
        UserError: The target cannot be loaded, or ``folder`` cannot be used.
    """
    own_or_refuse(folder, target)
    held = [load_made(path) for path in paths_of(folder)]
    there = sum(map(own_tokens, held))
    if there >= tokens:
        return there
    path = path_of_target(target)
    files = TargetFiles(path, device)
    print("Trying which arithmetic is fastest here.")
    step_s = try_writing(files, writers(files.plain()), (), LONGEST_STEP_S)
    arithmetic = chosen(Trial(step_s, {}, 0.0, LONGEST_STEP_S).writing)
    model, tokenizer = files.in_arithmetic(arithmetic), loading(AutoTokenizer.from_pretrained, path)
    progress = _Progress(there, tokens)
    writer = CorpusWriter(model, tokenizer, forbidden, seed, progress.wrote)
    for made in held:
        writer.known(made)
    number = next_number(folder)
    while there < tokens:
        made = writer.round(number)
        save_made(made, path_of(folder, number))
        number, there = number + 1, there + own_tokens(made)
    progress.close()
    return there


def own_tokens(made: Sequence[Made]) -> int:
    """How many tokens of texts are the target's own."""
    return sum(len(text.ids) - text.start for part in made for text in part.texts)


class _Progress:
    """The line that shows how far the writing is; proposals count as written, too."""

    def __init__(self, there: int, wanted: int):
        self._there, self._wanted, self._written = there, wanted, 0
        self._meter = clock.Meter("target's own text", there / wanted)

    def wrote(self, tokens: int) -> None:
        """So many more."""
        self._written += tokens
        self._meter.show((self._there + self._written) / self._wanted, self._written)

    def close(self) -> None:
        """All is there."""
        self._meter.close(self._written)
