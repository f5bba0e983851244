"""Faults of a device: each ends in one sentence, keeps no memory, and the next run is a good one."""

import gc
import re
import threading
import weakref
from collections import defaultdict
from typing import Any

import pytest
import torch
from helpers.tiny import TableRuntime, config_for, service_of, tiny_pair
from helpers.waiting import PATIENCE_S
from torch import Tensor

from specdemo.drafters.draft_model import DraftModelDrafter
from specdemo.engine.speculate import PROMPT_PART, never, speculate
from specdemo.pairs.pair import Pair
from specdemo.pairs.presets import OfferedPairs
from specdemo.records.limits import UserError
from specdemo.records.trace import Rule
from specdemo.service.jobs import JobKind, devices_answer
from specdemo.service.service import RESTARTING, Service, local_service

pytestmark = pytest.mark.usefixtures("one_thread")
REQUEST = {"prompt": "abc", "mode": "raw", "max_new_tokens": 12}
LACKS_MEMORY = r"ran out of memory; ask for fewer tokens or a shorter prompt, or try again later\.$"


@pytest.fixture
def pair() -> Pair:
    return tiny_pair()


def ids(events: Any) -> list[int]:
    """Return the ids that the speculative lane of a run emitted."""
    rounds = [event["round"] for event in events if event.get("lane") == "speculative"]
    assert rounds[-1]["finish"] == "length"
    kept = [[token["id"] for token in r["drafted"] if token["status"] == "accepted"] for r in rounds]
    own = [[r["emission"]["id"]] if r["emission"] else [] for r in rounds]
    return [token for drafted, last in zip(kept, own, strict=True) for token in (*drafted, *last)]


def run_ids(service: Service, **changes: Any) -> list[int]:
    return ids(service.events(JobKind.RUN, REQUEST | changes, never))


def refusal(service: Service, **changes: Any) -> str:
    """Return the one sentence that refuses or ends a run."""
    with pytest.raises(UserError) as refused:
        list(service.events(JobKind.RUN, {**REQUEST, **changes}, never))
    sentence = str(refused.value)
    assert "\n" not in sentence and sentence.endswith(".")
    return sentence


class Failing:
    """An operation of torch that fails at its ``nth`` use and every later one until it is mended."""

    def __init__(self, operation: Any, nth: int, error: Exception):
        self._operation, self._left, self._error = operation, nth, error
        self.mended = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._left -= 1
        if self._left < 0 and not self.mended:
            raise self._error
        return self._operation(*args, **kwargs)


def failing_allocator(monkeypatch: Any, nth: int, error: Exception) -> Failing:
    """Leave no memory for the ``nth`` cache buffer and later ones."""
    failing = Failing(Tensor.new_zeros, nth, error)
    # A plain function, since only that is bound to the tensor it is called on.
    monkeypatch.setattr(Tensor, "new_zeros", lambda *args, **kwargs: failing(*args, **kwargs))
    return failing


@pytest.mark.parametrize("nth", [0, 5, 9])
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"),
        MemoryError(),
    ],
    ids=["cuda", "cpu", "python"],
)
def test_without_memory_the_run_ends_in_a_sentence_and_the_next_one_works(pair, monkeypatch, nth, error):
    service = service_of(pair)
    expected = run_ids(service)
    allocator = failing_allocator(monkeypatch, nth, error)
    assert re.search(LACKS_MEMORY, refusal(service))
    allocator.mended = True
    assert run_ids(service) == expected


def test_a_failed_run_keeps_no_memory(pair, monkeypatch):
    service = service_of(pair)
    list(service.events(JobKind.RUN, REQUEST, never))
    made: list[Any] = []
    original = Tensor.new_zeros

    def noted(*args: Any, **kwargs: Any) -> Tensor:
        buffer = original(*args, **kwargs)
        made.append(weakref.ref(buffer))
        if len(made) == 6:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return buffer

    monkeypatch.setattr(Tensor, "new_zeros", noted)
    gc.disable()  # so that only reference counts free memory
    try:
        with pytest.raises(UserError, match=LACKS_MEMORY) as refused:
            list(service.events(JobKind.RUN, REQUEST, never))
        assert len(made) == 6 and not any(buffer() is not None for buffer in made)
        assert refused.value.__cause__ is None
    finally:
        gc.enable()


