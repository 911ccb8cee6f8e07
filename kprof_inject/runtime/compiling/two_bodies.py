"""Join a kernel's PTX with and without records in one kernel, so that only a sample of the CTAs record.

A branch at the entry leads a CTA to one of the two bodies. The body without records is a block with registers and
labels of its own (PTX ISA, "Statements": braces), so nothing in it changes; ptxas gives the kernel the registers of the
larger body.

What decides is in the lowest bits of the buffer's address (``capture.cta_samples``). So one binary serves each launch
as it needs it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kprof_inject.capture.cta_samples import ADDRESS_ALIGNMENT, END_BYTES, HASH_FACTOR, HASH_SHIFT, SM_BITS
from kprof_inject.errors import KprofError

_ENTRY = re.compile(r"^\.visible \.entry [\w$]+\((?P<parameters>[^)]*)\)(?P<limits>[^{]*)\{\n", re.MULTILINE)
_END = re.compile(r"^\}\n(?=\t\.(?:file|section)|\Z)", re.MULTILINE)
_BUFFER = re.compile(r"\.param\s+\.u64\b[^,]*?\s([\w$]+)\s*$")
_DECLARATIONS = re.compile(r"(?:\t\.(?:reg|local)\s[^\n]*\n)*")
_LOCATION = re.compile(r"^\t\.loc\t.*\n", re.MULTILINE)
_RETURN = re.compile(r"\bret;")
_SHARED = re.compile(r"^\.extern \.shared \.align (\d+) \.b8 global_smem\[\];\n", re.MULTILINE)


def with_two_bodies(
    clean: str, recorded: str, row_bytes: int, cluster_ctas: int, offset_bits: int, max_registers: int | None = None
) -> str:
    """Return the PTX of a kernel with the body of ``clean`` and that of ``recorded``.

    A row of its buffer has ``row_bytes``; Proton's code computes where a row begins in ``offset_bits``. A thread has at
    most ``max_registers`` (None: ptxas chooses). Raises ``KprofError`` if the two are not one kernel with and without
    records.
    """
    without, with_records = _Module.of(clean), _Module.of(recorded)
    if without.header != with_records.header:
        raise KprofError("with records, the kernel takes other arguments or threads than without")
    load = re.compile(rf"ld\.param\.[bu]64\s+(%\w+), \[{re.escape(with_records.buffer)}\];")
    recording, loads = load.subn(r"mov.b64 \1, %kprof_base;", with_records.code)
    if not loads:
        raise KprofError("the kernel with records does not read its buffer's address")
    header = with_records.header
    if max_registers is not None and ".maxnreg" not in header:  # else the program's own stays
        header = header.removesuffix("{\n") + f".maxnreg {max_registers}\n{{\n"
    return "".join(
        (
            _joined(without.before, with_records.before),
            header,
            with_records.declarations,
            _begin(with_records.buffer, cluster_ctas),
            "{\n",
            _renamed(without.declarations),
            # Its lines are counted in the files of another module.
            _RETURN.sub("bra $kprof_ended;", _renamed(_LOCATION.sub("", without.code))),
            "}\n",
            _end(with_records.buffer),
            _base(row_bytes, cluster_ctas, offset_bits),
            recording,
            with_records.after,
        )
    )


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


# Computes the CTA's row without a sample, as Proton does, in ``%kprof_row``.
_ROW = """\
	mov.u32 %kprof_row, %ctaid.z;
	mov.u32 %kprof_a, %nctaid.y;
	mov.u32 %kprof_b, %ctaid.y;
	mad.lo.u32 %kprof_row, %kprof_row, %kprof_a, %kprof_b;
	mov.u32 %kprof_a, %nctaid.x;
	mov.u32 %kprof_b, %ctaid.x;
	mad.lo.u32 %kprof_row, %kprof_row, %kprof_a, %kprof_b;
