"""Faults of a device: each ends in one sentence and one line of the log, and the next run is a good one."""

import gc
import re
import threading
import weakref
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from math import inf, nan
from typing import Any

import pytest
import torch
from helpers.reading import ids_of
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
from specdemo.service.queue import Bounds
from specdemo.service.service import RESTARTING, Service, local_service

pytestmark = pytest.mark.usefixtures("one_thread")
REQUEST = {"prompt": "abc", "mode": "raw", "max_new_tokens": 12}
LACKS_MEMORY = r"ran out of memory; ask for fewer tokens or a shorter prompt, or try again later\.$"


@pytest.fixture
def pair() -> Pair:
    return tiny_pair()


def ids(events: Any) -> list[int]:
    """The token ids of the speculative lane, which ended at its length."""
    rounds = [event["round"] for event in events if event.get("lane") == "speculative"]
    assert rounds[-1]["finish"] == "length"
    return ids_of(rounds)


def run_ids(service: Service, **changes: Any) -> list[int]:
    return ids(service.events(JobKind.RUN, REQUEST | changes, never))


def refusal(service: Service) -> str:
    with pytest.raises(UserError) as refused:
        run_ids(service)
    sentence = str(refused.value)
    assert "\n" not in sentence and sentence.endswith(".")
    return sentence


class FailingAllocator:
    """Leaves no memory for the ``nth`` cache buffer and later ones, until it is mended."""

    def __init__(self, monkeypatch: Any, nth: int, error: Exception):
        self.made: list[Any] = []
        self.mended = False
        original = Tensor.new_zeros

        def new_zeros(*args: Any, **kwargs: Any) -> Tensor:
            if len(self.made) >= nth and not self.mended:
                raise type(error)(*error.args)  # a new one each time, because an error refers to its frames
            buffer = original(*args, **kwargs)
            self.made.append(weakref.ref(buffer))
            return buffer

        monkeypatch.setattr(Tensor, "new_zeros", new_zeros)


@pytest.mark.parametrize(
    ("nth", "error", "sentence"),
    [
        (0, torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), LACKS_MEMORY),
        (5, RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), LACKS_MEMORY),
        (9, MemoryError(), LACKS_MEMORY),
        (0, RuntimeError("something else"), r"failed inside the program \(RuntimeError\)"),
    ],
    ids=["cuda", "cpu", "python", "bug"],
)
def test_a_failed_run_is_one_sentence_keeps_no_memory_and_the_next_one_works(
    pair, monkeypatch, nth, error, sentence
):
    service = service_of(pair)
    expected = run_ids(service)
    allocator = FailingAllocator(monkeypatch, nth, error)
    gc.disable()  # so that only reference counts free memory
    try:
        with pytest.raises(UserError, match=sentence) as refused:
            run_ids(service)
        assert len(allocator.made) == nth and not any(buffer() is not None for buffer in allocator.made)
        assert "\n" not in str(refused.value)
    finally:
        gc.enable()
    allocator.mended = True
    assert run_ids(service) == expected


@pytest.mark.slow
@pytest.mark.parametrize("model", ["target", "draft"])
@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize(
    ("bad", "drafter", "k"),
    [(nan, "draft-model", 3), (inf, "combined", 3), (-inf, "draft-model", "auto")],
)
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
    asked = {"drafter": drafter, "k": k, "rule": rule, "temperature": temperature, "max_new_tokens": 200}
    events = []
    with pytest.raises(UserError, match=r"NaN or infinite logits; try another precision\.$"):
        for event in service.events(JobKind.RUN, REQUEST | asked, never):
            events.append(event)
    hook.remove()
    shown = [event["round"]["emission"]["prob"] for event in events if event["type"] == "round"]
    assert all(0 <= prob <= 1 for prob in shown)
    assert run_ids(service) == expected


@pytest.mark.parametrize("rule", Rule)
@pytest.mark.parametrize("bad", [nan, inf, -inf])
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
    loaded: list[Pair] = []
    return local_service(lambda *_: loaded.append(tiny_pair()) or loaded[-1]), loaded


def test_after_a_device_is_lost_the_models_are_loaded_again(monkeypatch):
    service, loaded = reloading()
    expected = run_ids(service)
    gone = torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nMore.")
    allocator = FailingAllocator(monkeypatch, 0, gone)
    assert "device failed (CUDA error: an illegal memory access was encountered)" in refusal(service)
    allocator.mended = True
    assert run_ids(service) == expected and len(loaded) == 2


