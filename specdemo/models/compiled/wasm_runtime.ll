; What the compiled functions call that exists only outside a browser: OpenMP, numba's reference counts, libm.
; Functions are external here, because the other modules call them; after linking, they become internal.

target datalayout = "$layout"
target triple = "$triple"

@team = global i32 1 ; number of threads of a pass
@arrived = global i32 0
@generation = global i32 0

declare i32 @llvm.wasm.memory.atomic.wait32(ptr, i32, i64)
declare i32 @llvm.wasm.memory.atomic.notify(ptr, i32)
declare float @llvm.sqrt.f32(float)
declare <4 x float> @llvm.wasm.relaxed.madd.v4f32(<4 x float>, <4 x float>, <4 x float>)
declare float @exponential(float) "wasm-import-module"="env" "wasm-import-name"="exponential"
declare i32 @omp_get_thread_num() "wasm-import-module"="env" "wasm-import-name"="thread_number"

define <4 x float> @strict_multiply_add(<4 x float> %x, <4 x float> %y, <4 x float> %z) alwaysinline {
  %product = fmul <4 x float> %x, %y
  %sum = fadd <4 x float> %product, %z
  ret <4 x float> %sum
}

define <4 x float> @relaxed_multiply_add(<4 x float> %x, <4 x float> %y, <4 x float> %z) alwaysinline {
  %sum = call <4 x float> @llvm.wasm.relaxed.madd.v4f32(<4 x float> %x, <4 x float> %y, <4 x float> %z)
  ret <4 x float> %sum
}

define <4 x float> @larger(<4 x float> %x, <4 x float> %y) alwaysinline {
  %is_larger = fcmp ogt <4 x float> %x, %y
  %found = select <4 x i1> %is_larger, <4 x float> %x, <4 x float> %y
  ret <4 x float> %found
}

define float @sqrtf(float %x) alwaysinline {
  %root = call float @llvm.sqrt.f32(float %x)
  ret float %root
}

; Views of memory have no owner, so there are no references to count.
define void @NRT_incref(ptr %object) alwaysinline {
  ret void
}

define void @NRT_decref(ptr %object) alwaysinline {
  ret void
}

; LLVM calls this for fp16: a shift of exponent and fraction, and a product for the other bias of the exponent.
define float @__extendhfsf2(i16 zeroext %half) {
  %bits = zext i16 %half to i32
  %high = and i32 %bits, 32768
  %sign = shl i32 %high, 16
  %low = and i32 %bits, 32767
  %shifted = shl i32 %low, 13
  %small = bitcast i32 %shifted to float
  %scaled = fmul float %small, 0x46F0000000000000
  %number = bitcast float %scaled to i32
  %is_infinite = icmp uge i32 %shifted, 260046848
  %infinite = or i32 %number, 2139095040
  %size = select i1 %is_infinite, i32 %infinite, i32 %number
  %signed = or i32 %size, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}

define void @set_team(i32 %threads) {
  store atomic i32 %threads, ptr @team seq_cst, align 4
  ret void
}

; A thread spins for about as long as a whole pass before it sleeps, because waking it up takes milliseconds.
define ptr @GOMP_barrier() noinline {
entry:
  %threads = load atomic i32, ptr @team seq_cst, align 4
  %is_alone = icmp eq i32 %threads, 1
  br i1 %is_alone, label %done, label %several
several:
  %mine = load atomic i32, ptr @generation seq_cst, align 4
  %before = atomicrmw add ptr @arrived, i32 1 seq_cst
  %now = add i32 %before, 1
  %is_last = icmp eq i32 %now, %threads
  br i1 %is_last, label %release, label %spin
release:
  store atomic i32 0, ptr @arrived seq_cst, align 4
  atomicrmw add ptr @generation, i32 1 seq_cst
  call i32 @llvm.wasm.memory.atomic.notify(ptr @generation, i32 -1)
  br label %done
spin:
  %count = phi i32 [0, %several], [%next, %again]
  %seen = load atomic i32, ptr @generation seq_cst, align 4
  %is_released = icmp ne i32 %seen, %mine
  br i1 %is_released, label %done, label %again
again:
  %next = add i32 %count, 1
  %is_tired = icmp ugt i32 %next, 200000
  br i1 %is_tired, label %sleep, label %spin
sleep:
  call i32 @llvm.wasm.memory.atomic.wait32(ptr @generation, i32 %mine, i64 -1)
  %after = load atomic i32, ptr @generation seq_cst, align 4
  %is_woken = icmp ne i32 %after, %mine
  br i1 %is_woken, label %done, label %sleep
done:
  ret ptr null
}
