"""Vectors for compiled code, in LLVM. Unlike numba's own loops, they have a fixed width and order of sums:
each lane of a vector adds every ``LANES``-th term in turn, and a fixed tree adds the lanes.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import llvmlite.ir as ir
import numpy as np
from llvmlite import binding
from numba import njit, types
from numba.core import cgutils, config
from numba.core.registry import cpu_target
from numba.extending import intrinsic


def processor_and_features() -> tuple[str, str]:
    """Return the processor for which numba compiles, and its instruction sets.

    numba's own variables may select an older processor than this machine's.
    """
    context: Any = cpu_target.target_context
    return context.codegen().magic_tuple()[1:]


def _lanes() -> int:
    features = processor_and_features()[1].split(",")
    return 16 if "+avx512f" in features else 8 if "+avx2" in features else 4


LANES = _lanes()  # numbers in a vector: 16 with AVX-512, 8 with AVX2, 4 with NEON
REGISTERS = 16 if LANES == 8 else 32

I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F16, F32 = ir.HalfType(), ir.FloatType()
VECTOR, INTS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)
UNDEFINED = ir.Constant(VECTOR, ir.Undefined)

# Types of the arguments and the result of a function for compiled code.
NOTHING, ADDRESS, INTEGER, REAL = types.void, types.intp, types.intp, types.float32

_OPTIONS: Any = {"error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
compiled = njit(**_OPTIONS)  # decorates functions that only compiled code calls

Value = Any
Builder = Any


def emitted(result: Any, *arguments: Any) -> Callable[[Callable[..., Value]], Any]:
    """Return a decorator that lets compiled code call a function that emits instructions.

    The decorated function takes an LLVM builder and the values of ``arguments``, and returns its value.
    """

    def decorate(emit: Callable[..., Value]) -> Any:
        def code(context: Any, builder: Builder, _signature: Any, values: Sequence[Value]) -> Value:
            value = emit(builder, *values)
            return context.get_dummy_value() if value is None else value

        # An intrinsic must have as many named parameters as the compiled code passes.
        names = ", ".join(f"a{index}" for index in range(len(arguments)))
        space = {"signature": result(*arguments), "code": code}
        exec(f"def {emit.__name__}(context, {names}):\n    return signature, code", space)
        return intrinsic(space[emit.__name__])

    return decorate


# ---- memory ----


def integer(value: int) -> Value:
    return ir.Constant(I64, value)


def at(b: Builder, base: Value, index: Value, size: int) -> Value:
    """Return the address of element ``index`` of ``size`` bytes."""
    return b.add(base, b.mul(index, integer(size)))


def load(b: Builder, address: Value, kind: ir.Type = VECTOR) -> Value:
    loaded = b.load(b.inttoptr(address, kind.as_pointer()), typ=kind)
    loaded.align = 1
    return loaded


def store(b: Builder, value: Value, address: Value) -> None:
    b.store(value, b.inttoptr(address, value.type.as_pointer())).align = 4


def prefetch(b: Builder, address: Value) -> None:
    name, byte = "llvm.prefetch.p0", I8.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, I32, I32, I32])
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    reading, keeping, data = 0, 3, 1
    b.call(
        function, [b.inttoptr(address, byte), *(ir.Constant(I32, flag) for flag in (reading, keeping, data))]
    )


# ---- arithmetic ----


def constant(value: float) -> Value:
    return ir.Constant(VECTOR, [float(np.float32(value))] * LANES)


def broadcast(b: Builder, scalar: Value) -> Value:
    first = b.insert_element(UNDEFINED, scalar, ir.Constant(I32, 0))
    return b.shuffle_vector(first, UNDEFINED, ir.Constant(INTS, [0] * LANES))


def _call(b: Builder, name: str, *values: Value) -> Value:
    name = f"llvm.{name}.v{LANES}f32"
    kind = ir.FunctionType(VECTOR, [VECTOR] * len(values))
    return b.call(b.module.globals.get(name) or ir.Function(b.module, kind, name), values)


def multiply_add(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Return x · y + z, rounded once."""
    return _call(b, "fma", x, y, z)


def larger(b: Builder, x: Value, y: Value) -> Value:
    return _call(b, "maxnum", x, y)


@cache
def lacking() -> str | None:
    """Return the reason why the functions of this package cannot be compiled; None if they can.

    For an operation without an instruction, LLVM calls a library's function: one that converts fp16 does not
    exist in this process, which would abort, and one that rounds x · y + z once takes longer than torch.
    """
    if getattr(config, "DISABLE_JIT", 0):
        return "NUMBA_DISABLE_JIT is set"
    module = ir.Module()
    kind = ir.FunctionType(VECTOR, [ir.VectorType(F16, LANES), VECTOR, VECTOR])
    function = ir.Function(module, kind, "widened_multiply_add")
    b = ir.IRBuilder(function.append_basic_block())
    halves, y, z = function.args
    b.ret(multiply_add(b, b.fpext(halves, VECTOR), y, z))
    processor, features = processor_and_features()
    machine = binding.Target.from_default_triple().create_target_machine(cpu=processor, features=features)
    code = machine.emit_assembly(binding.parse_assembly(str(module)))
    missing = [name for name, called in (("F16C", "__extendhfsf2"), ("FMA", "fmaf")) if called in code]
    return f"this processor lacks {' and '.join(missing)}" if missing else None


