"""A host's settings: the pairs that are loaded and offered, and the names that a request may use."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from helpers.lent_gpu import Lender
from helpers.tiny import tiny_pair
from helpers.waiting import PATIENCE_S

from specdemo.cli.main import parsed
from specdemo.engine.speculate import never
from specdemo.pairs.presets import PRESETS, OfferedPairs, preset_named, two_models
from specdemo.pairs.sources import Sources
from specdemo.records.limits import UserError
from specdemo.service import hosting
from specdemo.service.hosting import Hosting
from specdemo.service.jobs import JobKind
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
    monkeypatch.setenv("SPECDEMO_MAX_SECONDS", "45")
    monkeypatch.setenv("SPECDEMO_ALLOW_ANY_MODEL", "1")
    monkeypatch.setenv("SPECDEMO_MCP", "0")
    monkeypatch.setenv("SPECDEMO_THREADS", "1")
    monkeypatch.setenv("SPECDEMO_PAIR", "gpt2-xl")
    settings = parsed(["serve", "--pair", "gpt2-large"])
    assert (settings.max_seconds, settings.allow_any_model, settings.mcp) == (45.0, True, False)
    assert (settings.pair, settings.threads) == ("gpt2-large", 1)


@pytest.mark.parametrize(
    "value, on",
    [(one, True) for one in ("1", "true", "YES", "On")]
    + [(one, False) for one in ("", "0", "False", "no", "OFF", " ")],
)
def test_a_switch_of_the_environment_is_a_word(monkeypatch, value, on):
    switches = [name for name, default in vars(parsed(["serve"])).items() if default is False]
    assert {"mcp", "only_pair", "allow_any_model"} <= {*switches}
    for name in switches:
        monkeypatch.setenv(f"SPECDEMO_{name.upper()}", value)
    settings = vars(parsed(["serve"]))
    assert [settings[name] for name in switches] == [on] * len(switches)


def test_presets_are_offered_if_they_fit_next_to_the_pair_at_home(monkeypatch, roomy):
    everything = Hosting(device="cpu").offered_pairs()
    assert list(everything.titles) == [preset.name for preset in PRESETS]
    home = preset_named("built-in").needed_bytes("auto")
    small = preset_named("gpt2-large").needed_bytes("auto")
    for spare, there in ((0, True), (-1, False)):
        monkeypatch.setattr(hosting, "free_memory", lambda _device, spare=spare: home + small + spare)
        assert ("gpt2-large" in Hosting(device="cpu").offered_pairs().titles) is there
    monkeypatch.setattr(hosting, "free_memory", lambda _device: 0)
    assert list(Hosting(device="cpu").offered_pairs().titles) == ["built-in"]


def test_a_host_may_offer_nothing_else_or_another_pair_at_home(roomy):
    assert list(Hosting(device="cpu", only_default=True).offered_pairs().titles) == ["built-in"]
    large = Hosting(pair="qwen2.5-7b", device="cpu").offered_pairs()
    assert large.default == "qwen2.5-7b" and "built-in" in large.titles
    own = Hosting(target="/models/large", draft="/models/small", device="cpu", only_default=True)
    assert own.offered_pairs().titles == {"own": "large with small"} and own.offered_pairs().default == "own"
    assert own.sources.target == "/models/large"
    assert Hosting(draft="none").sources.target == "built-in"


@pytest.mark.parametrize(
    ("wrong", "words"), [({"device": "cuda:9"}, "cannot be used here"), ({"precision": "x"}, "Unknown")]
)
def test_an_unknown_device_or_precision_is_refused_at_the_start(wrong, words):
    with pytest.raises(UserError, match=words):
        Hosting(**wrong).offered_pairs()


@pytest.mark.parametrize("bounds", [(-1, 1.0), (10**6, 1.0), (1, 0.0), (1, float("nan")), (1, float("inf"))])
def test_bounds_have_bounds(bounds):
    with pytest.raises(UserError, match="--max-waiting must be between"):
        Bounds(*bounds)


def test_drafters_are_those_of_the_pair_at_home():
    assert "feature-draft" in Hosting().drafters
    assert Hosting(draft="none").drafters == (
        "prompt-lookup",
        "n-gram",
        "lookup+n-gram",
        "feature-draft",
        "lookup+feature",
        "early-exit",
    )
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
    with pytest.raises(UserError, match="names a folder of this machine"):
        list(service.events(JobKind.RUN, RUN, never, "assets/draft, assets/draft"))
    assert [sources.target for sources in loaded] == [
        "built-in",
        "HuggingFaceTB/SmolLM2-1.7B-Instruct",
        "some/target",
    ]
    assert loaded[1].target_revision == preset_named("smollm2-1.7b").target.revision
    assert {sources.device for sources in loaded} == {"cpu"}


def test_the_pair_at_home_is_not_measured_during_a_guest_s_job(monkeypatch, roomy):
    measuring, measured = threading.Event(), []

    def load_home(_sources: Sources, alone: Any, **_options: Any) -> Any:
        measuring.set()
        alone(lambda: measured.append(threading.current_thread().name))
        return tiny_pair()

    monkeypatch.setattr(hosting, "load_sources", load_home)
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


@pytest.mark.parametrize(
    "name",
    [
        "nope",
        "some/target",
        "some/target, /etc",
        "../../etc, some/draft",
        "/etc/passwd, some/draft",
        "some/target, some/draft, third/one",
        "some/target,\nsome/draft",
        "https://example.org/a, some/draft",
        "some/target, some/../draft",
        "a/" + "b" * 200 + ", some/draft",
        7,
        True,
        ["some/target", "some/draft"],
        {"home": 1},
    ],
)
def test_a_pair_that_is_not_offered_is_refused_whether_or_not_any_model_is_allowed(name):
    for any_model in (False, True):
        with pytest.raises(UserError, match=r"^Unknown pair .*; choose one of: built-in") as refused:
            OfferedPairs(any_model=any_model).named(name)
        assert "\n" not in str(refused.value)


def test_any_two_models_may_be_named_only_if_the_host_allows_it():
    name = "some/target, some/draft"
    assert OfferedPairs(any_model=True).named(name) == name
    assert OfferedPairs(any_model=True).named("some/target,some/draft") == name
    assert two_models(name) == ("some/target", "some/draft") and two_models("built-in") is None
    with pytest.raises(UserError):
        OfferedPairs().named(name)
    assert {OfferedPairs().named(None), OfferedPairs().named(""), OfferedPairs().named("built-in")} == {
        "built-in"
    }


def test_if_the_gpu_is_lent_by_the_call_the_weights_are_placed_at_the_start(monkeypatch, roomy):
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
def test_the_lender_s_package_is_imported_before_torch_and_nobody_gets_reports_on_visitors(tmp_path):
    (tmp_path / "spaces.py").write_text("import sys\nassert 'torch' not in sys.modules\nGPU = None\n")
    code = (
        "import os, app; from specdemo.service import ZERO_GPU; assert ZERO_GPU;"
        "assert os.environ['GRADIO_ANALYTICS_ENABLED'] == 'False';"
        "from huggingface_hub import constants; assert constants.HF_HUB_DISABLE_TELEMETRY"
    )
    path = f"{tmp_path}:{ROOT}"
    environment = {
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": path,
        "SPACES_ZERO_GPU": "true",
        "HOME": str(tmp_path),
    }
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, cwd=tmp_path)


@pytest.mark.slow
def test_gradio_keeps_no_statistics_of_events():
    code = (
        "import specdemo.service, gradio; queue = gradio.Blocks()._queue;"
        "assert queue.ANALYTICS_MAX_EVENTS == 1 and queue.ANAYLTICS_CACHE_FREQUENCY > 1e9"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
