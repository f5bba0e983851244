"""A draft on another device than its target, in every kind of job."""

import pytest
import torch
from helpers.labelled import Labels
from helpers.tiny import PLANTED_V, byte_tokenizer, nearby, tiny_llama
from torch import nn

from specdemo.lab.conditions import CONDITIONS
from specdemo.lab.points import EXPERIMENTS
from specdemo.lab.throughput import measure_batches
from specdemo.models.fused_llama import FusedLlama
from specdemo.pairs.calibrate import PassCosts
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.pair import Pair
from specdemo.quiz.questions import QUESTIONS
from specdemo.records.pieces import PieceTable
from specdemo.records.trace import Calibration
from specdemo.service.jobs import JOB_SPECS, checked, perform

HERE, THERE = torch.device("xpu:0"), torch.device("xpu:1")
RUN = {"prompt": "abcabcab", "mode": "raw", "max_new_tokens": 8, "draft_alone": True}
SAMPLED = {"temperature": 0.8, "rule": "rejection"}
DISTRIBUTION = {"proof": "distribution", "prompt": "abc", "draws": 20}
JOBS = [
    ("run", RUN),
    ("run", RUN | SAMPLED | {"k": "auto"}),
    ("run", RUN | SAMPLED | {"rule": "shared-noise", "drafter": "lookup+model"}),
    ("run", RUN | {"drafter": "early-exit"}),
    ("run", RUN | {"drafter": "prompt-lookup"}),
    ("play", {"text": "abc", "draft": "de"}),
    ("class", {"text": "abc", "drafts": ["de", "f"]}),
    ("prove", DISTRIBUTION),
    ("prove", DISTRIBUTION | {"rule": "no-residual"}),
]
LONG_JOBS = [
    ("calibrate", {}),
    ("prove", {"proof": "greedy", "prompts": 1}),
    ("prove", {"proof": "shared-noise", "prompts": 1}),
    *(("measure", {"experiment": name, "max_new_tokens": 4, "prompts": 1}) for name in EXPERIMENTS),
    *(("measure", {"experiment": name, "max_new_tokens": 4}) for name in CONDITIONS),
    *(("quiz", {"question": number}) for number in range(1, len(QUESTIONS) + 1)),
]


def test_every_kind_of_job_is_tried():
    assert {kind for kind, _ in JOBS + LONG_JOBS} == set(JOB_SPECS)


def placed(model: nn.Module, device: torch.device) -> nn.Module:
    """Return the model on a device that need not exist; call it while ``Labels`` are open."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = nn.Parameter(weight.data.to(device), requires_grad=False)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = buffer.to(device)
    return model


@pytest.fixture
def apart(monkeypatch):
    """A pair on two devices, whose costs are given."""
    monkeypatch.setattr(torch, "Generator", lambda *_, made=torch.Generator: made())
    tokenizer = byte_tokenizer()
    target = tiny_llama(len(tokenizer), 0, torch.float32, spread=0.4)
    draft, id_map = nearby(target, 1, 0.05), torch.arange(len(tokenizer) - 4)
    draft.lm_head = nn.Linear(16, len(id_map), bias=False)
    draft.lm_head.weight.data = target.lm_head.weight.data[: len(id_map)]
    target, draft = FusedLlama(target), FusedLlama(draft)
    costs = Calibration(step_s=1e-3, c=0.1, v=PLANTED_V, row_floor=1)
    monkeypatch.setattr(Lanes, "calibrate", lambda *_: costs)
    monkeypatch.setattr(PassCosts, "of_target", lambda *_: costs)
    with Labels():
        yield Pair(
            target_name="tiny target",
            draft_name="tiny draft",
            target=placed(target, HERE),
            draft=placed(draft, THERE),
            id_map=id_map.to(THERE),
            tokenizer=tokenizer,
            precision="fp32",
            pieces=PieceTable(tokenizer),
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "request_"),
    [*JOBS, *LONG_JOBS],
    ids=lambda value: str(value)[:60],
)
def test_target_and_draft_may_be_on_two_devices(apart, kind, request_):
    assert (apart.device, apart.draft_device) == (HERE, THERE)
    events = list(perform(apart, checked(kind, request_), lambda: False))
    assert events and all(event["type"] != "error" for event in events)


def test_passes_over_batches_are_measured_on_each_models_device(apart):
    [point] = measure_batches(apart, 2, 0.5, rows=(2,))
    assert point.rows == 2 and point.c > 0