def exponential(b: Builder, x: Value) -> Value:
    """Return exp(x) up to rounding, after Cephes' ``expf``; exactly 0 below −87."""
    bounded = larger(b, x, constant(-87.0))
    n = _call(b, "floor", multiply_add(b, bounded, constant(1.44269504), constant(0.5)))
    rest = multiply_add(b, n, constant(-0.693359375), bounded)
    rest = multiply_add(b, n, constant(2.12194440e-4), rest)
    series = constant(1.9875691500e-4)
    for term in (1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1):
        series = multiply_add(b, series, rest, constant(term))
    result = b.fadd(multiply_add(b, series, b.fmul(rest, rest), rest), constant(1.0))
    exponent = b.add(b.fptosi(n, INTS), ir.Constant(INTS, [127] * LANES))
    power = b.bitcast(b.shl(exponent, ir.Constant(INTS, [23] * LANES)), VECTOR)
    return b.select(b.fcmp_ordered(">=", x, constant(-87.0)), b.fmul(result, power), constant(0.0))


def folded(b: Builder, vector: Value, combine: Callable[[Value, Value], Value]) -> Value:
    """Combine the lanes in a fixed tree; return a scalar."""
    lanes = LANES
    while lanes > 1:
        lanes //= 2
        none, kind = ir.Constant(vector.type, ir.Undefined), ir.VectorType(I32, lanes)
        low = b.shuffle_vector(vector, none, ir.Constant(kind, list(range(lanes))))
        high = b.shuffle_vector(vector, none, ir.Constant(kind, list(range(lanes, 2 * lanes))))
        vector = combine(low, high)
    return b.extract_element(vector, ir.Constant(I32, 0))


def total(b: Builder, vector: Value) -> Value:
    return folded(b, vector, b.fadd)


def largest(b: Builder, vector: Value) -> Value:
    return folded(b, vector, lambda low, high: b.select(b.fcmp_ordered(">", low, high), low, high))


# ---- loops ----


def repeated(
    b: Builder, count: Value, start: Sequence[Value], body: Callable[[Value, list[Value]], Sequence[Value]]
) -> list[Value]:
    """Emit ``for i in range(count): values = body(i, values)``; ``count`` must be at least 1."""
    before, inside, after = b.block, b.append_basic_block("loop"), b.append_basic_block("after")
    b.branch(inside)
    b.position_at_end(inside)
    i = b.phi(I64)
    i.add_incoming(integer(0), before)
    values = [b.phi(VECTOR) for _ in start]
    for value, first in zip(values, start, strict=True):
        value.add_incoming(first, before)
    results = list(body(i, values))
    following = b.add(i, integer(1))
    i.add_incoming(following, b.block)
    for value, result in zip(values, results, strict=True):
        value.add_incoming(result, b.block)
    b.cbranch(b.icmp_unsigned("<", following, count), inside, after)
    b.position_at_end(after)
    return results


@contextmanager
def counted(b: Builder, first: Value, last: Value, step: Value) -> Iterator[Value]:
    """Emit a loop over ``range(first, last, step)`` around the code that the ``with`` block emits."""
    with cgutils.for_range_slice(b, first, last, step, I64) as (i, _):
        yield i


def choose(b: Builder, number: Value, cases: Sequence[Callable[[], None]]) -> None:
    """Emit a choice: the first case for 1, the second for 2, …, the last also for larger numbers."""
    blocks = [b.append_basic_block(f"case{index + 1}") for index in range(len(cases))]
    after = b.append_basic_block("chosen")
    switch = b.switch(number, blocks[-1])
    for index, (block, case) in enumerate(zip(blocks, cases, strict=True), 1):
        if index < len(cases):
            switch.add_case(integer(index), block)
        b.position_at_end(block)
        case()
        b.branch(after)
    b.position_at_end(after)


def calls(count: int) -> Any:
    """Return a function for compiled code that calls the function at an address with ``count`` integers."""

    @emitted(NOTHING, ADDRESS, *[INTEGER] * count)
    def call(b: Builder, address: Value, *values: Value) -> None:
        kind = ir.FunctionType(ir.VoidType(), [I64] * count)
        b.call(b.inttoptr(address, kind.as_pointer()), values)

    return call


# ---- pointers ----


def _view(numbers: Any, element: ir.Type) -> Any:
    @intrinsic
    def view(context: Any, address: Any) -> Any:
        del context
        return types.CPointer(numbers)(ADDRESS), lambda c, b, s, a: b.inttoptr(a[0], element.as_pointer())

    return view


floats, longs = _view(types.float32, F32), _view(types.int64, I64)  # an address as a pointer for ``carray``
