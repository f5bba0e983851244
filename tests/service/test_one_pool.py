"""One thread of a server computes, so OpenMP has one pool of workers."""

import threading
from functools import wraps

import pytest
import torch
from helpers.on_disk import save
from helpers.tiny import byte_tokenizer, nearby, tiny_llama

from specdemo.engine.speculate import never
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.sources import Sources
from specdemo.service.hosting import Hosting
from specdemo.service.jobs import JOB_SPECS, JobKind

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
RUN = {"prompt": "abc", "mode": "raw", "max_new_tokens": 4, "draft_alone": True}
JOBS = {
    JobKind.RUN: RUN,
    JobKind.PROVE: {"proof": "greedy", "prompts": 1},
    JobKind.PLAY: {"text": "abc", "draft": "x"},
    JobKind.CLASS: {"text": "abc", "drafts": ["x", "y"]},
    JobKind.QUIZ: {"question": 1},
    JobKind.MEASURE: {"experiment": "overhead", "max_new_tokens": 4, "prompts": 1},
    JobKind.CALIBRATE: {},
}
THREADS = 3


@pytest.fixture
def hosting(tmp_path, monkeypatch):
    """A host with tiny models, whose visitors may name other models, also tiny."""
    tokenizer = byte_tokenizer()
    target = tiny_llama(len(tokenizer), 0, torch.float32)
    folders = [
        save(model, tokenizer, tmp_path / name)
        for name, model in {"target": target, "draft": nearby(target, 1, 0.05)}.items()
    ]
    monkeypatch.setattr(Hosting, "sources_of", lambda _self, _name: Sources(*folders, device="cpu"))
    return Hosting(target=folders[0], draft=folders[1], device="cpu", any_model=True, threads=THREADS)


@pytest.fixture
def computing(monkeypatch):
    """The threads that computed: their identity and number of OpenMP threads, by place in the program."""
    seen = {"pass": set(), "calibration": set(), "warm-up": set()}

    def watch(owner, name, place):
        plain = getattr(owner, name)

        @wraps(plain)
        def watched(*args, **kwargs):
            seen[place].add((threading.get_ident(), torch.get_num_threads()))
            return plain(*args, **kwargs)

        monkeypatch.setattr(owner, name, watched)

    watch(ModelRuntime, "forward", "pass")
    watch(ModelRuntime, "prefill", "pass")
    watch(Lanes, "calibrate_all", "calibration")
    watch(Lanes, "warm_up", "warm-up")
    return seen


def test_one_thread_of_a_server_computes_with_several_threads(hosting, computing):
    assert JOBS.keys() == JOB_SPECS.keys()
    service = hosting.service(hosting.offered_pairs())
    device = service.alone(threading.get_ident), THREADS
    for kind, raw in JOBS.items():
        list(service.events(kind, raw, never))
    *_, end = service.events(JobKind.RUN, RUN, never, "other/target, other/draft")
    assert end["type"] == "end"
    assert computing["calibration"] == computing["warm-up"] == {device}
    # A load tries the models on a thread of its own, which computes alone.
    assert {threads for _, threads in computing["pass"] - {device}} == {1}
    assert device in computing["pass"]


def test_a_run_states_the_threads_of_the_device(hosting):
    service = hosting.service(hosting.offered_pairs())
    events = service.events(JobKind.RUN, RUN, never)
    start = next(event for event in events if event["type"] == "start")
    assert start["run"]["device"].endswith(f", {THREADS} threads")
