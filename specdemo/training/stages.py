"""From a target to a draft folder the app can load: pool, text, distillation, evaluation, card.

Every stage leaves files in ``OUT/work`` and is skipped or continued when they are there. What was
asked for is pinned in ``plan.json``, so that a resumed training is the one that was begun.
"""

import ctypes
import json
import math
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, PreTrainedModel

from specdemo.models.feature_draft import default_taps
from specdemo.pairs.embedded import mended_target, printing
from specdemo.pairs.hardware import chosen_device
from specdemo.pairs.model_loader import loading
from specdemo.pairs.pair import encode_prompt, eos_ids_of
from specdemo.records.limits import UserError
from specdemo.shipped import EMBEDDED
from specdemo.training import clock
from specdemo.training.arithmetic import (
    Speeds,
    TargetFiles,
    learners,
    path_of_target,
    try_learning,
    try_writing,
    writers,
)
from specdemo.training.disk import refused
from specdemo.training.distil import CHECKPOINT, Recipe, coverage, distil, frequent_ids
from specdemo.training.evaluate import evaluate_draft
from specdemo.training.label import label_texts
from specdemo.training.n_grams import WrittenText, calibration, count_n_grams, hits
from specdemo.training.pace import (
    Pace,
    Trial,
    longest_step_s,
    outlook,
    pace_for_minutes,
    pace_for_steps,
    pin_pace,
    pinned_pace,
)
from specdemo.training.pool import PoolPrompt, mode_for, prompt_pool
from specdemo.training.report import write_card, write_curve
from specdemo.training.shard_timing import seconds_spent
from specdemo.training.starts import (
    FEATURE,
    MODEL,
    N_GRAM,
    AnyStudent,
    cut_student,
    save_student,
    student_from,
)
from specdemo.training.text_files import load_texts
from specdemo.training.write import SHARD, read_text, write_text

PLAN = "plan.json"
TOKENS_PER_PROMPT = 120
EPOCHS = 3
"""Passes over the text that a training of ``--steps`` is planned for."""
CLOSING_SHARE = 0.02
"""Of ``--minutes``, for what follows learning: a last check, files, the curve, the card."""
START_S = 5.0
"""What Python takes to load the libraries, about, before any clock of ours runs."""
HELD_OUT_EVERY = 20
"""One in so many texts is left out of a first table; half of them say what its chances are worth."""
EVALUATION_PROMPTS = 24
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's ``mallopt``."""