@pytest.mark.slow
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("model", ["target", "draft"])
@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize(("drafter", "k"), [("draft-model", 3), ("lookup+model", 3), ("draft-model", "auto")])
def test_logits_that_are_no_numbers_end_the_run_before_anything_is_drawn(pair, drafter, k, rule, model, bad):
    service = service_of(pair)
    expected = run_ids(service)
    passes = 0

    def spoil(_module: Any, _inputs: Any, logits: Tensor) -> Tensor:
        nonlocal passes
        passes += 1
        return torch.full_like(logits, bad) if passes > 3 else logits

    hook = getattr(pair, model).lm_head.register_forward_hook(spoil)
    temperature = 0.0 if rule is Rule.GREEDY else 0.8
    asked = {**REQUEST, "drafter": drafter, "k": k, "rule": rule, "temperature": temperature}
    events = []
    with pytest.raises(UserError, match=r"NaN or infinite logits; try another precision\.$"):
        for event in service.events(JobKind.RUN, {**asked, "max_new_tokens": 200}, never):
            events.append(event)
    hook.remove()
    shown = [event["round"]["emission"]["prob"] for event in events if event["type"] == "round"]
    assert all(0 <= prob <= 1 for prob in shown)
    assert run_ids(service) == expected


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_invalid_logits_of_a_draft_with_a_reduced_head_end_the_run(rule, bad):
    vocab, kept = 5, torch.tensor([0, 2, 4])
    target = TableRuntime(defaultdict(lambda: torch.zeros(vocab)))
    draft = TableRuntime(defaultdict(lambda: torch.full((len(kept),), bad)))
    draft.id_map = kept
    config = config_for(rule, max_new_tokens=8, k=3)
    with pytest.raises(FloatingPointError, match="NaN or infinite logits"):
        list(speculate(target, DraftModelDrafter(draft), [1, 2], config))


def reloading() -> tuple[Service, list[Pair]]:
    """A service, and the pairs that it has loaded."""
    loaded = []

    def load(_name: str, _progress: Any) -> Pair:
        loaded.append(tiny_pair())
        return loaded[-1]

    return local_service(load), loaded


def test_after_a_device_is_lost_the_models_are_loaded_again(monkeypatch):
    service, loaded = reloading()
    expected = run_ids(service)
    gone = torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nMore.")
    allocator = failing_allocator(monkeypatch, 0, gone)
    assert "device failed (CUDA error: an illegal memory access was encountered)" in refusal(service)
    allocator.mended = True
    assert run_ids(service) == expected and len(loaded) == 2


LOST = [
    torch.AcceleratorError("CUDA error: device-side assert triggered\nMore."),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
]


@pytest.mark.parametrize("gone", LOST, ids=["accelerator", "library"])
def test_a_device_that_no_longer_answers_is_probed_once_and_ends_the_service(monkeypatch, gone):
    probes = []

    def give_back() -> None:
        raise torch.AcceleratorError("CUDA error: device-side assert triggered")

    service, loaded = reloading()
    run_ids(service)
    failing_allocator(monkeypatch, 0, gone)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", give_back)
    monkeypatch.setattr("specdemo.service.jobs.devices_answer", lambda: bool(probes.append(1)))
    assert "device failed (CUDA error: " in refusal(service)
    assert service.lost and service.state == "lost"
    assert refusal(service) == RESTARTING and len(loaded) == len(probes) == 1


def test_a_load_that_fails_on_a_lost_device_ends_the_service_as_well(monkeypatch):
    def load(_name: str, _progress: Any) -> Pair:
        raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

    service = local_service(load)
    assert "could not be loaded (AcceleratorError" in refusal(service) and not service.lost
    monkeypatch.setattr("specdemo.service.pair_pool.devices_answer", lambda: False)
    refusal(service)
    assert service.lost


