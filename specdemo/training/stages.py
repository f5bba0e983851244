"""The stages of a training. Every stage saves files in ``OUT/work``, so that a training can be resumed."""

import ctypes
import json
import math
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

from specdemo.asset_paths import BUILT_IN
from specdemo.models.feature_draft import default_taps
from specdemo.pairs.builtin_target import mended_target, printing
from specdemo.pairs.hardware import chosen_device
from specdemo.pairs.model_loader import loading
from specdemo.pairs.pair import eos_ids_of
from specdemo.records.limits import UserError
from specdemo.training.batched import batch_precision, load_target, target_folder
from specdemo.training.budget import (
    BATCH_TOKENS,
    EVALUATION_SHARE,
    FEATURE,
    MODEL,
    N_GRAM,
    PLAN,
    WRITING_SHARE,
    TrainingPlan,
    check_plan,
    now,
    save_plan,
)
from specdemo.training.distil import CHECKPOINT, Recipe, coverage, distil, frequent_ids
from specdemo.training.evaluation import evaluate_draft, write_card, write_curve
from specdemo.training.labelled_text import label_texts, load_saved, read_text, seconds_spent, write_text
from specdemo.training.n_grams import count_and_measure
from specdemo.training.students import (
    Student,
    fit_student_screen,
    load_student,
    new_student,
    save_student,
)
from specdemo.training.text_files import WrittenText, file_error, load_texts
from specdemo.training.training_prompts import pool_ids, prompt_pool

EVALUATION_PROMPTS = 24
# With fewer tokens of text, a training with ``--minutes`` is refused, or its draft is poor.
MIN_TOKENS, GOOD_TOKENS = 1_000, 100_000
# A short training with ``--minutes`` uses smaller batches, to reach about ``TARGET_STEPS`` steps.
TARGET_STEPS, MIN_BATCH, BATCH_UNIT = 200, 512, 256
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of glibc's ``mallopt``


def train(plan: TrainingPlan, out: Path, device: str | None, resume: bool) -> dict[str, Any]:
    """Run every stage that is not finished yet, and return the figures of the draft."""
    _keep_freed_memory()
    try:
        return _run_stages(plan, out, device, resume)
    except OSError as error:
        raise file_error(out, error) from error
    except UserError as error:
        if plan.target == BUILT_IN and mended_target(printing()):
            raise UserError(
                "The built-in target's files were damaged and are repaired now; run the same command again."
            ) from error
        raise


def _keep_freed_memory() -> None:
    """Configure glibc to keep freed memory for later allocations.

    A training step frees and allocates blocks of 100 MB. By default glibc returns each block to the system,
    which zeroes its pages again: half the time of a step on a CPU.
    """
    with suppress(OSError, AttributeError):
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_MAX, 0)
        libc.mallopt(M_TRIM_THRESHOLD, -1)


