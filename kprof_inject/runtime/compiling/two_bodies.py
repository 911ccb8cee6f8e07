"""Join a kernel's PTX with and without records in one kernel, so that only a sample of the CTAs record.

A branch at the entry leads a CTA to one of the two bodies. The body without records is a block with registers and
labels of its own (PTX ISA, "Statements": braces), so nothing in it changes; ptxas gives the kernel the registers of the
larger body.

If the function alone is recorded, one body is enough: CTAs read the clock before it, and those that record store their
records after it. All run the same machine code; with records in it, ptxas would compile other code.

What decides is in the lowest bits of the buffer's address (``capture.cta_samples``). So one binary serves each launch
as it needs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kprof_inject.capture.buffer_layouts import (
    CLOCK_HIGH_MASK,
    END_SHIFT,
    ENTRY_BYTES,
    HEADER_WORDS,
    PREAMBLE,
    SCOPE_SHIFT,
    TIMES_WORDS,
    WORDS_PER_ENTRY,
)
from kprof_inject.capture.cta_samples import ADDRESS_ALIGNMENT, END_BYTES, HASH_FACTOR, HASH_SHIFT, SM_BITS
from kprof_inject.capture.mode import Mode
from kprof_inject.capture.scopes import ScopeTable
from kprof_inject.errors import KprofError

_ENTRY = re.compile(r"^\.visible \.entry [\w$]+\((?P<parameters>[^)]*)\)(?P<limits>[^{]*)\{\n", re.MULTILINE)
_END = re.compile(r"^\}\n(?=\t\.(?:file|section)|\Z)", re.MULTILINE)
_FUNCTION = re.compile(r"^(?:\.visible )?\.func\b", re.MULTILINE)
_BUFFER = re.compile(r"\.param\s+\.u64\b[^,]*?\s([\w$]+)\s*$")
_DECLARATIONS = re.compile(r"(?:\t\.(?:reg|local)\s[^\n]*\n)*")
_LOCATION = re.compile(r"^\t\.loc\t.*\n", re.MULTILINE)
_RETURN = re.compile(r"\bret(?:\.uni)?;")
_EXIT = re.compile(r"(\btrap;\s*)?\bexit;")  # LLVM puts one after each trap
_SHARED = re.compile(r"^\.extern \.shared \.align (\d+) \.b8 global_smem\[\];\n", re.MULTILINE)


def with_two_bodies(
    clean: str, recorded: str, row_bytes: int, cluster_ctas: int, offset_bits: int, max_registers: int | None = None
) -> str:
    """Return the PTX of a kernel with the body of ``clean`` and that of ``recorded``.

    A row of its buffer has ``row_bytes``; Proton's code computes where a row begins in ``offset_bits``. A thread has at
    most ``max_registers`` (None: ptxas chooses). Raises ``KprofError`` if the two are not one kernel with and without
    records.
    """
    without, with_records = _modules_of(clean, recorded)
    load = re.compile(rf"ld\.param\.[bu]64\s+(%\w+), \[{re.escape(with_records.buffer)}\];")
    recording, loads = load.subn(r"mov.b64 \1, %kprof_base;", with_records.code)
    if not loads:
        raise KprofError("the kernel with records does not read its buffer's address")
    return "".join(
        (
            _joined(without.before, with_records.before),
            _limited(with_records.header, max_registers),
            with_records.declarations,
            _REGISTERS,
            _choice(with_records.buffer, cluster_ctas),
            "\t@%kprof_p bra $kprof_with;\n$kprof_without:\n{\n",
            _renamed(without.declarations),
            # Its lines are counted in the files of another module.
            _RETURN.sub("bra $kprof_ended;", _renamed(_LOCATION.sub("", without.code))),
            "}\n$kprof_ended:\n",
            _LEAVE_END,
            "$kprof_with:\n",
            _row_address(row_bytes, cluster_ctas),
            _OFFSETS[offset_bits].format(row_bytes=row_bytes),
            recording,
            with_records.after,
        )
    )


@dataclass(frozen=True, slots=True)
class FunctionRecord:
    """The record of a function, which is all that each of the CTA's ``warps`` records, in a ring of ``ring_bytes``."""

    scope_id: int
    warps: int
    ring_bytes: int

    @classmethod
    def of(
        cls, table: ScopeTable, scope_ids: Callable[[], Mapping[int, str]], mode: Mode, warps: int
    ) -> FunctionRecord | None:
        """Return the record of a kernel that records its function alone, in the default mode; None of another one.

        A CTA has ``warps`` in all. ``scope_ids`` returns Proton's ids with the names of their records.
        """
        is_alone = len(table.scopes) == 1 and table.body == 0 and not table.partitions and not table.max_tags
        if not is_alone or (mode.buffer, mode.clock_bits, mode.warps, mode.sched_stores) != ("global", 64, (), False):
            return None
        scope_id = next(scope_id for scope_id, name in scope_ids().items() if name == table.scopes[0].record)
        return cls(scope_id, warps, mode.buffer_bytes // warps)


def with_one_body(
    clean: str,
    recorded: str,
    row_bytes: int,
    cluster_ctas: int,
    function: FunctionRecord,
    max_registers: int | None = None,
) -> str:
    """Return the PTX of a kernel with the body of ``clean``, after which the records of the function are stored.

    The buffer's layout is ``timed``. See ``with_two_bodies`` for the other arguments, and for what it raises.
    """
    module, _ = _modules_of(clean, recorded)
    if _FUNCTION.search(clean):  # records are in a build whose functions are inlined, and whose memory may be less
        raise KprofError("without records, the kernel has functions that are inlined with them")
    if any(
        not found[1] for found in _EXIT.finditer(module.code)
    ):  # a CTA that records would leave the row of an earlier launch
        raise KprofError("its inline assembly ends threads by exit")
    return "".join(
        (
            module.before,
            _limited(module.header, max_registers),
            module.declarations,
            _REGISTERS,
            _BEGIN,
            _choice(module.buffer, cluster_ctas),
            "\tmov.pred %kprof_records, %kprof_p;\n",
            _RETURN.sub("bra $kprof_ended;", module.code),
            "$kprof_ended:\n\t@%kprof_records bra $kprof_with;\n",
            _LEAVE_END,
            "$kprof_with:\n",
            _ENDED,
            _row_address(row_bytes, cluster_ctas),
            "\tmov.u64 %kprof_end, %globaltimer;\n",
            _records(function),
            module.after,
        )
    )


def _limited(header: str, max_registers: int | None) -> str:
    if max_registers is None or ".maxnreg" in header:  # the program's own limit stays
        return header
    return header.removesuffix("{\n") + f".maxnreg {max_registers}\n{{\n"


@dataclass(frozen=True, slots=True)
class _Module:
    """Parts of a PTX module with one kernel, in their order."""

    before: str  # directives, variables and functions
    header: str  # from the kernel's directive to the brace
    declarations: str
    code: str
    after: str  # from the closing brace on
    buffer: str  # name of the parameter with the buffer's address, which is the last

    @classmethod
    def of(cls, ptx: str) -> _Module:
        entries = list(_ENTRY.finditer(ptx))
        if len(entries) != 1:
            raise KprofError(f"the PTX has {len(entries)} kernels")
        begin = entries[0].end()
        buffer, end = _BUFFER.search(entries[0]["parameters"]), _END.search(ptx, begin)
        if buffer is None or end is None:
            raise KprofError("the PTX's kernel has no parameter for a buffer")
        declared = _DECLARATIONS.match(ptx, begin)
        code = declared.end() if declared else begin
        return cls(
            ptx[: entries[0].start()],
            entries[0][0],
            ptx[begin:code],
            ptx[code : end.start()],
            ptx[end.start() :],
            buffer[1],
        )


def _modules_of(clean: str, recorded: str) -> tuple[_Module, _Module]:
    without, with_records = _Module.of(clean), _Module.of(recorded)
    if without.header != with_records.header:
        raise KprofError("with records, the kernel takes other arguments or threads than without")
    return without, with_records


def _renamed(text: str) -> str:
    """Rename labels and the stack: ptxas does not let a block hide all names around it."""
    return text.replace("$L__", "$kprof_L__").replace("__local_depot", "__kprof_depot")


def _joined(clean: str, recorded: str) -> str:
    """Return what is before the kernel with records, and what else the other body needs."""
    alignments = [int(match[1]) for text in (clean, recorded) for match in _SHARED.finditer(text)]
    clean, recorded = _SHARED.sub("", clean), _SHARED.sub("", recorded)
    known = set(recorded.splitlines())
    missing = [line for line in clean.splitlines() if line not in known and not line.lstrip().startswith("//")]
    if missing:
        raise KprofError(f"without records, the kernel has more variables or functions than with them: {missing[0]}")
    shared = f".extern .shared .align {max(alignments)} .b8 global_smem[];\n" if alignments else ""
    return recorded + shared


_REGISTERS = """\
	.reg .pred %kprof_p, %kprof_q, %kprof_records;
	.reg .b32 %kprof_shift, %kprof_row, %kprof_a, %kprof_b, %kprof_cluster, %kprof_block;
	.reg .b32 %kprof_low, %kprof_high, %kprof_begin_low, %kprof_timer, %kprof_begin_highs;
	.reg .b64 %kprof_rows, %kprof_base, %kprof_c, %kprof_d, %kprof_end;
"""


def _choice(buffer: str, cluster_ctas: int) -> str:
    """Compute the CTA's row without a sample, as Proton does, its block, and whether it records, in ``%kprof_p``.

    The buffer's address is split into ``%kprof_rows`` and, in ``%kprof_shift``, its lowest bits.
    """
    return f"""\
	ld.param.b64 %kprof_rows, [{buffer}];
	cvt.u32.u64 %kprof_shift, %kprof_rows;
	and.b32 %kprof_shift, %kprof_shift, {ADDRESS_ALIGNMENT - 1};
	and.b64 %kprof_rows, %kprof_rows, {-ADDRESS_ALIGNMENT};
	mov.u32 %kprof_row, %ctaid.z;
	mov.u32 %kprof_a, %nctaid.y;
	mov.u32 %kprof_b, %ctaid.y;
	mad.lo.u32 %kprof_row, %kprof_row, %kprof_a, %kprof_b;
	mov.u32 %kprof_a, %nctaid.x;
	mov.u32 %kprof_b, %ctaid.x;
	mad.lo.u32 %kprof_row, %kprof_row, %kprof_a, %kprof_b;
	shr.u32 %kprof_cluster, %kprof_row, {cluster_ctas.bit_length() - 1};
	shr.u32 %kprof_block, %kprof_cluster, %kprof_shift;
	mul.lo.u32 %kprof_a, %kprof_block, {HASH_FACTOR};
	shr.u32 %kprof_a, %kprof_a, {HASH_SHIFT};
	xor.b32 %kprof_a, %kprof_a, %kprof_cluster;
	mov.b32 %kprof_b, -1;
	shl.b32 %kprof_b, %kprof_b, %kprof_shift;
	not.b32 %kprof_b, %kprof_b;
	and.b32 %kprof_a, %kprof_a, %kprof_b;
	setp.eq.u32 %kprof_p, %kprof_a, 0;
"""


# A CTA that does not record leaves the end of its first warp, and its SM. The ends of all warps would cost two to three
# times as much, and a store instead of the reduction twice; where CTAs are very short, other threads that compute the
# address would cost as much as the write. The word only rises, so the host clears what a launch of another grid left.
_LEAVE_END = f"""\
	mov.u32 %kprof_a, %tid.x;
	setp.ne.u32 %kprof_p, %kprof_a, 0;
	@%kprof_p ret;
	mad.wide.s32 %kprof_c, %kprof_row, -{END_BYTES}, %kprof_rows;
	mov.u32 %kprof_a, %smid;
	cvt.u64.u32 %kprof_base, %kprof_a;
	mov.u64 %kprof_d, %globaltimer;
	shl.b64 %kprof_d, %kprof_d, {SM_BITS};
	or.b64 %kprof_d, %kprof_d, %kprof_base;
	red.global.max.u64 [%kprof_c+{-END_BYTES}], %kprof_d;
	ret;
"""


def _row_address(row_bytes: int, cluster_ctas: int) -> str:
    """Compute the address of the CTA's row in ``%kprof_base``."""
    return f"""\
	and.b32 %kprof_a, %kprof_row, {cluster_ctas - 1};
	shl.b32 %kprof_b, %kprof_block, {cluster_ctas.bit_length() - 1};
	add.u32 %kprof_a, %kprof_a, %kprof_b;
	mul.wide.u32 %kprof_c, %kprof_a, {row_bytes};
	add.u64 %kprof_base, %kprof_rows, %kprof_c;
"""


# Proton's code adds the row's offset to the buffer's address, so it is subtracted: the row's number times its size, in
# 32 bits up to Triton 3.7, in 64 bits since.
_OFFSETS = {
    32: """\
	mul.lo.u32 %kprof_a, %kprof_row, {row_bytes};
	cvt.s64.s32 %kprof_c, %kprof_a;
	sub.u64 %kprof_base, %kprof_base, %kprof_c;
""",
    64: """\
	mul.wide.u32 %kprof_c, %kprof_row, {row_bytes};
	sub.u64 %kprof_base, %kprof_base, %kprof_c;
""",
}

# The begin stays in three registers, and no CTA branches or stores before its body, so ptxas computes the choice while
# the body waits for its first loads. An entry has 43 bits of the clock, so 11 bits of its upper half share a register
# with 21 of the timer's, which is enough for a CTA of 104 days. Only one thread reads the timer: readings of several
# warps wait for each other (3 ns each, H200).
_HIGH_CLOCK_BITS = CLOCK_HIGH_MASK.bit_length()
_TIMER_HIGH_BITS = 32 - _HIGH_CLOCK_BITS
_BEGIN = f"""\
	mov.u32 %kprof_begin_low, %clock;
	mov.u32 %kprof_high, %clock_hi;
	mov.u32 %kprof_a, %tid.x;
	setp.ne.u32 %kprof_p, %kprof_a, 0;
	mov.b64 %kprof_d, 0;
	@%kprof_p bra $kprof_begun;
	mov.u64 %kprof_d, %globaltimer;
$kprof_begun:
	mov.b64 {{%kprof_timer, %kprof_a}}, %kprof_d;
	bfi.b32 %kprof_begin_highs, %kprof_high, %kprof_a, {_TIMER_HIGH_BITS}, {_HIGH_CLOCK_BITS};
"""
_ENDED = """\
	mov.u32 %kprof_low, %clock;
	mov.u32 %kprof_high, %clock_hi;
	bar.sync 0;
"""
_COUNTS_AT = 4 * (HEADER_WORDS + TIMES_WORDS)


def _records(function: FunctionRecord) -> str:
    """Store a CTA's row: each warp its two records and their number of words, the first thread the header."""
    entries_at = _COUNTS_AT + 4 * function.warps
    begin = f"""\
	shr.u32 %kprof_high, %kprof_begin_highs, {_TIMER_HIGH_BITS};
	mov.b32 %kprof_low, %kprof_begin_low;
"""
    return f"""\
	mov.u32 %kprof_b, %tid.x;
	and.b32 %kprof_a, %kprof_b, 31;
	setp.ne.u32 %kprof_q, %kprof_a, 0;
	shr.u32 %kprof_b, %kprof_b, 5;
	mul.wide.u32 %kprof_c, %kprof_b, {function.ring_bytes};
	add.u64 %kprof_c, %kprof_c, %kprof_base;
{_entry(entries_at + ENTRY_BYTES, 1, function)}{begin}{_entry(entries_at, 0, function)}\
	mul.wide.u32 %kprof_c, %kprof_b, 4;
	add.u64 %kprof_c, %kprof_c, %kprof_base;
	mov.b32 %kprof_a, {2 * WORDS_PER_ENTRY};
	@!%kprof_q st.global.b32 [%kprof_c+{_COUNTS_AT}], %kprof_a;
	mov.u32 %kprof_a, %tid.x;
	setp.ne.u32 %kprof_q, %kprof_a, 0;
	@%kprof_q ret;
	mov.b64 %kprof_c, {{%kprof_timer, %kprof_begin_highs}};
	sub.u64 %kprof_c, %kprof_end, %kprof_c;
	and.b64 %kprof_c, %kprof_c, {(1 << 32 + _TIMER_HIGH_BITS) - 1};
	sub.u64 %kprof_c, %kprof_end, %kprof_c;
	st.global.b64 [%kprof_base+16], %kprof_c;
	st.global.b64 [%kprof_base+24], %kprof_end;
	mov.b32 %kprof_b, {PREAMBLE - (1 << 32)};
	st.global.v2.b32 [%kprof_base], {{%kprof_b, %kprof_row}};
	mov.u32 %kprof_a, %smid;
	mov.b32 %kprof_b, {function.ring_bytes * function.warps};
	st.global.v2.b32 [%kprof_base+8], {{%kprof_a, %kprof_b}};
	mov.u64 %kprof_d, %globaltimer;
	st.global.b64 [%kprof_base+32], %kprof_d;
	ret;
"""


def _entry(place: int, is_end: int, function: FunctionRecord) -> str:
    """Store the warp's record of the function's start or end in its ring, at a ``place`` in the CTA's row."""
    store = f"\t@!%kprof_q st.global.cg.v2.b32 [%kprof_c+{place}], {{%kprof_high, %kprof_low}};\n"
    if place % ENTRY_BYTES:  # two words at once have to be aligned
        words = ((place, "high"), (place + 4, "low"))
        store = "".join(f"\t@!%kprof_q st.global.cg.b32 [%kprof_c+{at}], %kprof_{word};\n" for at, word in words)
    return f"""\
	and.b32 %kprof_high, %kprof_high, {CLOCK_HIGH_MASK};
	or.b32 %kprof_high, %kprof_high, {is_end << END_SHIFT | function.scope_id << SCOPE_SHIFT};
{store}"""
