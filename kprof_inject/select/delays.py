"""Delays: operations that keep warps busy for a known number of cycles, without any other effect.

A kernel computes the same with and without delays, bit for bit. Each delay is one operation of inline assembly with
side effects, so that no compiler removes it, moves it across another, or joins two of them.

Sources: PTX ISA, "Special Registers" (%clock, %tid) and "bra"; AMD CDNA3 ISA, "S_MEMTIME"; LLVM, "AMDGPU Operand
Syntax" and "Inline Assembler Expressions".
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from kprof_inject.capture.schema import Target
from kprof_inject.errors import KprofError
from kprof_inject.select.sites import InsertPoint
from kprof_inject.ttgir.strings import quote

MAX_CYCLES = 1 << 24
"""Maximum length of a delay: longer ones measure nothing more, and freeze a display on the same GPU."""

_NVIDIA_WARPS = 32  # PTX ISA, "%tid": a CTA has at most 1024 threads, in warps of 32

# ``begin`` is read once for each delay. A delay of no cycles ends at the first comparison; it has the same instructions
# as the others, so that longer ones differ only in a number.
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

_NVIDIA_CHOICE = """mov.u32 begin, %tid.x;  # warps that the mask excludes skip the loop
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


class Delay(Struct, frozen=True):
    """A delay to insert as one line; ``number`` distinguishes it from the other delays of its module."""

    point: InsertPoint
    cycles: int
    number: int
    target: Target
    warps: Sequence[int] = ()  # the warps of each CTA that are kept busy; empty for all

    @property
    def line(self) -> str:
        """The line to insert."""
        operation = delay_operation(self.target, self.cycles, self.warps)
        return f"{self.point.indent}%kprof_delay_{self.number} = {operation}"


def delay_operation(target: Target, cycles: int, warps: Sequence[int] = ()) -> str:
    """Return the operation that takes ``cycles`` of the SM's clock, at least 0; its result has no meaning.

    Raises ``KprofError`` if the target has no such clock, or cannot select warps.
    """
    if not 0 <= cycles <= MAX_CYCLES:
        raise KprofError(f"a delay cannot take {cycles} cycles", hint=f"choose from 0 to {MAX_CYCLES}", exit_code=2)
    minimum = max(cycles, 1)
    if target.backend == "cuda":
        beyond = next((warp for warp in warps if warp >= _NVIDIA_WARPS), None)
        if beyond is not None:
            hint = f"warps are numbered from 0 to {_NVIDIA_WARPS - 1}"
            raise KprofError(f"no CTA has a warp {beyond}", hint=hint)
        choice = _NVIDIA_CHOICE.format(mask=sum(1 << warp for warp in set(warps))) if warps else ""
        assembly = _NVIDIA.format(choose=choice, cycles=minimum)
    else:
        if not str(target.arch).startswith("gfx9"):  # s_memtime counts cycles on these alone
            raise KprofError(
                f"delays need a cycle counter, and {target} has none that is known",
                hint="delays work on NVIDIA GPUs and on AMD's gfx9",
            )
        if warps:
            raise KprofError(f"on {target}, all warps must be delayed", hint="leave out --warps")
        assembly = _AMD.format(cycles=minimum)
    return (
        f"tt.elementwise_inline_asm {quote(assembly)} "
        f"{{constraints = {quote(_CONSTRAINTS[target.backend])}, packed_element = 1 : i32, pure = false}} -> i32"
    )


SPIN_ROUNDS = 64
_SPIN_KERNEL = """.version 7.0
.target sm_70
.address_size 64
.visible .entry spins(.param .u64 to)
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
    """Return the PTX of a kernel that measures the cost of each of these delays in an otherwise idle warp.

    It writes a 64-bit word for each delay: the cycles that ``SPIN_ROUNDS`` of it take. Empty for a target without PTX.
    """
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
    return _SPIN_KERNEL.format(measured=measured)
