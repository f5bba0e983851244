"""A host's settings: pairs that are loaded and offered, names in requests, and one computing thread."""

import subprocess
import sys
import threading
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers.lent_gpu import Lender
from helpers.on_disk import save_pair
from helpers.tiny import tiny_pair
from helpers.waiting import PATIENCE_S

from specdemo.cli.main import parsed
from specdemo.engine.speculate import never
from specdemo.models.runtime import ModelRuntime
from specdemo.pairs.lanes import Lanes
from specdemo.pairs.presets import PRESETS, OfferedPairs, preset_named
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.service import hosting
from specdemo.service.hosting import Hosting
from specdemo.service.jobs import JOB_SPECS, JobKind
from specdemo.service.queue import Bounds

pytestmark = pytest.mark.usefixtures("one_thread", "few_measurements")
GIB = 2**30
ROOT = Path(__file__).parents[2]
RUN = {"prompt": "abc", "mode": "raw", "max_new_tokens": 4}


@pytest.fixture
def roomy(monkeypatch: Any) -> None:
    monkeypatch.setattr(hosting, "free_memory", lambda _device: 200 * GIB)


def test_settings_come_from_the_command_line_then_the_environment_then_defaults(monkeypatch):
    plain = parsed(["serve"])
    assert plain.trust_proxy is None
    assert (plain.pair, plain.max_waiting, plain.max_seconds, plain.mcp) == ("built-in", 20, 300.0, False)
    for name, value in {"MAX_SECONDS": "45", "MCP": "0", "THREADS": "1", "PAIR": "gpt2-xl"}.items():
        monkeypatch.setenv(f"SPECDEMO_{name}", value)
    settings = parsed(["serve", "--pair", "gpt2-large"])
    assert (settings.pair, settings.threads) == ("gpt2-large", 1)
    assert (settings.max_seconds, settings.mcp) == (45.0, False)


@pytest.mark.parametrize(
    ("value", "on"), [("1", True), ("YES", True), ("On", True), ("False", False), (" ", False)]
)
def test_a_switch_of_the_environment_is_a_word(monkeypatch, value, on):
    switches = [name for name, default in vars(parsed(["serve"])).items() if default is False]
    assert {"mcp", "only_pair", "allow_any_model"} <= {*switches}
    for name in switches:
        monkeypatch.setenv(f"SPECDEMO_{name.upper()}", value)
    settings = vars(parsed(["serve"]))
    assert [settings[name] for name in switches] == [on] * len(switches)


def test_presets_are_offered_if_they_fit_next_to_the_default_pair(monkeypatch, roomy):
    assert list(Hosting(device="cpu").offered_pairs().titles) == [preset.name for preset in PRESETS]
    default = preset_named("built-in").needed_bytes("auto")
    small = preset_named("gpt2-large").needed_bytes("auto")
    for spare, there in ((0, True), (-1, False)):
        monkeypatch.setattr(hosting, "free_memory", lambda _device, spare=spare: default + small + spare)
        assert ("gpt2-large" in Hosting(device="cpu").offered_pairs().titles) is there
    monkeypatch.setattr(hosting, "free_memory", lambda _device: 0)
    assert list(Hosting(device="cpu").offered_pairs().titles) == ["built-in"]


def test_a_host_may_offer_one_pair_only_or_choose_the_default_pair(roomy):
    assert list(Hosting(device="cpu", only_default=True).offered_pairs().titles) == ["built-in"]
    large = Hosting(pair="qwen2.5-7b", device="cpu").offered_pairs()
    assert large.default == "qwen2.5-7b" and "built-in" in large.titles
    own = Hosting(target="/models/large", draft="/models/small", device="cpu", only_default=True)
    assert own.offered_pairs() == OfferedPairs("own", {"own": "large with small"})
    assert own.sources.target == "/models/large"
    assert Hosting(draft="none").sources.target == "built-in"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Hosting(device="cuda:9").offered_pairs(), "not available on this machine"),
        (lambda: Hosting(precision="x").offered_pairs(), "Unknown"),
        *[(lambda n=n: Bounds(n, 1.0), "^--max-waiting must be between") for n in (-1, 10**6)],
        *[(lambda s=s: Bounds(1, s), "^--max-seconds must be") for s in (0.0, float("nan"), float("inf"))],
    ],
)
def test_settings_out_of_range_are_refused(make, words):
    with pytest.raises(UserError, match=words):
        make()


