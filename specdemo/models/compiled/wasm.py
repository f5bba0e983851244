"""The compiled functions as WebAssembly: numba's code for any machine, compiled by LLVM for browsers.

A tool of developers: ``python -m specdemo.models.compiled.wasm FOLDER`` writes ``strict.wasm`` and
``relaxed.wasm``. It depends on how numba writes its code; ``VERSIONS`` gave the files in this package.
"""

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specdemo.models.compiled.compilation import Compiled

VERSIONS = {"llvmlite": "0.50.0", "numba": "0.68.1", "ziglang": "0.17.1"}
IS_X86 = platform.machine() in ("x86_64", "AMD64")
# numba reads these variables when it is imported. A browser's vectors have four lanes.
FOUR_LANES = {"NUMBA_CPU_NAME": "ivybridge", "NUMBA_CPU_FEATURES": "+avx,+fma,+f16c"} if IS_X86 else {}
UNOPTIMIZED = FOUR_LANES | {"NUMBA_OPT": "0"}  # optimized code would be that of this machine

LAYOUT = "e-m:e-p:32:32-p10:8:8-p20:8:8-i64:64-i128:128-n32:64-S128-ni:1:10:20"
TRIPLE = "wasm32-unknown-unknown"
FEATURES = "+simd128,+atomics,+bulk-memory,+mutable-globals,+sign-ext,+nontrapping-fptoint"
# Relaxed multiply-add may round once or twice, as the processor does it faster. Not every browser has it.
KINDS = {"strict": FEATURES, "relaxed": f"{FEATURES},+relaxed-simd"}
USABLE_REGISTERS = 15  # of 16 on x86: V8 keeps one
STACK_BYTES = 65_536
LINKER = ["--no-entry", "--import-memory", "--shared-memory", "--max-memory=4294967296", "--stack-first"]
LINKER += ["-z", f"stack-size={STACK_BYTES}", "--strip-all", "--gc-sections", "--export-table"]
LINKER += ["--export=__stack_pointer"]


def installed_versions() -> dict[str, str]:
    """Return the installed versions of the programs in ``VERSIONS``; those that are missing are left out."""
    found = {}
    for name in VERSIONS:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def write_modules(folder: Path) -> None:
    """Write a module for each of ``KINDS``. numba must have been imported with ``UNOPTIMIZED``."""
    from specdemo.models.compiled import vectors

    assert vectors.LANES == 4, "numba was imported for another processor"
    vectors.REGISTERS = USABLE_REGISTERS  # product reads it when it is imported
    from specdemo.models.compiled import attention, product, whole_pass

    called = {
        "product_bf16": (product.PRODUCTS[product.BF16], product.PRODUCT_ARGUMENTS),
        "product_int8": (product.PRODUCTS[product.INT8], product.PRODUCT_ARGUMENTS),
        "attention": (attention.attention, attention.ATTENTION_ARGUMENTS),
    }
    codes = {name: _Code(compiled, name, count) for name, (compiled, count) in called.items()}
    codes["pass"] = _Code(whole_pass.whole_pass, "pass", 0)
    folder.mkdir(parents=True, exist_ok=True)
    for kind in KINDS:
        (folder / f"{kind}.wasm").write_bytes(_linked(_machine_code(kind, codes), list(codes)))


class _Code:
    """LLVM's code of a function and of all that it calls, for any machine; and a plain entry to it."""

    def __init__(self, compiled: "Compiled", name: str, arguments: int):
        text, inner = compiled.portable_code()
        self.text = _without_machine(text)
        # numba's functions take two more pointers, to the result and to an exception, and return a status.
        values = ", ".join(f"i64 %a{index}" for index in range(arguments))
        given = values or "ptr %fields"
        types = re.sub(r" %\w+", "", given)
        last = "" if arguments else "call ptr @GOMP_barrier()"  # the pass ends when every thread has ended it
        self.entry = f"""
            declare i32 @{inner}(ptr, ptr, {types})
            define void @{name}({given}) {{
              %result = alloca ptr
              %exception = alloca ptr
              call i32 @{inner}(ptr %result, ptr %exception, {given})
              {last}
              ret void
            }}
            define i32 @index_of_{name}() {{
              ret i32 ptrtoint (ptr @{name} to i32)
            }}"""


