"""Compile every kernel for a GPU that need not exist, and print what its assembler reports as JSON."""

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from specdemo.models.gpu import kernels
from specdemo.models.gpu.kernels import Buffers, Weights
from specdemo.models.gpu.stack import EARLY_CAPABILITY, WARPS, WIDE_HEAD, shape_for

# hidden, heads, kv heads, head width, MLP, scored tokens
SIZES = {
    "draft": (576, 9, 3, 64, 1536, 12000),
    "8B": (4096, 32, 8, 128, 14336, 128256),
}
WEIGHTS = Weights(*["*bf16"] * (len(Weights._fields) - 1), "*i32")
BF16 = ("keys", "vals", "scaled", "pair_scaled", "query", "context", "active")
INT32 = ("control", "finished", "top_rows", "chosen")
BUFFERS = Buffers(
    *("*bf16" if name in BF16 else "*i32" if name in INT32 else "*fp32" for name in Buffers._fields)
)
KERNELS = {
    "embed": ("step",),
    "qkv": ("layer", "capacity"),
    "attention": ("layer", "capacity"),
    "out": ("layer",),
    "gate_up": ("layer",),
    "down": ("layer", "norm", "tap"),
    "head": ("step",),
    "advance": ("step",),
}


def compiled(name, shape, capability):
    function, numbers = getattr(kernels, name), KERNELS[name]
    signature = {**dict.fromkeys(numbers, "i32"), "w": WEIGHTS, "b": BUFFERS, "S": "constexpr"}
    constants = {"S": shape}
    if name == "advance":
        signature["BEST"], constants["BEST"] = "constexpr", True
    aligned = {"w": len(WEIGHTS), "b": len(BUFFERS)}
    attributes = {
        (function.arg_names.index(argument), i): [["tt.divisibility", 16]]
        for argument, count in aligned.items()
        for i in range(count)
    }
    source = ASTSource(function, signature, constants, attributes)
    warps = 2 * WARPS if name == "attention" and shape.width > WIDE_HEAD else WARPS
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": warps})


def reported(made, capability):
    """Return registers and spilled bytes; Triton assembles with another ptxas from sm_90 on."""
    tools = Path(triton.__file__).parent / "backends/nvidia/bin"
    newest = tools / "ptxas-blackwell"
    tool = newest if capability >= 90 and newest.exists() else tools / "ptxas"
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as code:
        code.write(made.asm["ptx"])
        code.flush()
        name = f"sm_{capability}" + "a" * (capability >= 90)
        command = [str(tool), "-v", f"--gpu-name={name}", code.name, "-o", "/dev/null"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    sizes = [int(size) for size in re.findall(r"(\d+) bytes (?:stack|spill)", said)]
    registers = re.search(r"Used (\d+) registers", said)
    assert registers and len(sizes) == 3, said
    return {"registers": int(registers[1]), "spilled": sum(sizes), "shared": made.metadata.shared}


def main() -> None:
    capability, found = int(sys.argv[1]), {}
    for model, (hidden, heads, kv_heads, width, mlp, scored) in SIZES.items():
        shape = shape_for(hidden, heads, kv_heads, width, mlp, scored, 1e-5, width**-0.5, early=False)
        variants = {"": shape}
        if model == "draft":
            variants["paired "] = dataclasses.replace(shape, paired=True)
        if divmod(capability, 10) >= EARLY_CAPABILITY:
            variants["early "] = dataclasses.replace(shape, early=True)
        for variant, own in variants.items():
            for name in KERNELS:
                found[f"{model} {variant}{name}"] = reported(compiled(name, own, capability), capability)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
