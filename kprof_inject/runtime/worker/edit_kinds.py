"""The kinds of edits (options, stages of loops, the compiler's environment, constants), and how they are combined."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from kprof_inject.capture.edits import Edit
from kprof_inject.capture.resources import ctas_per_sm, limits_of
from kprof_inject.errors import KprofError, did_you_mean
from kprof_inject.rewrite import Replacement, spliced
from kprof_inject.runtime.worker.edit import EditKind, EditRefused, KernelToEdit, number_in
from kprof_inject.runtime.worker.program_order import PROGRAM_ORDER
from kprof_inject.ttgir.locations import LocationTable
from kprof_inject.ttgir.nodes import Operation

# LLVM's loop strength reduction is off, which "is known to cause up to 10% performance changes for certain kernels with
# register pressure" (Triton's README).
_SWITCH = "DISABLE_LLVM_OPT=disable-lsr"

_MAX_STAGES = 8
_MAX_PROPOSED_STAGES = 6
_LOOP = re.compile(r"\bscf\.for\b")

# A CTA has at most 1024 threads (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
_MAX_WARPS = 32
_MAX_PROPOSED_WARPS = 16
_WARP_SPECIALIZED = ("ttg.warp_specialize", "tt.warp_specialize", "nvws.")

# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability": registers per thread.
_MAX_REGISTERS = 255
_MIN_REGISTERS = 24
_UNIT = 8  # the hardware allocates 256 registers for a warp at a time, so a thread gets a multiple of 8


def _numbers(least: int, wanted: Sequence[int], most: int) -> list[str]:
    return [str(number) for number in wanted if least <= number <= most]


def _other_stages(kernel: KernelToEdit, *more: int) -> list[str]:
    present = kernel.number("num_stages")
    wanted = [present + one for one in more] if present and _LOOP.search(kernel.ttir) else []
    return _numbers(1, wanted, max(present, _MAX_PROPOSED_STAGES))


def _with_warps(kernel: KernelToEdit, value: str) -> KernelToEdit:
    warps = number_in(value, 1, _MAX_WARPS)
    if warps & (warps - 1):
        raise EditRefused(f"{value} is not a power of two")
    if any(word in text for word in _WARP_SPECIALIZED for text in (kernel.ttir, kernel.ttgir)):
        raise EditRefused("its partitions have their own numbers of warps (warp specialization)")
    return kernel.with_option("num_warps", warps)


def _fewer_registers(kernel: KernelToEdit) -> list[str]:
    """Return the most registers with which an SM holds one CTA more; none if something else limits their number."""
    clean, warps = kernel.clean, kernel.number("num_warps")
    if not clean.registers or not warps or kernel.record.target is None or kernel.record.target.backend != "cuda":
        return []
    limits, shared_bytes = limits_of(str(kernel.record.target)), clean.shared_bytes or 0
    present = ctas_per_sm(limits, shared_bytes, warps, clean.registers)
    for registers in range(clean.registers // _UNIT * _UNIT, _MIN_REGISTERS - 1, -_UNIT):
        if registers < clean.registers and ctas_per_sm(limits, shared_bytes, warps, registers) > present:
            return [str(registers)]
    return []


def _with_registers(kernel: KernelToEdit, value: str) -> KernelToEdit:
    if kernel.record.target is None or kernel.record.target.backend != "cuda":
        raise EditRefused("only NVIDIA's backend has this option")
    return kernel.with_option("maxnreg", number_in(value, _MIN_REGISTERS, _MAX_REGISTERS))


def _with_switch(kernel: KernelToEdit, value: str) -> KernelToEdit:
    if value != _SWITCH:
        raise EditRefused(f"{value} is not {_SWITCH}")
    return kernel.with_variable(*value.split("="))


def _with_constants(kernel: KernelToEdit, value: str) -> KernelToEdit:
    found = next((one for one in kernel.others if one.text == value), None)
    if found is None:
        raise EditRefused("the program was not run with --values for these")
    if found.refusal:
        raise EditRefused(found.refusal)
    if found.grid is None:
        raise EditRefused("the program gives no function for its grid: name the grid with --grid")
    return replace(kernel.to_recompile(), ttir=found.ttir, grid=found.grid, constants=found.values)


# Triton pipelines the loads of loops without dots only if the source sets their number of stages: ``tl.range(...,
# num_stages=N)`` writes it as an attribute of the loop in TTIR (Triton's ``kNumStagesAttrName``).
_ATTRIBUTE = re.compile(r"(?<![\w.])tt\.num_stages(?![\w.])(?: = (\d+))?(?: : i32)?")
_LOADS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
# In the printed form, attributes are between the brace that closes the loop and its location.
_DICTIONARY = re.compile(r"\}\s*\{(?P<attributes>[^{}]*)\}")


def _more_loop_stages(kernel: KernelToEdit) -> list[str]:
    """Return the usual numbers of stages for loops without dots, then one stage more of each of several loops."""
    proposed = ["2", "3", "4"] if _without_stages(kernel) else []
    by_line = _stages_by_line(kernel)
    return [*proposed, *(f"{line}:{stages + 1}" for line, stages in by_line if stages < _MAX_PROPOSED_STAGES)]


def _with_loop_stages(kernel: KernelToEdit, value: str) -> KernelToEdit:
    """Set the attribute in the TTIR: of loops without dots, or of the loop at a line, which may call its helper."""
    line, is_at_line, number = value.rpartition(":")
    stages = number_in(number, 1 if is_at_line else 2, _MAX_STAGES)
    kernel = kernel.to_recompile()
    try:
        kernel.parsed("ttir")
    except KprofError as error:
        raise EditRefused(error.what) from None
    if is_at_line:
        loops = [loop for loop, lines in _loops_that_load(kernel) if line in map(str, lines)]
        if not loops:
            raise EditRefused(f"it has no innermost loop that loads at line {line}, nor in a helper called there")
    else:
        loops = _without_stages(kernel)
        if not loops:
            raise EditRefused("it has no loop that loads without dots, or the source has chosen their stages")
    attribute = f"tt.num_stages = {stages} : i32"
    return replace(kernel, ttir=spliced(kernel.ttir, [_edit_of(loop, attribute) for loop in loops]))


def _loops_that_load(kernel: KernelToEdit) -> list[tuple[Operation, list[int]]]:
    """Return the innermost ``scf.for`` of the TTIR with loads, and the lines of each in the source.

    The lines are its own, then that of the call which inlined it, and so on. There are no loops if there is no TTIR, or
    it is not understood.
    """
    try:
        module = kernel.parsed("ttir") if kernel.ttir else None
    except KprofError:
        module = None
    if module is None:
        return []
    table, found = LocationTable(module), []
    for loop in module.walk():
        inside = _inside(loop) if loop.name == "scf.for" else []
        if any(one.name in _LOADS for one in inside) and not any(one.traits.is_loop for one in inside):
            try:
                chains = table.chains_of(loop)
            except KprofError:  # an alias that refers to itself
                chains = ()
            found.append((loop, [point.line for point in chains[0]] if chains else []))
    return found


def _inside(loop: Operation) -> list[Operation]:
    return [operation for operation in loop.walk() if operation is not loop]


def _has_dots(loop: Operation) -> bool:
    return any(operation.traits.is_dot for operation in _inside(loop))


def _without_stages(kernel: KernelToEdit) -> list[Operation]:
    return [loop for loop, _ in _loops_that_load(kernel) if not _has_dots(loop) and _stages_of(loop) is None]


def _stages_by_line(kernel: KernelToEdit) -> list[tuple[int, int]]:
    """Return a line that no other loop has, and the number of stages, of each loop that loads; none of a single one."""
    loops = _loops_that_load(kernel)
    counts = Counter(line for _, lines in loops for line in lines)
    found = []
    for loop, lines in loops if len(loops) > 1 else ():
        own = next((line for line in lines if counts[line] == 1), None)
        if own is not None:
            found.append((own, _stages_of(loop) or (kernel.number("num_stages") if _has_dots(loop) else 1)))
    return found


def _stages_of(loop: Operation) -> int | None:
    attributes = _DICTIONARY.match(loop.closing)
    found = _ATTRIBUTE.search(attributes["attributes"]) if attributes else None
    return int(found[1] or 0) if found else None


def _edit_of(loop: Operation, attribute: str) -> Replacement:
    closing = loop.regions[-1].end
    found = _DICTIONARY.match(loop.closing)
    if found is None:
        return closing + 1, closing + 1, f" {{{attribute}}}"
    start, attributes = closing + found.start("attributes"), found["attributes"]
    if present := _ATTRIBUTE.search(attributes):
        return start + present.start(), start + present.end(), attribute
    return start, start, f"{attribute}, " if attributes.strip() else attribute


def _range_to_write(value: str) -> str:
    line, _, stages = value.rpartition(":")
    loops = f"the loop at line {line}" if line else "loops that load without dots"
    return f"tl.range(..., num_stages={stages}) in {loops}"


OTHER_CONSTANTS = "values"  # name of the kind that takes other values of constants

_ALL = (
    EditKind(
        OTHER_CONSTANTS,
        "constants that --values has named, such as BLOCK_M=64,BLOCK_N=128",
        _with_constants,
        lambda kernel: [one.text for one in kernel.others],
    ),
    EditKind(
        "num_stages",
        f"1 to {_MAX_STAGES}",
        lambda kernel, value: kernel.with_option("num_stages", number_in(value, 1, _MAX_STAGES)),
        lambda kernel: _other_stages(kernel, 1, 2),
        lambda kernel: _other_stages(kernel, -1, -2),
    ),
    EditKind(
        "loop_stages",
        f"2 to {_MAX_STAGES} for loops without dots, or LINE:N, with N from 1, for the loop at a line",
        _with_loop_stages,
        _more_loop_stages,
        # One stage less of each of several loops. Without the attribute, loops without dots have no stages.
        lambda kernel: [f"{line}:{stages - 1}" for line, stages in _stages_by_line(kernel) if stages > 1],
        _range_to_write,
    ),
    EditKind(
        "num_warps",
        f"a power of two from 1 to {_MAX_WARPS}",
        _with_warps,
        lambda kernel: _numbers(1, [kernel.number("num_warps") * more for more in (2, 4, 8, 16)], _MAX_PROPOSED_WARPS),
        lambda kernel: _numbers(1, [kernel.number("num_warps") // less for less in (2, 4)], _MAX_WARPS),
    ),
    EditKind(
        "maxnreg",
        f"{_MIN_REGISTERS} to {_MAX_REGISTERS}",
        _with_registers,
        # Without the option, the compiler takes as many as it needs.
        lambda kernel: [str(_MAX_REGISTERS)] if kernel.record.options.get("maxnreg") else [],
        _fewer_registers,
    ),
    EditKind(
        "env",
        _SWITCH,
        _with_switch,
        lambda kernel: [] if _SWITCH.partition("=")[0] in kernel.record.environment else [_SWITCH],
    ),
    PROGRAM_ORDER,
)
KINDS: dict[str, EditKind] = {kind.name: kind for kind in _ALL}
"""The kinds by name, in the order in which edits are made: each may change the text that the next one edits."""

_BETWEEN_EDITS = re.compile(rf",(?=(?:{'|'.join(KINDS)})=)")  # A value may have commas, too


def parse_edits(text: str) -> tuple[Edit, ...]:
    """Return the edits that a user writes as ``NAME=VALUE,NAME=VALUE``, to try together.

    Raises ``KprofError``; the values are checked later.
    """
    edits = []
    for part in _BETWEEN_EDITS.split(text):
        name, _, value = part.partition("=")
        kind = KINDS.get(name)
        if kind is None:
            known = f"{did_you_mean(name, KINDS) or 'the edits are '}{', '.join(KINDS)}"
            raise KprofError(f"there is no edit {name!r}", hint=known, exit_code=2)
        if not value:
            raise KprofError(f"the edit {name} has no value", hint=f"{name}=VALUE: {kind.values}", exit_code=2)
        edits.append(Edit(name, value))
    if len({edit.kind for edit in edits}) < len(edits):
        raise KprofError(f"{text} has an edit twice", hint="try these one after the other", exit_code=2)
    return tuple(edits)


def with_options(kernel: KernelToEdit, edits: Sequence[Edit]) -> KernelToEdit:
    """Return the kernel with the edits of its options. Raises ``EditRefused``."""
    for edit in _in_order(edits):
        if not KINDS[edit.kind].edits_ttgir:
            kernel = KINDS[edit.kind].applied(kernel, edit.value)
    return kernel


def with_ttgir_edited(kernel: KernelToEdit, edits: Sequence[Edit]) -> KernelToEdit:
    """Return the kernel with the edits of its TTGIR, which edits of its options have to precede.

    Raises ``EditRefused``.
    """
    for edit in _in_order(edits):
        if KINDS[edit.kind].edits_ttgir:
            try:
                kernel = KINDS[edit.kind].applied(kernel, edit.value)
            except KprofError as error:  # the TTGIR is not understood
                raise EditRefused(error.what) from None
    return kernel


def _in_order(edits: Sequence[Edit]) -> list[Edit]:
    order = list(KINDS)
    return sorted(edits, key=lambda edit: order.index(edit.kind))


def in_source(edits: Sequence[Edit]) -> str:
    """Return what to write in the kernel's source for edits that no option and no variable makes."""
    return "; ".join(found for edit in edits if (found := KINDS[edit.kind].source(edit.value)))


def changes_ttgir(edits: Sequence[Edit]) -> bool:
    """Return whether any of the edits changes the text of the TTGIR."""
    return any(KINDS[edit.kind].edits_ttgir for edit in edits)