@pytest.mark.parametrize(
    ("failure", "answers"),
    [(None, True), (torch.AcceleratorError("CUDA error"), False), (torch.OutOfMemoryError("CUDA"), True)],
    ids=["well", "lost", "full"],
)
def test_each_gpu_in_use_is_asked_for_a_number(monkeypatch, failure, answers):
    asked = []

    def ones(_size: int, device: str) -> Any:
        asked.append(device)
        if failure and device == "cuda:2":
            raise failure
        return torch.zeros(1)

    assert devices_answer(), "no GPU is in use here"
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: index)
    monkeypatch.setattr(torch, "ones", ones)
    assert devices_answer() is answers and asked == ["cuda:1", "cuda:2"]


def test_the_state_follows_the_service_from_load_to_end():
    gate, failing = threading.Event(), [True]

    def load(_name: str, _progress: Any) -> Pair:
        gate.wait(PATIENCE_S)
        if failing:
            raise UserError("Not there; put it there.")
        return tiny_pair()

    service = local_service(load)
    service.load()
    assert service.state == "loading"
    gate.set()
    assert refusal(service) == "Not there; put it there." and service.state == "failed"
    failing.clear()
    assert run_ids(service) and service.state == "ready"
    service.close(0)
    assert refusal(service) == RESTARTING and service.state == "closing"


def test_a_fault_inside_the_program_reaches_its_visitor_and_nobody_else(pair, monkeypatch):
    service = service_of(pair)
    expected = run_ids(service)
    allocator = failing_allocator(monkeypatch, 0, RuntimeError("something else"))
    with pytest.raises(UserError, match=r"failed inside the program \(RuntimeError\)") as raised:
        list(service.events(JobKind.RUN, REQUEST, never))
    assert str(raised.value.__cause__) == "something else"
    allocator.mended = True
    assert run_ids(service) == expected


def test_a_pair_that_is_not_offered_is_refused_in_a_sentence(pair):
    service = service_of(pair)
    with pytest.raises(UserError, match=r"Unknown pair of models 'other'; choose one of: built-in\.$"):
        list(service.events(JobKind.RUN, REQUEST, never, "other"))
    assert ids(service.events(JobKind.RUN, REQUEST, never, "built-in")) == ids(
        service.events(JobKind.RUN, REQUEST, never, "")
    )


@pytest.mark.parametrize("asked", ["built-in", "", None])
def test_a_run_records_the_name_by_which_its_pair_was_asked_for(pair, asked):
    events = service_of(pair).events(JobKind.RUN, REQUEST, never, asked)
    (start,) = (event for event in events if event["type"] == "start")
    assert start["run"]["pair"] == pair.names | ({"name": asked} if asked else {})


def test_each_visitor_gets_the_pair_they_asked_for():
    pairs = {"built-in": tiny_pair(), "second": tiny_pair(seed=3)}
    offer = OfferedPairs(titles={"built-in": "One", "second": "Other"})
    service = local_service(lambda name, _progress: pairs[name], offer)
    alone = {name: run_ids(service_of(pair)) for name, pair in pairs.items()}
    assert alone["built-in"] != alone["second"]
    for name in ("second", "built-in", "second"):
        assert ids(service.events(JobKind.RUN, REQUEST, never, name)) == alone[name]


def test_visitors_at_once_get_what_each_would_get_alone(pair):
    service = service_of(pair)
    sampled = {"temperature": 1.0, "rule": "rejection", "max_new_tokens": 24}
    alone = [run_ids(service, **sampled, seed=seed) for seed in range(6)]
    assert len(set(map(tuple, alone))) == len(alone)
    together: dict[int, list[int]] = {}

    def visit(seed: int) -> None:
        together[seed] = run_ids(service, **sampled, seed=seed)

    visitors = [threading.Thread(target=visit, args=(seed,)) for seed in range(6)]
    for visitor in visitors:
        visitor.start()
    for visitor in visitors:
        visitor.join()
    assert [together[seed] for seed in range(6)] == alone


def test_a_visitor_who_leaves_while_the_prompt_is_read_frees_the_device(pair):
    service = service_of(pair)
    long = REQUEST | {"prompt": "a" * (2 * PROMPT_PART)}
    leaving = service.events(JobKind.RUN, long, never)
    shares = []
    while not shares:
        event = next(leaving)
        assert event["type"] == "progress"
        shares += [event["fraction"]] if event["text"] == "Reading the prompt" else []
    leaving.close()
    assert shares == [0.25]
    assert run_ids(service) == run_ids(service_of(pair))
