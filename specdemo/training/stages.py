"""From a target to a draft folder the app can load: pool, text, distillation, evaluation, card.

Every stage leaves files in ``OUT/work`` and is skipped or continued when they are there. What was
asked for is pinned in ``plan.json``, so that a resumed training is the one that was begun.
"""

import ctypes
import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from specdemo.draft_model import save_draft, slice_of_target
from specdemo.feature_draft import default_taps, feature_draft_for, save_feature_draft
from specdemo.fetch import embedded_target, printing
from specdemo.limits import UserError
from specdemo.models import EMBEDDED, chosen_device, loading
from specdemo.pair import encode_prompt, eos_ids_of
from specdemo.training.distil import Recipe, distil, frequent_ids
from specdemo.training.evaluate import evaluate_draft
from specdemo.training.pool import PoolPrompt, mode_for, prompt_pool
from specdemo.training.report import write_card, write_curve
from specdemo.training.students import FeatureStudent, ModelStudent, Student
from specdemo.training.write import read_text, write_text

MODEL, FEATURE = "model", "feature"
PLAN = "plan.json"
POOL_FOR_MINUTES = 60_000
"""Prompts on hand where time, not steps, ends the writing."""
TOKENS_PER_PROMPT = 120
EPOCHS = 3
"""Passes over the text that a training of ``--steps`` is planned for."""
WRITING_SHARE, LEARNING_SHARE = 0.5, 0.45
"""Shares of ``--minutes``; loading and evaluation take the rest."""
UNROLLED_STEPS = 3
EVALUATION_PROMPTS = 24
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of glibc's ``mallopt``."""


@dataclass(frozen=True)
class Plan:
    """One training as asked for; a resumed one must ask for the same.

    Attributes:
        target: ``embedded``, a hub id, or a folder.
        kind: ``model`` or ``feature``.
        steps, minutes: What ends it; one of them is None.
        layers: Depth of a draft model.
        head: Size of the draft's vocabulary.
        max_new_tokens: Longest continuation.
    """

    target: str
    kind: str
    steps: int | None
    minutes: float | None
    layers: int = 2
    head: int = 12_288
    max_new_tokens: int = 128
    seed: int = 0

    @property
    def prompts(self) -> int:
        """How many prompts the pool needs."""
        if self.steps is None:
            return POOL_FOR_MINUTES
        positions = self.steps * Recipe.batch_tokens
        return max(1, -(-positions // (EPOCHS * TOKENS_PER_PROMPT)))

    @property
    def recipe(self) -> Recipe:
        """How the student is trained."""
        seconds = 0.0 if self.minutes is None else self.minutes * 60 * LEARNING_SHARE
        rate = 8e-4 if self.kind == MODEL else 2e-3
        return Recipe(
            steps=self.steps, seconds=seconds, objective="hybrid", learning_rate=rate, seed=self.seed
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
        where = error.filename or out
        raise UserError(
            f"Cannot use {where}: {error.strerror or error}; free some space and repeat with --resume, or "
            "choose another --out."
        ) from error


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
    _pin(plan, work, resume)
    begun = time.monotonic()
    path = str(embedded_target(printing())) if plan.target == EMBEDDED else plan.target
    place = chosen_device(device)
    target = loading(AutoModelForCausalLM.from_pretrained, path, dtype=torch.bfloat16).to(place).eval()
    tokenizer = loading(AutoTokenizer.from_pretrained, path)
    pool = prompt_pool(plan.prompts + EVALUATION_PROMPTS, plan.seed)
    _write(plan, target, tokenizer, pool[: plan.prompts], work)
    text = read_text(work / "text")
    student, coverage = _student(plan, target, text)
    target.set_attn_implementation("sdpa")
    quality = distil(student, text, plan.recipe, work)
    _save(student, out)
    write_curve(work)
    del target
    evaluation = evaluate_draft(plan.target, plan.kind, out, pool[plan.prompts :], device)
    facts = {
        **evaluation,
        **asdict(quality),
        "coverage": coverage,
        "tokens": sum(len(item.output) for item in text),
        "seconds": time.monotonic() - begun,
    }
    _write_json(work / "evaluation.json", facts)
    write_card(plan, facts, out)
    return facts


def _pin(plan: Plan, work: Path, resume: bool) -> None:
    """Begin a new training in an empty place, or make sure that this is the one begun there."""
    path = work / PLAN
    if path.exists() and not resume:
        raise UserError(f"{work.parent} holds a training already; add --resume or choose another --out.")
    if path.exists():
        if json.loads(path.read_text(encoding="utf-8")) != asdict(plan):
            raise UserError(
                f"{work.parent} holds a training with other settings; repeat them or choose another --out."
            )
        return
    work.mkdir(parents=True, exist_ok=True)
    _write_json(path, asdict(plan))


def _write(plan: Plan, target: nn.Module, tokenizer: Any, pool: list[PoolPrompt], work: Path) -> None:
    taps = default_taps(target.config.get_text_config().num_hidden_layers) if plan.kind == FEATURE else ()
    write_text(
        target,
        [encode_prompt(tokenizer, item.prompt, mode_for(tokenizer, item)) for item in pool],
        eos_ids_of(target, tokenizer),
        work / "text",
        plan.max_new_tokens,
        plan.seed,
        taps=taps,
        seconds=None if plan.minutes is None else plan.minutes * 60 * WRITING_SHARE,
    )


def _student(plan: Plan, target: nn.Module, text: list) -> tuple[Student, float]:
    """An untrained student in fp32 whose head holds the target's most frequent tokens."""
    id_map, coverage = frequent_ids(text, plan.head)
    id_map = id_map.to(target.device)
    torch.manual_seed(plan.seed)
    if plan.kind == MODEL:
        depth = target.config.get_text_config().num_hidden_layers
        if plan.layers > depth:
            raise UserError(f"{plan.target} has {depth} layers; choose --layers from 1 to {depth}.")
        # The first layers read the text, the last speak the head's language.
        first = (plan.layers + 1) // 2
        chosen = [*range(first), *range(depth - (plan.layers - first), depth)]
        return ModelStudent(_in_fp32(slice_of_target(target, chosen, id_map))), coverage
    draft = _in_fp32(feature_draft_for(target, id_map))
    return FeatureStudent(draft, target, UNROLLED_STEPS), coverage


def _in_fp32(draft: nn.Module) -> nn.Module:
    """Own weights in fp32 for the optimiser; the borrowed embedding stays the target's."""
    for tensor in draft.own_state().values():
        if tensor.is_floating_point():
            tensor.data = tensor.data.float()
    return draft


def _save(student: Student, out: Path) -> None:
    save = save_draft if isinstance(student, ModelStudent) else save_feature_draft
    save(student.module, out)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