def _run_stages(plan: TrainingPlan, out: Path, device: str | None, resume: bool) -> dict[str, Any]:
    begun, work = now(), out / "work"
    check_plan(plan, work, resume)
    # Find damaged files of an interrupted training before anything is loaded.
    read_text(work / "text")
    seconds_spent(work / "text")
    if (work / CHECKPOINT).is_file():
        load_saved(work / CHECKPOINT)
    given = load_texts(Path(plan.text), plan.target) if plan.text is not None else None
    place, path = chosen_device(device), target_folder(plan.target)
    tokenizer = loading(AutoTokenizer.from_pretrained, path)
    save_plan(plan, work)

    # 1. Write or read text, unless there is a checkpoint: other text would change its split and batches.
    if given is None:
        pool = prompt_pool(plan.prompts + EVALUATION_PROMPTS, plan.seed)
        unseen = pool[plan.prompts :]
    else:
        # Evaluate only on prompts that are not in the given text.
        pool = prompt_pool(2 * EVALUATION_PROMPTS, plan.seed)
        known = {tuple(text.ids[: text.start].tolist()) for text in given}
        unseen = [item for item in pool if tuple(pool_ids(tokenizer, item)) not in known][:EVALUATION_PROMPTS]
    if not (work / CHECKPOINT).is_file() and (given is None or plan.kind != N_GRAM):
        target, taps = _text_writer(plan, path, place, work)
        seconds = plan.seconds(WRITING_SHARE if plan.kind != N_GRAM else 1 - EVALUATION_SHARE)
        if given is not None:
            limit = None if plan.steps is None else plan.prompts
            label_texts(target, given, work / "text", plan.seed, taps, seconds, limit)
        else:
            prompts = [pool_ids(tokenizer, item) for item in pool[: plan.prompts]]
            eos_ids = eos_ids_of(target, tokenizer)
            write_text(target, prompts, eos_ids, work / "text", plan.max_new_tokens, plan.seed, taps, seconds)
        del target

    # 2. Train
    figures = _count(plan, path, given, out) if plan.kind == N_GRAM else _distil(plan, path, place, out)

    # 3. Evaluate
    seconds = plan.seconds(EVALUATION_SHARE)
    evaluation = evaluate_draft(plan.target, plan.kind, out, unseen, device, seconds)
    facts = {**evaluation, **figures, "seconds": now() - begun}
    (work / "evaluation.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    write_card(plan, facts, out)
    return facts


def _text_writer(
    plan: TrainingPlan, path: str, place: torch.device, work: Path
) -> tuple[PreTrainedModel, tuple[int, ...]]:
    """Return the target in the fastest precision for text, and the layers whose states are saved."""
    precision = batch_precision(place)
    target = load_target(path, place, precision)
    config = target.config.get_text_config()
    if plan.kind != N_GRAM and not (work / "text").exists():
        try:
            _student(plan, target, torch.arange(min(plan.head, config.vocab_size)))
        except UserError:
            (work / PLAN).unlink()  # there is no text yet, so another attempt may change the settings
            raise
    taps = default_taps(config.num_hidden_layers) if plan.kind == FEATURE else ()
    return target, taps


def _student(plan: TrainingPlan, target: PreTrainedModel, id_map: torch.Tensor) -> Student:
    """Return the draft with which the training starts; a new draft has the vocabulary ``id_map``."""
    if plan.start is not None:
        return load_student(Path(plan.start), plan.kind, target)
    return new_student(plan.kind, target, plan.layers, id_map.to(target.device), plan.seed)


def _distil(plan: TrainingPlan, path: str, place: torch.device, out: Path) -> dict[str, Any]:
    text = read_text(out / "work" / "text")
    tokens = sum(len(item.output) for item in text)
    _check_size(plan, tokens)
    student = _student(plan, load_target(path, place), frequent_ids(text, plan.head))
    recipe = _recipe(plan, place, tokens, seconds_spent(out / "work" / "text"))
    quality = distil(student, text, recipe, out / "work")
    fit_student_screen(student, text)
    save_student(student, out)
    write_curve(out / "work")
    head = {"head": len(student.id_map), "coverage": coverage(text, student.id_map)}
    return {**asdict(quality), **head, "tokens": tokens, "training_precision": recipe.precision}


def _recipe(plan: TrainingPlan, place: torch.device, tokens: int, spent: float) -> Recipe:
    """Return the hyperparameters for ``tokens`` tokens of text, which took ``spent`` seconds to prepare."""
    batch_tokens, warmup_steps, seconds = BATCH_TOKENS, Recipe.warmup_steps, None
    if plan.minutes is not None:
        # Training has time for about two passes over the text.
        batch = 2 * tokens // TARGET_STEPS // BATCH_UNIT * BATCH_UNIT
        batch_tokens = min(BATCH_TOKENS, max(MIN_BATCH, batch))
        warmup_steps = min(warmup_steps, 2 * tokens // batch_tokens // 10)
        seconds = 60 * plan.minutes * (1 - EVALUATION_SHARE) - spent
    rate = 8e-4 if plan.kind == MODEL else 2e-3
    if plan.start is not None:
        rate /= 2  # a high rate would first undo what the draft has learned
    return Recipe(
        steps=plan.steps,
        seconds=seconds,
        batch_tokens=batch_tokens,
        # Adam's steps have noise proportional to 1 ÷ √(batch size), so the rate grows with √(batch size).
        learning_rate=rate * (batch_tokens / BATCH_TOKENS) ** 0.5,
        warmup_steps=warmup_steps,
        seed=plan.seed,
        precision="bf16" if batch_precision(place) == "bf16" else "fp32",
    )


def _count(plan: TrainingPlan, path: str, given: list[WrittenText] | None, out: Path) -> dict[str, Any]:
    written = read_text(out / "work" / "text") if given is None else []
    texts = given or [WrittenText(item.ids.numpy(), item.start + 1) for item in written]
    _check_size(plan, sum(len(text.own) for text in texts))
    vocabulary = loading(AutoConfig.from_pretrained, path).get_text_config().vocab_size
    table, figures = count_and_measure(texts, vocabulary)
    table.save(out)
    return {**figures, "training_precision": "none, the text is counted"}


def _check_size(plan: TrainingPlan, tokens: int) -> None:
    """Raise ``UserError`` if ``--minutes`` gave too little text; print a note if the draft will be poor."""
    if plan.minutes is None or plan.text is not None or tokens >= GOOD_TOKENS:
        return
    enough = math.ceil(plan.minutes * GOOD_TOKENS / max(1, tokens))
    if tokens < MIN_TOKENS:
        raise UserError(
            f"In {plan.minutes:g} minutes the target wrote only {tokens:,} tokens of text, too "
            f"few for a draft; use --minutes {enough} and another folder for --out."
        )
    print(
        f"{tokens:,} tokens of text are few for a good draft; --minutes {enough} would produce "
        f"{GOOD_TOKENS:,}."
    )