@dataclass(frozen=True)
class Plan:
    """One training as asked for; a resumed one must ask for the same.

    Attributes:
        target: ``embedded``, a hub id, or a folder.
        kind: ``model``, ``feature`` or ``n-gram``.
        steps, minutes: What ends it; one of them is None.
        layers: Depth of a draft model.
        head: Size of the draft's vocabulary.
        max_new_tokens: Longest continuation.
        text: A folder of texts to learn from or count, instead of having the target write some.
        start: A folder with a draft to go on from, whose head and depth it keeps.
    """

    target: str
    kind: str
    steps: int | None
    minutes: float | None
    layers: int = 2
    head: int = 12_288
    max_new_tokens: int = 128
    seed: int = 0
    text: str | None = None
    start: str | None = None

    @property
    def prompts(self) -> int:
        """How many prompts the pool needs where steps are counted."""
        positions = (self.steps or 0) * Recipe.batch_tokens
        return max(1, -(-positions // (EPOCHS * TOKENS_PER_PROMPT)))

    def recipe(self, pace: Pace) -> Recipe:
        """How the student is trained."""
        rate = 8e-4 if self.kind == MODEL else 2e-3
        # A draft that was trained before loses at first what a high rate would give it later.
        rate *= 1.0 if self.start is None else 0.5
        return Recipe(
            steps=self.steps,
            seconds=pace.learning_s,
            objective="hybrid",
            int4=True,
            batch_tokens=pace.batch_tokens,
            # Adam's steps are noisier over smaller batches, with the root of their size.
            learning_rate=rate * (pace.batch_tokens / Recipe.batch_tokens) ** 0.5,
            warmup_steps=pace.warmup_steps,
            seed=self.seed,
            arithmetic=pace.learning,
        )


def train(plan: Plan, out: Path, device: str | None, resume: bool) -> dict[str, Any]:
    """Run every stage that is not done yet; returns the evaluation.

    Raises:
        UserError: The target cannot be loaded or is of another make than drafts can be cut from,
            ``out`` cannot be written or holds another training.
    """
    _keep_freed_memory()
    try:
        return _train(plan, out, device, resume)
    except OSError as error:
        raise refused(out, error) from error
    except UserError as error:
        if plan.target == EMBEDDED and mended_target(printing()):
            raise UserError(
                "The embedded target's files were damaged and have been made anew; run the command again."
            ) from error
        raise


def _keep_freed_memory() -> None:
    """Have the C library keep what tensors free, where it is glibc.

    A training step frees and asks again for blocks of 100 MB. By default each goes back to the system
    and returns page by page, zeroed, which took half of a step on CPU.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, -1)


def _train(plan: Plan, out: Path, device: str | None, resume: bool) -> dict[str, Any]:
    work = out / "work"
    given = load_texts(Path(plan.text), plan.target) if plan.text is not None else None
    _pin(plan, work, resume)
    begun = clock.now() - START_S - seconds_spent(work / "text")
    path = path_of_target(plan.target)
    files = TargetFiles(path, chosen_device(device))
    pace = pinned_pace(work) or _new_pace(plan, files, work, begun)
    pool = prompt_pool(pace.prompts + EVALUATION_PROMPTS, plan.seed)
    unseen = pool[pace.prompts :] if given is None else _unseen(plan, path, given)
    if given is None:
        _write(plan, pace, files, pool[: pace.prompts], work)
    elif plan.kind != N_GRAM and not (work / CHECKPOINT).is_file():
        # Other texts under a checkpoint would be split, and headed, in another way.
        _label(plan, pace, files, given, work)
    if plan.kind == N_GRAM:
        made = _count(files.plain(), given or _written(work), out)
        files.drop()
    else:
        pace = _with_time_left(plan, pace, work, begun)
        made = _learn(plan, pace, files, read_text(work / "text"), out)
    until = _evaluation_end(plan, pace, begun)
    evaluation = evaluate_draft(
        plan.target, plan.kind, out, unseen, device, pace.writing, until, pace.calibrated
    )
    facts = {**evaluation, **made, "seconds": clock.now() - begun}
    _write_json(work / "evaluation.json", facts)
    write_card(plan, pace, facts, out)
    return facts


def _learn(plan: Plan, pace: Pace, files: TargetFiles, text: list, out: Path) -> dict[str, Any]:
    """Distil a draft of ``text`` and save it; how it does on held-out text, and what its head is."""
    student, covered = _student_of_text(plan, files.plain(), text)
    files.drop()
    quality = distil(student, text, plan.recipe(pace), out / "work")
    save_student(student, out)
    write_curve(out / "work")
    tokens = sum(len(item.output) for item in text)
    return {**asdict(quality), "tokens": tokens, "head": len(student.id_map), "coverage": covered}


def _unseen(plan: Plan, path: str, given: list[WrittenText]) -> list[PoolPrompt]:
    """Prompts of the pool to evaluate on that begin none of the texts ``given``."""
    tokenizer = loading(AutoTokenizer.from_pretrained, path)
    begun = {tuple(text.ids[: text.start].tolist()) for text in given}
    found = [
        item
        for item in prompt_pool(2 * EVALUATION_PROMPTS, plan.seed)
        if tuple(encode_prompt(tokenizer, item.prompt, mode_for(tokenizer, item))) not in begun
    ]
    return found[:EVALUATION_PROMPTS]


def _written(work: Path) -> list[WrittenText]:
    """What the target has written for this training, as a table counts it."""
    return [WrittenText(item.ids.numpy(), item.start + 1) for item in read_text(work / "text")]


def _count(target: PreTrainedModel, texts: list[WrittenText], out: Path) -> dict[str, Any]:
    """Count ``texts`` into a table and save it; how it does on held-out text, and its size."""
    vocabulary = target.config.get_text_config().vocab_size
    held_out = texts[::HELD_OUT_EVERY]
    others = [item for index, item in enumerate(texts) if index % HELD_OUT_EVERY] or held_out
    tried = count_n_grams(others, vocabulary)
    worth = calibration(tried, held_out[1::2])
    table = count_n_grams(texts, vocabulary).with_chances(worth)
    table.save(out)
    tokens = sum(len(text.ids) - text.start for text in texts)
    return {"tokens": tokens, "entries": len(table), **hits(tried.with_chances(worth), held_out[::2])}


def _new_pace(plan: Plan, files: TargetFiles, work: Path, begun: float) -> Pace:
    """Try what this machine does fastest, settle the stages' sizes and times, and pin them."""
    print("Trying which arithmetic is fastest here.")
    try:
        trial = _trial(plan, files)
        used_s = clock.now() - begun + CLOSING_SHARE * 60 * (plan.minutes or 0.0)
        if plan.minutes is None:
            pace = pace_for_steps(trial, SHARD, plan.prompts, Recipe.batch_tokens, Recipe.warmup_steps)
        else:
            pace = pace_for_minutes(trial, plan.minutes, used_s, EVALUATION_PROMPTS)
    except UserError:
        if not (work / "text").exists():
            # Nothing was begun: another attempt need not ask for the same.
            (work / PLAN).unlink()
        raise
    print(pace.sentence)
    if plan.minutes is not None and plan.text is None:
        print(outlook(pace, plan.minutes, used_s))
    pin_pace(pace, work)
    return pace


def _trial(plan: Plan, files: TargetFiles) -> Trial:
    begun = clock.now()
    target = files.plain()
    load_s = clock.now() - begun
    text, taps = target.config.get_text_config(), _taps(plan, target)
    learning: Speeds = {}
    if plan.kind != N_GRAM:
        head = torch.arange(min(plan.head, text.vocab_size), device=files.place)
        features = len(taps) * text.hidden_size
        student = _begun(plan, target) or cut_student(plan.kind, target, plan.layers, head, plan.seed)
        learning = try_learning(student, learners(files.place), features)
    names = writers(target)
    del target
    longest_s = longest_step_s(plan.minutes, plan.max_new_tokens)
    return Trial(try_writing(files, names, taps, longest_s), learning, load_s, longest_s)


def _with_time_left(plan: Plan, pace: Pace, work: Path, begun: float) -> Pace:
    """``pace`` with the time that writing has left for learning, pinned, unless learning is under way."""
    if plan.minutes is None or (work / CHECKPOINT).is_file():
        return pace
    end = plan.minutes * 60 * (1 - CLOSING_SHARE) - pace.evaluation_s
    pace = replace(pace, learning_s=max(1.0, begun + end - clock.now()))
    pin_pace(pace, work)
    return pace


def _evaluation_end(plan: Plan, pace: Pace, begun: float) -> float:
    """When the evaluation ends, on ``clock.now``; a resumed training has half of its time at least."""
    if plan.minutes is None:
        return math.inf
    now, whole = clock.now(), plan.minutes * 60
    most = pace.evaluation_s + CLOSING_SHARE * whole
    return now + min(most, max(begun + whole - now, pace.evaluation_s / 2))


def _pin(plan: Plan, work: Path, resume: bool) -> None:
    """Begin a new training in an empty place, or make sure that this is the one begun there."""
    path = work / PLAN
    if path.exists() and not resume:
        raise UserError(f"{work.parent} holds a training already; add --resume or choose another --out.")
    if path.exists():
        # A training begun before texts or a start could be given has none.
        if {"text": None, "start": None} | json.loads(path.read_text(encoding="utf-8")) != asdict(plan):
            raise UserError(
                f"{work.parent} holds a training with other settings; repeat them or choose another --out."
            )
        return
    work.mkdir(parents=True, exist_ok=True)
    _write_json(path, asdict(plan))


def _write(plan: Plan, pace: Pace, files: TargetFiles, pool: list[PoolPrompt], work: Path) -> None:
    target = files.in_arithmetic(pace.writing)
    tokenizer = loading(AutoTokenizer.from_pretrained, files.path)
    write_text(
        target,
        [encode_prompt(tokenizer, item.prompt, mode_for(tokenizer, item)) for item in pool],
        eos_ids_of(target, tokenizer),
        work / "text",
        plan.max_new_tokens,
        plan.seed,
        taps=_taps(plan, target),
        seconds=pace.writing_s,
        rows=pace.rows,
        # As a decoder in bf16 will have them; in any arithmetic they are these but for rounding.
        states_as=torch.bfloat16,
    )


def _label(plan: Plan, pace: Pace, files: TargetFiles, texts: list[WrittenText], work: Path) -> None:
    target = files.in_arithmetic(pace.writing)
    label_texts(
        target,
        texts,
        work / "text",
        plan.seed,
        most=None if plan.steps is None else plan.prompts,
        taps=_taps(plan, target),
        seconds=pace.writing_s,
        states_as=torch.bfloat16,
    )


def _taps(plan: Plan, target: PreTrainedModel) -> tuple[int, ...]:
    """Layers whose states are kept with the text."""
    return default_taps(target.config.get_text_config().num_hidden_layers) if plan.kind == FEATURE else ()


def _student_of_text(plan: Plan, target: PreTrainedModel, text: list) -> tuple[AnyStudent, float]:
    """A student to train on ``text``, and the share of it that its head covers."""
    student = _begun(plan, target)
    if student is None:
        id_map = frequent_ids(text, plan.head).to(target.device)
        student = cut_student(plan.kind, target, plan.layers, id_map, plan.seed)
    return student, coverage(text, student.id_map)


def _begun(plan: Plan, target: PreTrainedModel) -> AnyStudent | None:
    """The draft that the training goes on from, if it does."""
    return None if plan.start is None else student_from(Path(plan.start), plan.kind, target)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