def _without_machine(text: str) -> str:
    """Return LLVM's code with our own functions in place of a processor's instructions."""
    for pattern, replacement in (
        (r"^target (datalayout|triple) = .*$", ""),
        (r"^(declare.*|.*call void) @llvm\.prefetch\.p0\(.*$", ""),  # browsers have no such instruction
        (r"@llvm\.maxnum\.v4f32\(", "@larger("),
        (r"@llvm\.exp\.f32\(", "@exponential("),  # JavaScript's, for probabilities to show
        (r"@llvm\.fma\.v4f32\(", "@multiply_add("),
        (r"^define linkonce_odr void @(NRT_incref|NRT_decref)\(.*?^}$", r"declare void @\1(ptr)"),
    ):
        flags = re.MULTILINE | (re.DOTALL if "define" in pattern else 0)
        text = re.sub(pattern, replacement, text, flags=flags)
    return f'target datalayout = "{LAYOUT}"\ntarget triple = "{TRIPLE}"\n{text}'


def _machine_code(kind: str, codes: dict[str, _Code]) -> bytes:
    """Return an object file with all functions."""
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine: Any = binding.Target.from_triple(TRIPLE).create_target_machine(
        cpu="generic", features=KINDS[kind], opt=3, reloc="static", codemodel="default"
    )
    runtime = Template(Path(__file__).with_name("wasm_runtime.ll").read_text(encoding="utf-8"))
    texts = [runtime.substitute(layout=LAYOUT, triple=TRIPLE), *(code.entry for code in codes.values())]
    whole: Any = binding.parse_assembly("\n".join(texts))
    for name, code in codes.items():
        part = binding.parse_assembly(code.text.replace("@multiply_add(", f"@{kind}_multiply_add("))
        part.name = name
        whole.link_in(part)
    exported = {*_exported(codes), "__extendhfsf2"}
    for thing in [*whole.functions, *whole.global_variables]:
        if not thing.is_declaration and thing.name not in exported:
            thing.linkage = "internal"
    whole.verify()
    tuning: Any = binding.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization, tuning.slp_vectorization = True, False
    builder = binding.create_pass_builder(machine, tuning)
    unused: Any = binding.create_new_module_pass_manager()
    unused.add_global_dead_code_eliminate_pass()
    unused.run(whole, builder)
    builder.getModulePassManager().run(whole, builder)
    return machine.emit_object(whole)


def _exported(names: Any) -> list[str]:
    return ["set_team", *names, *(f"index_of_{name}" for name in names if name != "pass")]


def _linked(code: bytes, names: list[str]) -> bytes:
    with tempfile.TemporaryDirectory() as scratch:
        source, result = Path(scratch, "code.o"), Path(scratch, "code.wasm")
        source.write_bytes(code)
        exports = [f"--export={name}" for name in _exported(names)]
        linker = [sys.executable, "-m", "ziglang", "wasm-ld", *LINKER, *exports]
        subprocess.run([*linker, str(source), "-o", str(result)], check=True)
        return result.read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(description="Compile the passes for browsers.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="folder for the two files")
    folder = parser.parse_args().folder
    if (found := installed_versions()) != VERSIONS:
        parser.error(
            f"the files are built with {VERSIONS}, but here are {found}; install these, or change VERSIONS"
        )
    if all(os.environ.get(name) == value for name, value in UNOPTIMIZED.items()):
        write_modules(folder)
    else:
        command = [sys.executable, "-m", "specdemo.models.compiled.wasm", str(folder)]
        subprocess.run(command, env=os.environ | UNOPTIMIZED, check=True)


if __name__ == "__main__":
    main()
