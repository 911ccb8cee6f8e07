"""Pipelines that execute instructions, in NVIDIA's SM and in AMD's compute unit, and what accesses take of the L1.

Source for NVIDIA: Nsight Compute, "Kernel Profiling Guide", "Pipelines"; CUDA Binary Utilities, "Instruction Set
Reference", which says what an opcode does. What neither lists is ``OTHER``. On an H100, the instructions of kernels
whose executions are known add up to what the hardware counted for a pipeline only if VIADD is one of FMA's, CS2R and
VHMNMX are ALU's, FCHK is XU's, and HFMA2.MMA, which also loads constants, is none of FMA's: it takes the tensor cores'
pipe, two a cycle. An instruction counts there even if its predicate disables all threads.

AMD's vector ALU executes integer and floating-point instructions of all widths, so they are all ``ALU``. Apart are what
the matrix units execute (``TENSOR``) and the transcendental functions (``XU``), which take several times as long, in
the same unit on CDNA. The scalar unit, which also reads scalar memory, is ``UNIFORM``. Sources: AMD, "ROCm Compute
Profiler", "Pipeline descriptions"; "AMD Instinct MI300 Instruction Set Architecture Reference Guide", table 12, "Trans
Ops". Writing back and invalidating caches counts as ``CONTROL``, as NVIDIA's fences do.

Widths of memory accesses: CUDA Binary Utilities, "Instruction Set Reference"; the modifiers are those of the PTX types.
"""

from __future__ import annotations

import re
from enum import Enum

from kprof_inject.machine_code.instructions import NEVER, Instruction


class Pipeline(Enum):
    """A pipeline, with its name in tables.

    ``CONTROL`` has branches, barriers and fences (ADU and CBU), and AMD's waits and scheduler instructions.
    ``FP16_MMA`` is called after its only opcode, which also loads constants.
    """

    TENSOR = "tensor"
    FMA = "FMA"
    FP16 = "fp16"
    FP16_MMA = "HFMA2.MMA"
    FP64 = "fp64"
    ALU = "ALU"
    XU = "special"
    LSU = "LSU"
    TMA = "TMA"
    UNIFORM = "uniform"
    CONTROL = "control"
    OTHER = "other"


_OPERATIONS = {
    Pipeline.TENSOR: """
        HMMA IMMA DMMA BMMA QMMA OMMA HGMMA IGMMA QGMMA BGMMA UTCHMMA UTCIMMA UTCQMMA UTCOMMA UTCMXQMMA""",
    # Integer multiply-adds are executed by FMAHeavy, a part of the FMA pipeline.
    Pipeline.FMA: """
        FADD FMUL FFMA FADD32I FMUL32I FFMA32I FADD2 FMUL2 FFMA2 IMAD IMUL IDP IDP4A VIADD""",
    Pipeline.FP16: """
        HADD2 HMUL2 HFMA2 HSETP2 HSET2 HADD2_32I HMUL2_32I HFMA2_32I""",
    Pipeline.FP64: """
        DADD DMUL DFMA DSETP""",
    Pipeline.ALU: """
        IADD3 IADD CS2R VHMNMX LOP3 LOP SHF SHL SHR LEA ISETP IMNMX VIMNMX VIMNMX3 VIADDMNMX IABS SEL MOV PRMT FSEL
        FSETP FSET FMNMX FMNMX3 FSWZADD SGXT BMSK PLOP3 P2R R2P F2FP I2FP I2IP CSET CSETP LOP32I IADD32I VABSDIFF
        MOV32I""",
    Pipeline.XU: """
        MUFU FCHK F2F F2I I2F I2I FRND POPC FLO BREV""",
    Pipeline.LSU: """
        LD LDG LDL LDS LDSM LDGSTS LDGMC ST STG STL STS STSM STAS ATOM ATOMG ATOMS RED REDG REDAS SHFL MATCH CCTL""",
    Pipeline.TMA: """
        UTMALDG UTMASTG UTMAREDG UTMAPF UBLKCP UBLKRED UBLKPF""",
    Pipeline.CONTROL: """
        BRA BRX BRXU JMP JMX CALL RET EXIT BSSY BSYNC BREAK BMOV WARPSYNC YIELD NOP BAR BPT RPCMOV NANOSLEEP LEPC KILL
        RTT DEPBAR LDGDEPBAR ARRIVES SYNCS MEMBAR FENCE ERRBAR CGAERRBAR WARPGROUP USETMAXREG ACQBULK PREEXIT""",
}
_PIPELINE_OF = {operation: pipeline for pipeline, words in _OPERATIONS.items() for operation in words.split()}

