"""Kernels that wait for memory to change, in the ways in which people write it, and some that look like it."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl


@triton.jit
def locks(flag_ptr, out_ptr, n):
    while tl.atomic_cas(flag_ptr, 0, 1) == 1:  # waits
        pass
    offsets = tl.arange(0, 128)
    tl.store(out_ptr + offsets, tl.load(out_ptr + offsets) + n)
    tl.atomic_xchg(flag_ptr, 0)


@triton.jit
def reads_a_flag(flag_ptr, out_ptr, n):
    ready = tl.load(flag_ptr, volatile=True)
    while ready != n:  # waits
        ready = tl.load(flag_ptr, volatile=True)
    tl.store(out_ptr + tl.arange(0, 128), 1.0)


@triton.jit
def gives_up(flag_ptr, out_ptr, n):
    tries = 0
    while (tl.atomic_add(flag_ptr, 0) != 1) & (tries < n):  # waits
        tries += 1
    tl.store(out_ptr + tl.arange(0, 128), 1.0)


@triton.jit
def _acquire(flag_ptr):
    return tl.inline_asm_elementwise(
        "ld.acquire.gpu.global.u32 $0, [$1];", "=r,l", [flag_ptr], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def meets_at_a_barrier(flag_ptr, out_ptr, n):
    offsets = tl.arange(0, 128)
    program = tl.program_id(0)
    tl.store(out_ptr + program * 128 + offsets, 2.0)
    tl.debug_barrier()
    tl.atomic_add(flag_ptr, 1, sem="release")
    while _acquire(flag_ptr) < n:  # waits
        pass
    tl.debug_barrier()
    tl.store(out_ptr + program * 128 + offsets, tl.load(out_ptr + (n - 1 - program) * 128 + offsets))


@triton.jit
def reads_many_flags(flag_ptr, out_ptr, n):
    offsets = tl.arange(0, 32)
    seen = tl.load(flag_ptr + offsets, volatile=True)
    while tl.sum((seen < n).to(tl.int32), 0) > 0:  # waits
        seen = tl.load(flag_ptr + offsets, volatile=True)
    tl.store(out_ptr + offsets, 1.0)


@triton.jit
def adds_others_parts(flag_ptr, out_ptr, n):
    offsets = tl.arange(0, 128)
    total = tl.zeros((128,), tl.float32)
    for part in range(n):
        while tl.atomic_add(flag_ptr + part, 0) != 1:  # waits
            pass
        total += tl.load(out_ptr + part * 128 + offsets)
    tl.store(out_ptr + offsets, total)


@triton.jit
def _signal(flag_ptr):
    return tl.inline_asm_elementwise(
        """{
        .reg .u32 %old<1>; .reg .pred %done<1>;
        again: atom.global.release.sys.cas.b32 %old0, [$1], 0, 1;
        setp.eq.u32 %done0, %old0, 0;
        @!%done0 bra again;
        mov.u32 $0, %old0;
        }""",
        "=r,l",
        [flag_ptr],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def signals(flag_ptr, out_ptr, n):
    _signal(flag_ptr)  # waits
    tl.store(out_ptr + tl.arange(0, 128), 1.0)


@triton.jit
def _signal_at_once(flag_ptr):
    return tl.inline_asm_elementwise(
        "{.reg .pred %p<1>;\nagain:\nld.acquire.sys.global.u32 $0, [$1];\nsetp.eq.u32 %p0, $0, 0;\n@%p0 bra again;\n}",
        "=r,l",
        [flag_ptr],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def waits_in_lines_without_indent(flag_ptr, out_ptr, n):
    _signal_at_once(flag_ptr)  # waits
    tl.store(out_ptr + tl.arange(0, 128), 1.0)


@triton.jit
def takes_a_permit(flag_ptr, out_ptr, n):
    taken = 0
    while taken == 0:  # waits
        left = tl.load(flag_ptr, volatile=True)
        if left > 0:
            taken = (tl.atomic_cas(flag_ptr, left, left - 1) == left).to(tl.int32)
    tl.store(out_ptr + tl.arange(0, 128), 1.0)


@triton.jit
def inserts_by_hash(flag_ptr, out_ptr, n):
    slot = n % 64
    old = tl.atomic_cas(flag_ptr + slot, 0, n)
    while (old != 0) & (old != n):
        slot = (slot + 1) % 64
        old = tl.atomic_cas(flag_ptr + slot, 0, n)
    tl.store(out_ptr + tl.arange(0, 128), 1.0)


@triton.jit
def counts_what_it_takes(flag_ptr, out_ptr, n):
    tile = tl.atomic_add(flag_ptr, 1)
    while tile < n:
        tl.atomic_add(flag_ptr + 1 + tile % 7, 1)
        tile = tl.atomic_add(flag_ptr, 1)


@triton.jit
def _time():
    return tl.inline_asm_elementwise("mov.u64 $0, %globaltimer;", "=l", [], dtype=tl.int64, is_pure=False, pack=1)


@triton.jit
def lets_time_pass(flag_ptr, out_ptr, n):
    begin = _time()
    while _time() - begin < n:
        pass
    tl.store(out_ptr + tl.arange(0, 128), 1.0)


@triton.jit
def improves_until_told(flag_ptr, out_ptr, n):
    offsets = tl.arange(0, 128)
    x = tl.load(out_ptr + offsets)
    while tl.load(flag_ptr, volatile=True) < n:
        x = x * 0.5 + 1
    tl.store(out_ptr + offsets, x)


@triton.jit
def computes_in_assembly(flag_ptr, out_ptr, n):
    x = tl.inline_asm_elementwise(
        """{
        .reg .pred %more<1>;
        mov.u32 $0, $1;
        again: sub.u32 $0, $0, 3;
        setp.gt.s32 %more0, $0, 3;
        @%more0 bra again;
        }""",
        "=r,r",
        [n],
        dtype=tl.int32,
        is_pure=True,
        pack=1,
    )
    tl.store(flag_ptr, x)


@triton.jit(noinline=True)
def _is_ready(flag_ptr):
    return tl.load(flag_ptr, volatile=True)


@triton.jit
def asks_a_function(flag_ptr, out_ptr, n):
    """Alone, it never ends, though each round counts something."""
    number = 0
    while number < n:
        number += _is_ready(flag_ptr + number)
    tl.store(out_ptr + tl.arange(0, 128), 1.0)


@triton.jit(noinline=True)
def _next(number):
    return number + 1


@triton.jit
def calls_what_only_computes(flag_ptr, out_ptr, n):
    number = 0
    while number < n:
        number = _next(number)
    tl.store(flag_ptr, number)


_ALL = (
    *(locks, reads_a_flag, gives_up, meets_at_a_barrier, reads_many_flags, adds_others_parts, signals),
    *(waits_in_lines_without_indent, takes_a_permit, inserts_by_hash, counts_what_it_takes, lets_time_pass),
    *(improves_until_told, computes_in_assembly),
)
KERNELS: dict[str, Any] = {kernel.fn.__name__: kernel for kernel in _ALL}