def test_drafters_are_those_of_the_default_pair():
    assert "feature-draft" in Hosting().drafters and "draft-model" in Hosting().drafters
    assert "draft-model" not in Hosting(draft="none").drafters
    assert "feature-draft" not in Hosting(pair="gpt2-xl").drafters


def test_a_request_loads_the_pair_it_names(monkeypatch, roomy):
    loaded = []

    def load(sources: Sources, **_options: Any) -> Any:
        loaded.append(sources)
        return tiny_pair()

    monkeypatch.setattr(hosting, "load_sources", load)
    monkeypatch.setattr(hosting, "assemble_pair", load)
    monkeypatch.chdir(ROOT)
    host = Hosting(device="cpu", any_model=True)
    service = host.service(host.offered_pairs())
    for name in (None, "smollm2-1.7b", "some/target, some/draft"):
        assert list(service.events(JobKind.RUN, RUN, never, name))[-1]["type"] == "end"
    with pytest.raises(UserError, match="is a file or folder of this server"):
        list(service.events(JobKind.RUN, RUN, never, "assets/draft, assets/draft"))
    smollm = preset_named("smollm2-1.7b").target
    named = [("built-in", None), (smollm.name, smollm.revision), ("some/target", None)]
    assert [(sources.target, sources.target_revision) for sources in loaded] == named
    assert {sources.device for sources in loaded} == {"cpu"}


def test_the_default_pair_is_not_measured_during_a_job_of_another_pair(monkeypatch, roomy):
    measuring, measured = threading.Event(), []

    def load_default(_sources: Sources, alone: Any, **_options: Any) -> Any:
        measuring.set()
        alone(lambda: measured.append(threading.current_thread().name))
        return tiny_pair()

    monkeypatch.setattr(hosting, "load_sources", load_default)
    monkeypatch.setattr(hosting, "assemble_pair", lambda *_sources, **_options: tiny_pair())
    host = Hosting(device="cpu")
    service = host.service(host.offered_pairs())
    guest = service.events(JobKind.RUN, RUN, never, "gpt2-large")
    while next(guest)["type"] != "round":
        pass
    service.load()
    assert measuring.wait(PATIENCE_S) and not measured
    assert list(guest)[-1]["type"] == "end"
    assert list(service.events(JobKind.RUN, RUN, never))[-1]["type"] == "end"
    assert measured == ["device"]


NAMES = ["nope", "some/target", "some/target, /etc", "../../etc, some/draft", "some/target, some/../draft"]
NAMES += ["some/target, some/draft, third/one", "some/target,\nsome/draft", f"a/{'b' * 200}, some/draft"]


@pytest.mark.parametrize(
    "name", [*NAMES, "https://example.org/a, some/draft", 7, ["some/target", "some/draft"]]
)
def test_a_pair_that_is_not_offered_is_refused_whether_or_not_any_model_is_allowed(name):
    for any_model in (False, True):
        with pytest.raises(UserError, match=r"^Unknown pair .*; choose one of: built-in") as refused:
            OfferedPairs(any_model=any_model).named(name)
        assert "\n" not in str(refused.value)


def test_any_two_models_may_be_named_only_if_the_host_allows_it():
    name = "some/target, some/draft"
    for asked in (name, "some/target,some/draft"):
        assert OfferedPairs(any_model=True).named(asked) == name
    with pytest.raises(UserError):
        OfferedPairs().named(name)
    assert {OfferedPairs().named(asked) for asked in (None, "", "built-in")} == {"built-in"}


