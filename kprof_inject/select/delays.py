"""Delays: operations that keep the warps that come to them busy for a known number of cycles, and do nothing else.

A kernel with delays computes what it computes without, bit for bit. Each delay is one operation of inline assembly
with side effects, so that no compiler removes it, moves it across another, or joins two of them.

Sources: PTX ISA, "Special Registers" (%clock, %tid) and "bra"; AMD CDNA3 ISA, "S_MEMTIME"; LLVM, "AMDGPU Operand
Syntax" and "Inline Assembler Expressions".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kprof_inject.capture.schema import Target
from kprof_inject.errors import KprofError
from kprof_inject.select.sites import InsertPoint
from kprof_inject.ttgir.strings import quote

MOST_CYCLES = 1 << 24
"""Of one delay: what is longer says nothing more, and a display that shares the GPU would notice."""

_NVIDIA_WARPS = 32
"""PTX ISA, "%tid": a CTA has at most 1024 threads, in warps of 32."""

# ``begin`` is read once for each delay. One of no cycles ends at the first comparison; it goes through it like the
# others, so that a longer one differs from it in a number alone.
_NVIDIA = """{{
.reg .u32 begin, now;
.reg .pred more, other;
{choose}mov.u32 begin, %clock;
AGAIN: mov.u32 now, %clock;
sub.u32 now, now, begin;
setp.lt.u32 more, now, {cycles};
@more bra.uni AGAIN;
DONE: mov.u32 $0, {cycles};
}}"""

# Of the warps that the mask leaves out, none reads the clock.
_NVIDIA_CHOICE = """mov.u32 begin, %tid.x;
shr.u32 begin, begin, 5;
mov.u32 now, 1;
shl.b32 now, now, begin;
and.b32 now, now, {mask};
setp.eq.u32 other, now, 0;
@other bra.uni DONE;
"""

_AMD = """s_memtime s[4:5]
s_waitcnt lgkmcnt(0)
1:
s_memtime s[6:7]
s_waitcnt lgkmcnt(0)
s_sub_u32 s6, s6, s4
s_cmp_lt_u32 s6, {cycles}
s_cbranch_scc1 1b
v_mov_b32 $0, {cycles}"""

_CONSTRAINTS = {"cuda": "=r", "hip": "=v,~{s4},~{s5},~{s6},~{s7},~{scc}"}


@dataclass(frozen=True, slots=True)
class Delay:
    """One line to insert. ``number`` tells it from the other delays of its module."""

    point: InsertPoint
    cycles: int
    number: int
    target: Target
    warps: Sequence[int] = ()
    """Of each CTA, those that are kept busy; none means all."""

    @property
    def line(self) -> str:
        return f"{self.point.indent}%kprof_delay_{self.number} = {operation(self.target, self.cycles, self.warps)}"


def operation(target: Target, cycles: int, warps: Sequence[int] = ()) -> str:
    """The operation that takes ``cycles`` of the SM's clock, at least 0; what it gives is of no use. Raises
    ``KprofError`` if the target has no such clock, or cannot tell warps apart."""
    if not 0 <= cycles <= MOST_CYCLES:
        raise KprofError(f"no delay takes {cycles} cycles", hint=f"choose from 0 to {MOST_CYCLES}", exit_code=2)
    least = max(cycles, 1)
    if target.backend == "cuda":
        assembly = _NVIDIA.format(choose=_nvidia_choice(warps), cycles=least)
    else:
        _require_counter(target)
        if warps:
            raise KprofError(f"delays on {target} are for all warps", hint="leave --warps out")
        assembly = _AMD.format(cycles=least)
    return (
        f"tt.elementwise_inline_asm {quote(assembly)} "
        f"{{constraints = {quote(_CONSTRAINTS[target.backend])}, packed_element = 1 : i32, pure = false}} -> i32"
    )


SPIN_KERNEL = "spins"
SPIN_ROUNDS = 64
_SPIN_KERNEL = """.version 7.0
.target sm_70
.address_size 64
.visible .entry {name}(.param .u64 to)
{{
.reg .u64 %to, %from, %until;
.reg .u32 %left, %taken;
.reg .pred %again;
ld.param.u64 %to, [to];
{measured}
ret;
}}
"""
_SPIN_LOOP = """mov.u32 %left, {rounds};
mov.u64 %from, %clock64;
ROUND_{number}:
{delay}
sub.u32 %left, %left, 1;
setp.ne.u32 %again, %left, 0;
@%again bra ROUND_{number};
mov.u64 %until, %clock64;
sub.u64 %until, %until, %from;
st.global.u64 [%to+{place}], %until;
"""


def spin_kernel(target: Target, delays: Sequence[int]) -> str:
    """PTX of a kernel that measures what each of these delays takes where a warp does nothing else: it writes, for
    each, a word of 64 bits with the cycles of ``SPIN_ROUNDS``. Empty for a target that has no PTX."""
    if target.backend != "cuda":
        return ""
    measured = "".join(
        _SPIN_LOOP.format(
            rounds=SPIN_ROUNDS,
            number=number,
            place=8 * number,
            delay=_NVIDIA.format(choose="", cycles=max(cycles, 1)).replace("$0", "%taken"),
        )
        for number, cycles in enumerate(delays)
    )
    return _SPIN_KERNEL.format(name=SPIN_KERNEL, measured=measured)


def _nvidia_choice(warps: Sequence[int]) -> str:
    beyond = [warp for warp in warps if warp >= _NVIDIA_WARPS]
    if beyond:
        raise KprofError(f"no CTA has a warp {beyond[0]}", hint=f"they are counted from 0 to {_NVIDIA_WARPS - 1}")
    return _NVIDIA_CHOICE.format(mask=sum(1 << warp for warp in set(warps))) if warps else ""


def _require_counter(target: Target) -> None:
    """Of AMD's, those before RDNA 4 count cycles by ``s_memtime``; the first letters behind ``gfx`` tell."""
    if not str(target.arch).startswith("gfx9"):
        raise KprofError(
            f"a delay needs a cycle counter, and none is known on {target}",
            hint="delays are for NVIDIA's GPUs, and for AMD's gfx9",
        )