# AMD's, by how their names begin; the first pattern counts.
_AMD = re.compile(
    r"""(?P<TENSOR> v_(?:mfma|smfmac|wmma|swmmac)_ )
    | (?P<XU> v_(?:s_)?(?:exp|log|rcp|rsq|sqrt|sin|cos|tanh)_ )
    | (?P<ALU> v_ )
    | (?P<CONTROL>
        (?:buffer|global)_(?:inv|wb|gl[01]_inv)
        | s_(?:wait|barrier|branch|cbranch|call|swappc|setpc|rfe|endpgm|nop|sleep|delay_alu|clause|setprio|sendmsg|trap
            |sethalt|wakeup|set_inst_prefetch|inst_prefetch|set_vgpr_msb|icache|dcache) )
    | (?P<LSU> (?:buffer|tbuffer|global|flat|scratch|image|ds|cluster)_ )
    | (?P<TMA> tensor_ )
    | (?P<UNIFORM> s_ )""",
    re.VERBOSE,
)


def pipeline_of(one: Instruction) -> Pipeline:
    """Return the pipeline that executes an instruction."""
    if known := _PIPELINE_OF.get(one.operation):
        return Pipeline.FP16_MMA if known is Pipeline.FP16 and ".MMA" in one.opcode else known
    if (amd := _AMD.match(one.operation)) and amd.lastgroup:
        return Pipeline[amd.lastgroup]
    # The uniform datapath has the operations of the others with U before them: UIADD3, ULOP3, USHF.
    return Pipeline.UNIFORM if one.operation.startswith("U") or one.operation == "R2UR" else Pipeline.OTHER


_KINDS = {"LDG": "load", "LDGSTS": "load", "STG": "store"}
# Bytes of a thread, by the width in an opcode; without one, they are 4.
_BYTES = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
# CUDA C++ Programming Guide, "Shared Memory": 32 banks of 4 bytes serve a warp in a cycle.
_WAVEFRONT_BYTES, _LANES = 128, 32


def global_access(one: Instruction) -> tuple[str, int] | None:
    """Return ``load`` or ``store`` and the bytes of a thread; None for any other instruction."""
    kind = _KINDS.get(one.operation)
    return (kind, bytes_of_thread(one)) if kind and one.predicate != NEVER else None


def min_wavefronts(one: Instruction) -> int:
    """Return the L1 data path cycles of an LSU instruction without conflicts; 0 for other units' instructions.

    On an H100, kernels without conflicts had as many wavefronts (``l1tex__data_pipe_lsu_wavefronts``).
    """
    if pipeline_of(one) is not Pipeline.LSU or one.predicate == NEVER or one.operation == "CCTL":
        return 0
    if one.operation in ("LDSM", "STSM"):
        # Matrices of 8 x 8 elements of 16 bits, 128 bytes each: one, two or four of them.
        return {"2": 2, "4": 4}.get(one.opcode.rpartition(".")[2], 1)
    # Copies around the L1 are written to shared memory by another way: an H200 counted 1.1 to 1.5 each.
    return 1 if ".BYPASS" in one.opcode else wavefronts_of(bytes_of_thread(one))


def wavefronts_of(access_bytes: int) -> int:
    """Return the L1 data path cycles of a warp whose threads access adjacent bytes."""
    return max(access_bytes * _LANES // _WAVEFRONT_BYTES, 1)


def bytes_of_thread(one: Instruction) -> int:
    """Return the bytes that a thread accesses with an LSU instruction."""
    return next((_BYTES[part] for part in one.opcode.split(".") if part in _BYTES), 4)