def test_on_zero_gpu_the_weights_are_placed_at_the_start(monkeypatch, roomy):
    lender, assembled = Lender(), []

    def assemble(sources: Sources, checked_on: str, **_options: Any) -> Any:
        assembled.append((sources.device, checked_on))
        return tiny_pair()

    monkeypatch.setattr(hosting, "ZERO_GPU", True)
    monkeypatch.setattr(hosting, "assemble_pair", assemble)
    monkeypatch.setitem(sys.modules, "spaces", type("spaces", (), {"GPU": lender}))
    host = Hosting(any_model=True)
    offer = host.offered_pairs()
    assert list(offer.titles) == ["built-in"] and not offer.any_model
    service = host.service(offer)
    assert assembled == [("cuda", "cpu")]
    events = list(service.events(JobKind.RUN, RUN, never))
    assert events[-1]["type"] == "end" and len(lender.processes) == 1


@pytest.mark.slow
def test_spaces_is_imported_before_torch_and_no_library_reports_on_visitors(tmp_path):
    (tmp_path / "spaces.py").write_text("import sys\nassert 'torch' not in sys.modules\nGPU = None\n")
    code = (
        "import os, app; from specdemo.service import ZERO_GPU; assert ZERO_GPU;"
        "assert os.environ['GRADIO_ANALYTICS_ENABLED'] == 'False';"
        "from huggingface_hub import constants; assert constants.HF_HUB_DISABLE_TELEMETRY;"
        "import gradio; queue = gradio.Blocks()._queue;"
        "assert queue.ANALYTICS_MAX_EVENTS == 1 and queue.ANAYLTICS_CACHE_FREQUENCY > 1e9"
    )
    path = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}:{ROOT}", "HOME": str(tmp_path)}
    environment = {**path, "SPACES_ZERO_GPU": "true"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=tmp_path)


DRAFTED = {"prompt": "abc", "mode": "raw", "max_new_tokens": 4, "draft_alone": True}
JOBS = {
    JobKind.RUN: DRAFTED,
    JobKind.PROVE: {"proof": "greedy", "prompts": 1},
    JobKind.PLAY: {"text": "abc", "draft": "x"},
    JobKind.CLASS: {"text": "abc", "drafts": ["x", "y"]},
    JobKind.QUIZ: {"question": 1},
    JobKind.MEASURE: {"experiment": "overhead", "max_new_tokens": 4, "prompts": 1},
    JobKind.CALIBRATE: {},
}
THREADS = 3


@pytest.fixture
def service(tmp_path_factory, monkeypatch):
    """A server with tiny models, whose visitors may name other models, also tiny."""
    target, draft = folders = save_pair(tmp_path_factory)
    monkeypatch.setattr(Hosting, "sources_of", lambda _self, _name: Sources(*folders, device="cpu"))
    host = Hosting(target=target, draft=draft, device="cpu", any_model=True, threads=THREADS)
    return host.service(host.offered_pairs())


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


def test_one_thread_of_a_server_computes_with_several_threads(service, computing):
    assert JOBS.keys() == JOB_SPECS.keys()
    device = service.alone(threading.get_ident), THREADS
    starts = []
    for kind, raw in JOBS.items():
        starts += [event for event in service.events(kind, raw, never) if event["type"] == "start"]
    assert starts[0]["run"]["device"].endswith(f", {THREADS} threads")
    *_, end = service.events(JobKind.RUN, DRAFTED, never, "other/target, other/draft")
    assert end["type"] == "end"
    assert computing["calibration"] == computing["warm-up"] == {device}
    # A load tries the models on a thread of its own, which computes alone.
    assert {threads for _, threads in computing["pass"] - {device}} == {1}
    assert device in computing["pass"]