"""


def _address(buffer: str) -> str:
    """Split the buffer's address into ``%kprof_rows`` and, in ``%kprof_shift``, its lowest bits."""
    return f"""\
	ld.param.b64 %kprof_rows, [{buffer}];
	cvt.u32.u64 %kprof_shift, %kprof_rows;
	and.b32 %kprof_shift, %kprof_shift, {ADDRESS_ALIGNMENT - 1};
	and.b64 %kprof_rows, %kprof_rows, {-ADDRESS_ALIGNMENT};
"""


def _begin(buffer: str, cluster_ctas: int) -> str:
    cluster_bits = cluster_ctas.bit_length() - 1
    return f"""\
	.reg .pred %kprof_p;
	.reg .b32 %kprof_shift, %kprof_row, %kprof_a, %kprof_b, %kprof_cluster, %kprof_block;
	.reg .b64 %kprof_rows, %kprof_base, %kprof_c, %kprof_d;
{_address(buffer)}{_ROW}	shr.u32 %kprof_cluster, %kprof_row, {cluster_bits};
	shr.u32 %kprof_block, %kprof_cluster, %kprof_shift;
	mul.lo.u32 %kprof_a, %kprof_block, {HASH_FACTOR};
	shr.u32 %kprof_a, %kprof_a, {HASH_SHIFT};
	xor.b32 %kprof_a, %kprof_a, %kprof_cluster;
	mov.b32 %kprof_b, -1;
	shl.b32 %kprof_b, %kprof_b, %kprof_shift;
	not.b32 %kprof_b, %kprof_b;
	and.b32 %kprof_a, %kprof_a, %kprof_b;
	setp.eq.u32 %kprof_p, %kprof_a, 0;
	@%kprof_p bra $kprof_with;
$kprof_without:
"""


def _end(buffer: str) -> str:
    """Leave the end of the CTA's first warp, and the SM.

    The ends of all warps would cost two to three times as much, and a store instead of the reduction twice; where CTAs
    are very short, other threads that compute the address would cost as much as the write. The word only
    rises, so the host clears what a launch of another grid left there.
    """
    return f"""\
$kprof_ended:
	mov.u32 %kprof_a, %tid.x;
	setp.ne.u32 %kprof_p, %kprof_a, 0;
	@%kprof_p ret;
{_address(buffer)}{_ROW}	add.u32 %kprof_row, %kprof_row, 1;
	mul.wide.u32 %kprof_c, %kprof_row, {END_BYTES};
	sub.u64 %kprof_c, %kprof_rows, %kprof_c;
	mov.u32 %kprof_a, %smid;
	cvt.u64.u32 %kprof_base, %kprof_a;
	mov.u64 %kprof_d, %globaltimer;
	shl.b64 %kprof_d, %kprof_d, {SM_BITS};
	or.b64 %kprof_d, %kprof_d, %kprof_base;
	red.global.max.u64 [%kprof_c], %kprof_d;
	ret;
"""


# Proton's code adds the row's offset to the buffer's address: the row's number times its size, in 32 bits up to Triton
# 3.7, in 64 bits since.
_OFFSETS = {
    32: """\
	mul.lo.u32 %kprof_a, %kprof_row, {row_bytes};
	cvt.s64.s32 %kprof_c, %kprof_a;
""",
    64: """\
	mul.wide.u32 %kprof_c, %kprof_row, {row_bytes};
""",
}


def _base(row_bytes: int, cluster_ctas: int, offset_bits: int) -> str:
    """Compute the address to which Proton's code adds the offset of the CTA's row in a buffer with all rows."""
    return f"""\
$kprof_with:
	and.b32 %kprof_a, %kprof_row, {cluster_ctas - 1};
	shl.b32 %kprof_b, %kprof_block, {cluster_ctas.bit_length() - 1};
	add.u32 %kprof_a, %kprof_a, %kprof_b;
	mul.wide.u32 %kprof_c, %kprof_a, {row_bytes};
	add.u64 %kprof_base, %kprof_rows, %kprof_c;
{_OFFSETS[offset_bits].format(row_bytes=row_bytes)}	sub.u64 %kprof_base, %kprof_base, %kprof_c;
"""
