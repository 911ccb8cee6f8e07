"""Enable Proton's lowering of records for one compilation, and lower TTGIR text without a GPU.

Proton's lowering reads the counter for each record. A tag's records follow their carrier (``select.tags``), and no
lowering of Proton or Triton reorders operations with side effects, so the reads after a carrier are those of its tag.
As the last step before a module is translated to LLVM IR, their users get the carrier's value instead. The reads
remain, unused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import triton
from triton._C import libtriton
from triton._C.libtriton import ir, llvm, passes
from triton.backends import backends
from triton.backends.compiler import GPUTarget

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.resources import limits_of
from kprof_inject.capture.schema import RECORDS_OF_TAG, Target
from kprof_inject.errors import KprofError
from kprof_inject.runtime.compiling.compiler_messages import without_false_alarms
from kprof_inject.runtime.compiling.triton_caches import own_cache
from kprof_inject.runtime.compiling.two_bodies import FunctionRecord, with_one_body, with_two_bodies
from kprof_inject.runtime.versions import inline_helpers, installed_version
from kprof_inject.select.tags import CARRIER, HALF_CARRIER

_RECORDS_OF = {CARRIER: RECORDS_OF_TAG, HALF_CARRIER: 1}  # the number of records after each kind of carrier
# For each operation, the attribute with its text, and the texts that read a record's counter. Source: Proton's lowering
# of ReadCounterOp for NVIDIA (Triton 3.5 to 3.9), and for AMD (3.5 to 3.8; 3.9). NVIDIA's upper half is another read,
# which remains, because a value has 32 bits.
_INLINE_ASM, _INTRINSIC = "llvm.inline_asm", "llvm.call_intrinsic"
_NAMED_BY = {_INLINE_ASM: "asm_string", _INTRINSIC: "intrin"}
_READS = {
    _INLINE_ASM: ("mov.u32 $0, %clock;",),
    _INTRINSIC: ("llvm.amdgcn.s.memtime", "llvm.readcyclecounter"),
}


@contextmanager
def tag_values() -> Iterator[None]:
    """Store the values of tags in every compilation in this context.

    A compilation raises ``KprofError`` if it does not find the records of a tag.
    """
    before = llvm.to_module

    def to_module(module: Any, *arguments: Any) -> Any:
        _give_values(module)
        return before(module, *arguments)

    llvm.to_module = to_module
    try:
        yield
    finally:
        llvm.to_module = before


def _give_values(module: Any) -> None:
    carriers: list[tuple[Any, int, list[Any]]] = []

    def visit(operation: Any) -> None:
        name = operation.get_name()
        if name not in _NAMED_BY:
            return
        text = operation.get_str_attr(_NAMED_BY[name])
        if text in _RECORDS_OF:
            carriers.append((operation.get_result(0), _RECORDS_OF[text], []))
        elif text in _READS[name] and carriers and len(carriers[-1][2]) < carriers[-1][1]:
            carriers[-1][2].append(operation.get_result(0))

    module.walk(visit)
    for value, records, reads in carriers:
        if len(reads) < records:
            raise KprofError(
                "Triton's lowering has moved the records of a tag",
                hint="leave --tag out for this kernel; it is known to work with Triton 3.5 to 3.9",
            )
        for read in reads:
            read.replace_all_uses_with(value)


_BACKENDS = {"cuda": "nvidia", "hip": "amd"}

# Proton limits a buffer's size to its own choice for this much shared memory: large enough to limit none.
_ANY_SHARED_BYTES = 1 << 30


def shared_bytes_of(target: GPUTarget) -> int:
    """Return the shared memory that one CTA may use on this target, from our tables."""
    return limits_of(f"{target.backend}:{target.arch}").cta_shared_bytes


@contextmanager
def instrumented(target: GPUTarget, mode: Mode, shared_bytes: int) -> Iterator[None]:
    """Lower ``proton.record`` in every compilation in this context, each of a module with records.

    ``mode`` is the kernel's own (see ``mode_of_kernel``). If it does not set the buffer's size, Proton takes a share of
    ``shared_bytes``, the maximum for a CTA, less what the kernel uses. The compiler's output on stderr may contain
    false alarms: see ``without_false_alarms``. Raises ``KprofError`` for a mode that Proton cannot lower for the
    target.
    """
    backend = _BACKENDS[target.backend]
    version = installed_version()  # raises if this Triton was built without Proton
    if mode.buffer == "global" and backend not in version.global_buffer_on:
        raise KprofError(
            f"Triton {triton.__version__} cannot keep records in global memory on {backend.upper()}",
            hint="choose --buffer-type shared, or use Triton 3.7 or later",
        )
    mode.require_possible_on({target.backend})
    proton = libtriton.proton

    def to_llvmir(pass_manager: Any) -> None:
        proton.add_convert_proton_to_protongpu(
            pass_manager,
            proton.METRIC_TYPE.CYCLE,
            proton.SAMPLING_STRATEGY.SELECTIVE if mode.warps else proton.SAMPLING_STRATEGY.NONE,
            ",".join(map(str, mode.warps)),  # sampling options
            proton.GRANULARITY.WARP,
            proton.BUFFER_STRATEGY.CIRCULAR,
            getattr(proton.BUFFER_TYPE, mode.buffer.upper()),
            mode.buffer_bytes,
            _ANY_SHARED_BYTES if mode.buffer_bytes else shared_bytes,
            1,  # scratch bytes: at least one, the pass computes the rest
            128,  # scratch alignment, as Proton's own hook sets it
            mode.clock_bits == 64,  # clock extension: 43 bits of %clock64
        )
        passes.common.add_cse(pass_manager)
        if mode.sched_stores:
            proton.add_schedule_buffer_store(pass_manager)
        proton.add_allocate_proton_shared_memory(pass_manager)
        if mode.sched_barriers:
            proton.add_sched_barriers(pass_manager)
        for name in version.to_llvmir_passes:
            getattr(proton, name)(pass_manager)

    def to_llvm(pass_manager: Any) -> None:
        for name in version.to_llvm_passes:
            getattr(proton, name)(pass_manager)
        if backend == "nvidia":
            proton.add_convert_proton_nvidia_gpu_to_llvm(pass_manager)
        else:
            proton.add_convert_proton_amd_gpu_to_llvm(pass_manager, str(target.arch))

    with version.attach(backend, to_llvmir, to_llvm):
        yield


@contextmanager
def keeping_body(
    clean_ptx: str, cluster_ctas: int, max_registers: int | None = None, function: FunctionRecord | None = None
) -> Iterator[None]:
    """Keep the body without records in every kernel that is compiled with records in this context.

    ``clean_ptx`` is the kernel's PTX without records. Then a launch may have a sample of its CTAs record
    (``two_bodies``), and a thread has at most ``max_registers``. If the ``function`` is all that is recorded, there is
    no other body. A compilation raises ``KprofError`` if it cannot have both bodies.
    """
    compiler, offset_bits = backends["nvidia"].compiler, installed_version().offset_bits
    if offset_bits is None:
        raise KprofError(f"Triton {triton.__version__} does not record when CTAs begin and end")
    original = vars(compiler)["make_ptx"]

    def make_ptx(self: Any, source: Any, metadata: Any, *arguments: Any) -> Any:
        recorded = original(self, source, metadata, *arguments)
        row_bytes = metadata["profile_scratch_size"]
        if function is not None:
            return with_one_body(clean_ptx, recorded, row_bytes, cluster_ctas, function, max_registers)
        return with_two_bodies(clean_ptx, recorded, row_bytes, cluster_ctas, offset_bits, max_registers)

    compiler.make_ptx = make_ptx
    try:
        yield
    finally:
        compiler.make_ptx = original


def scope_names(ttgir_path: str, target: GPUTarget) -> dict[int, str]:
    """Return Proton's table of scope ids: the record name of each id. Two ids may have the same name.

    Proton assigns the ids late in Triton's lowering, when ``scf`` is gone and helper functions are inlined.
    """
    module = read_module(ttgir_path, target)
    with without_false_alarms():
        inline_helpers(module)
        return {int(scope_id): str(name) for scope_id, name in libtriton.proton.get_scope_id_names(module)}


def read_module(ttgir_path: str, target: GPUTarget) -> Any:
    """Parse and verify a file with Triton's own parser.

    Raises ``RuntimeError`` if Triton rejects the file; MLIR prints the reason on stderr.
    """
    context = ir.context()
    ir.load_dialects(context)
    backends[_BACKENDS[target.backend]].compiler(target).load_dialects(context)
    libtriton.proton.load_dialects(context)
    module = ir.parse_mlir_module(ttgir_path, context)
    module.context = context  # keeps the context alive as long as the module
    return module


# Instructions that read the cycle counter once. Sources: PTX ISA, "Special Registers"; AMD CDNA3 ISA, section 6; for
# gfx1250, LLVM's lowering of ``llvm.readcyclecounter``.
_CLOCK_READ = {
    "cuda": re.compile(r"mov\.u32\s+%\w+, %clock;"),
    "hip": re.compile(r"\bs_(?:memtime|get_shader_cycles_u64)\b"),
}
_ASSEMBLY = {"cuda": "ptx", "hip": "amdgcn"}


def require_clock_reads(kernel: Any, target: GPUTarget) -> None:
    """Raise ``KprofError`` if a kernel compiled with records never reads the clock."""
    if not _clock_reads(kernel, target):
        raise KprofError(
            f"Triton {triton.__version__} lowers the records for {target.backend}:{target.arch} without reading the "
            "clock",
            hint="try another Triton version",
        )


def _clock_reads(kernel: Any, target: GPUTarget) -> int:
    return len(_CLOCK_READ[target.backend].findall(kernel.asm[_ASSEMBLY[target.backend]]))


_KERNEL = re.compile(r'"?tt\.func"?(?!\s+private\b)')


@dataclass(frozen=True, slots=True)
class Lowered:
    """Result of the compiler.

    ``assembly`` is PTX or AMDGCN, ``binary`` a cubin or hsaco. ``clock_reads`` is the number of instructions that read
    the cycle counter. ``metadata`` is Triton's (``profile_scratch_size``, ``shared`` and others).
    """

    assembly: str
    binary: bytes
    clock_reads: int
    metadata: dict[str, Any]


def target_of(target: Target) -> GPUTarget:
    """Convert a target to Triton's type."""
    return GPUTarget(target.backend, target.arch, target.warp_size)