LOST = [
    torch.AcceleratorError("CUDA error: device-side assert triggered\nMore."),
    RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx`"),
]


def raising(error: BaseException) -> Any:
    def fail(*_arguments: Any, **_options: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize("gone", LOST, ids=["accelerator", "library"])
def test_a_device_that_no_longer_answers_is_probed_once_and_ends_the_service(monkeypatch, gone):
    probes: list[int] = []
    service, loaded = reloading()
    run_ids(service)
    FailingAllocator(monkeypatch, 0, gone)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", raising(LOST[0]))
    monkeypatch.setattr("specdemo.service.jobs.devices_answer", lambda: bool(probes.append(1)))
    assert "device failed (CUDA error: " in refusal(service)
    assert service.lost and service.state == "lost"
    assert refusal(service) == RESTARTING and len(loaded) == len(probes) == 1


def test_a_load_that_fails_on_a_lost_device_ends_the_service_as_well(monkeypatch):
    service = local_service(raising(LOST[0]))
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


def test_the_state_follows_the_service_from_load_to_end(pair):
    gate, failing = threading.Event(), [True]

    def load(_name: str, _progress: Any) -> Pair:
        gate.wait(PATIENCE_S)
        if failing:
            raise UserError("Not there; put it there.")
        return pair

    service = local_service(load)
    service.load()
    assert service.state == "loading"
    gate.set()
    assert refusal(service) == "Not there; put it there." and service.state == "failed"
    failing.clear()
    assert run_ids(service) and service.state == "ready"
    service.close(0)
    assert refusal(service) == RESTARTING and service.state == "closing"


def test_each_visitor_gets_the_pair_they_asked_for_and_the_run_records_its_name(pair):
    pairs = {"built-in": pair, "second": tiny_pair(seed=3)}
    offered = OfferedPairs(titles=dict.fromkeys(pairs, ""))
    service = local_service(lambda name, _progress: pairs[name], offered)
    alone = {name: run_ids(service_of(pair)) for name, pair in pairs.items()}
    assert alone["built-in"] != alone["second"]
    for asked in ("second", "built-in", "second", "", None):
        events = [*service.events(JobKind.RUN, REQUEST, never, asked)]
        assert ids(events) == alone[asked or "built-in"]
        [start] = [event for event in events if event["type"] == "start"]
        assert start["run"]["pair"] == pair.names | ({"name": asked} if asked else {})


def test_visitors_at_once_get_what_each_would_get_alone(pair):
    service = service_of(pair)
    sampled = {"temperature": 1.0, "rule": "rejection", "max_new_tokens": 12}
    alone = [run_ids(service, **sampled, seed=seed) for seed in range(4)]
    assert len(set(map(tuple, alone))) == len(alone)
    with ThreadPoolExecutor(4) as visitors:
        together = visitors.map(lambda seed: run_ids(service, **sampled, seed=seed), range(4))
    assert [*together] == alone


def test_a_visitor_who_leaves_while_the_prompt_is_read_frees_the_device(pair):
    service = service_of(pair)
    expected = run_ids(service)
    leaving = service.events(JobKind.RUN, REQUEST | {"prompt": "a" * (2 * PROMPT_PART)}, never)
    while (event := next(leaving))["text"] != "Reading the prompt":
        assert event["type"] == "progress"
    leaving.close()
    assert event["fraction"] == 0.25 and run_ids(service) == expected


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Any:
    """Do a job and return its line's kind, tokens and outcome."""
    caplog.set_level("INFO", logger="specdemo.service.service")

    def line(
        request: Mapping[str, Any] = REQUEST,
        kind: JobKind = JobKind.RUN,
        stop: Any = never,
        load: Any = lambda *_: tiny_pair(),
        events: int = 1_000,
        **bounds: Any,
    ) -> tuple[str, int, str]:
        source = local_service(load, bounds=Bounds(**bounds)).events(kind, request, stop)
        try:
            for _ in range(events):
                next(source, None)
        except UserError:
            pass
        source.close()
        [record] = [one for one in caplog.records if one.name == "specdemo.service.service"]
        found = re.fullmatch(r"job (\w+): (\d+) tokens, \d+\.\d s, (\w+)", record.getMessage())
        assert found, record.getMessage()
        return found[1], int(found[2]), found[3]

    return line


@pytest.mark.parametrize(
    ("job", "line"),
    [
        ({}, ("run", 12, "done")),
        ({"request": {"proof": "greedy", "prompts": 1}, "kind": JobKind.PROVE}, ("prove", 0, "done")),
        ({"request": REQUEST | {"k": 40}}, ("run", 0, "refused")),
        ({"request": REQUEST | {"drafter": "feature-draft"}}, ("run", 0, "refused")),
        ({"load": raising(UserError("Not there; put it there."))}, ("run", 0, "failed")),
    ],
)
def test_a_job_s_line_has_the_tokens_of_its_text_and_its_outcome(logged, job, line):
    assert logged(**job) == line


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a bug")])
def test_a_fault_is_a_failure(logged, monkeypatch, error):
    monkeypatch.setattr(Tensor, "new_zeros", raising(error))
    assert logged() == ("run", 0, "failed")


@pytest.mark.parametrize("way", ["stop", "leave", "time limit"])
def test_a_job_that_ends_early_is_stopped_and_counts_what_it_wrote(logged, way):
    asked = iter([False] * 6)
    stop = {"stop": lambda: next(asked, True)}
    ways = {"stop": stop, "leave": {"events": 10}, "time limit": {"max_seconds": 1e-2}}
    kind, tokens, outcome = logged(REQUEST | {"max_new_tokens": 500}, **ways[way])
    assert (kind, outcome) == ("run", "stopped") and tokens < 500