def lower(text: str, target: GPUTarget, options: dict[str, Any], mode: Mode) -> Lowered:
    """Compile TTGIR text with records for ``target``.

    Raises ``KprofError`` if Triton or Proton refuses it. Proton does so unless all helper functions can be inlined (see
    ``lowerable``).
    """
    values = tag_values() if any(carrier in text for carrier in _RECORDS_OF) else nullcontext()
    with instrumented(target, mode, shared_bytes_of(target)), values, without_false_alarms():
        kernel = _compiled(text, target, options)
    require_clock_reads(kernel, target)
    return _lowered(kernel, target)


def lower_without_records(text: str, target: GPUTarget, options: dict[str, Any]) -> Lowered:
    """Compile TTGIR text without records. Raises ``KprofError`` if Triton refuses it."""
    return _lowered(_compiled(text, target, options), target)


def _compiled(text: str, target: GPUTarget, options: dict[str, Any]) -> Any:
    # In a module without a kernel, Triton reads the signature of a function that does not exist, and crashes.
    if not _KERNEL.search(text):
        raise KprofError("the module has no public tt.func to lower", hint="give a .ttgir file as Triton writes it")
    with own_cache() as cache:
        path = cache / "kernel.ttgir"
        path.write_bytes(text.encode())
        try:
            return triton.compile(str(path), target=target, options=options)
        except Exception as error:  # the compiler's errors have no common base
            raise KprofError(
                f"Triton {triton.__version__} does not lower this module for {target.backend}:{target.arch}: {error}",
                hint="the compiler's own messages are above; the module may come from another Triton version",
            ) from error


def _lowered(kernel: Any, target: GPUTarget) -> Lowered:
    return Lowered(
        kernel.asm[_ASSEMBLY[target.backend]],
        kernel.kernel,
        _clock_reads(kernel, target),
        json.loads(json.dumps(kernel.metadata._asdict(), default=vars)),
    )
