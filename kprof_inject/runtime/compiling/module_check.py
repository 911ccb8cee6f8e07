"""Check a parsed module with Triton (it is valid and compiles), and measure its compiled resources.

This module does not import Triton, which may not be installed; the child process that compiles does.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kprof_inject.capture.mode import Mode
from kprof_inject.capture.resources import KernelResources, ctas_per_sm, limits_of
from kprof_inject.capture.schema import Target
from kprof_inject.errors import KprofError, Position
from kprof_inject.packages import is_installed
from kprof_inject.runtime.child_process import CompilerProcess
from kprof_inject.runtime.compiling.compiler_messages import errors_in
from kprof_inject.select.module_view import lowerable
from kprof_inject.ttgir.dialect import EVENT, FUNCTION, MODULES, RECORD, RECORD_TAIL, RECORDS
from kprof_inject.ttgir.nodes import Module

if TYPE_CHECKING:  # it imports Triton
    from kprof_inject.runtime.compiling.instrumentation import Lowered

_TARGET = re.compile(r'\bttg\.target"?\s*=\s*"([^"]*)"')
_WARP_SIZE = re.compile(r'\bttg\.threads-per-warp"?\s*=\s*(\d+)')
_KNOWN = re.compile(r"(?:(cuda):(\d+)|(hip):(gfx\w+))")

_DEFAULT_WARP_SIZE = 32  # Triton's default for a module without the attribute


def module_target(module: Module) -> Target:
    """Return the target that ``ttg.target`` and ``ttg.threads-per-warp`` specify.

    Raises ``KprofError`` for a file without a target, or with one that we cannot compile for.
    """
    root = module.operations[0]
    where = module.position(root.start)
    if len(module.operations) != 1 or root.name not in MODULES:
        raise KprofError(
            "the functions of this file are outside of a module, so their target is unknown",
            where=where,
            hint="give the whole file as Triton writes it",
        )
    # In the generic form, the attributes follow the region.
    attributes = f"{root.tail} {root.closing}"
    found = _TARGET.search(attributes)
    if found is None:
        hint = 'its attributes must name it: ttg.target = "cuda:90"'
        raise KprofError("the module does not name its target", where=where, hint=hint)
    known = _KNOWN.fullmatch(found[1])
    if known is None:
        hint = 'it can for targets such as "cuda:90" and "hip:gfx942"'
        raise KprofError(f"kprof-inject cannot compile for the target {found[1]!r}", where=where, hint=hint)
    warp_size = _WARP_SIZE.search(attributes)
    size: Any = int(warp_size[1]) if warp_size else _DEFAULT_WARP_SIZE  # Triton refuses a size that no GPU has
    if known[1]:
        return Target("cuda", int(known[2]), size)
    return Target("hip", known[4], size)


_LOCATION = re.compile(r" loc\(#[\w$.-]+\)$")
# Triton adds this command to an assembler's messages, but its files no longer exist.
_REPRODUCER = re.compile(r"\s*^Repro command: .*", re.MULTILINE | re.DOTALL)
_INVALID_HINT = "it may come from another Triton version: check it with the one that wrote it"
_REFUSED_HINT = "the module is valid; if another Triton version wrote it, check it with that one"


@dataclass(frozen=True, slots=True)
class ModuleCheck:
    """Result of checking one file. Numbers are None from the step that failed on; ``error`` is its error."""

    file: str
    target: Target | None = None
    functions: int | None = None
    operations: int | None = None
    records: int | None = None
    clock_reads: int | None = None
    binary_bytes: int | None = None
    registers: int | None = None
    """Registers of a thread; None without the vendor's tools, too, as for ``spills``, its spilled words."""
    spills: int | None = None
    error: KprofError | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the result for ``--json``."""
        return {
            **{field.name: getattr(self, field.name) for field in fields(self)},
            "target": self.target and str(self.target),
            "error": self.error and self.error.what,
            "where": self.error and self.error.where and str(self.error.where),
        }


def check_module(module: Module, compiler: CompilerProcess, time_limit_s: float) -> ModuleCheck:
    """Verify the module with Triton, and compile it for its own target."""
    names = [operation.name for operation in module.walk()]
    records = sum(map(names.count, RECORDS))
    check = ModuleCheck(module.file, functions=names.count(FUNCTION), operations=len(names), records=records)
    deadline = time.monotonic() + time_limit_s
    try:
        target = module_target(module)
        check = replace(check, target=target)

        def ask(task: Callable[..., Any], text: str, *arguments: Any) -> Any:
            left_s = deadline - time.monotonic()
            return compiler.ask(task, text, module.file, target, *arguments, time_limit_s=left_s, target=target)

        ask(require_valid, text_without_locations(module))
        _require_partners(module)
        has_records = bool(records) or EVENT in names
        text = lowerable(module) if has_records else module.text
        facts: MachineCodeFacts = ask(machine_code_facts, text, has_records)
        return replace(check, **facts._asdict())
    except KprofError as error:
        return replace(check, error=_placed(error, module))


def require_valid(text: str, file: str, target: Target, written: Path) -> None:
    """Raise ``KprofError`` if Triton's parser rejects a text."""
    import triton

    from kprof_inject.runtime.compiling.instrumentation import read_module, target_of

    path = written.with_name("kernel.ttgir")
    path.write_bytes(text.encode())
    try:
        read_module(str(path), target_of(target))
    except RuntimeError as error:
        raise _refusal(f"Triton {triton.__version__} rejects this file", error, _INVALID_HINT, file, written) from None


class MachineCodeFacts(NamedTuple):
    """Facts about a text's machine code: registers and spilled words are a thread's, None if they are unknown."""

    binary_bytes: int
    clock_reads: int
    registers: int | None
    spills: int | None


def machine_code_facts(text: str, file: str, target: Target, has_records: bool, written: Path) -> MachineCodeFacts:
    """Compile a text. Raises ``KprofError`` if the compiler refuses."""
    import triton

    from kprof_inject.runtime.compiling.instrumentation import lower, lower_without_records, target_of

    try:
        if has_records:
            lowered = lower(text, target_of(target), {}, Mode())
        else:
            lowered = lower_without_records(text, target_of(target), {})
    except KprofError as error:
        if error.__cause__ is None:  # not an error of the compiler
            raise
        what = f"Triton {triton.__version__} does not lower this module for {target}"
        raise _refusal(what, error.__cause__, _REFUSED_HINT, file, written) from None
    return MachineCodeFacts(len(lowered.binary), lowered.clock_reads, *_used(lowered, target))


def _require_partners(module: Module) -> None:
    """Raise ``KprofError`` for a record without a start or an end, which Triton compiles and we cannot decode."""
    records = [
        (found["edge"], found["name"], operation.start)
        for operation in module.walk()
        if operation.name == RECORD and (found := RECORD_TAIL.match(operation.tail))
    ]
    edges = {(edge, name) for edge, name, _ in records}
    for edge, name, offset in records:
        partner = "end" if edge == "start" else "start"
        if (partner, name) not in edges:
            raise KprofError(
                f"the record {name} has no {partner}",
                where=module.position(offset),
                hint="remove all records with 'kprof-inject strip', and insert them again",
            )


def _refusal(what: str, cause: BaseException, hint: str, file: str, written: Path) -> KprofError:
    for message in errors_in(written.read_bytes()):
        ours = Path(message.file).is_relative_to(written.parent)
        where = Position(file if ours else message.file, message.line, message.column) if message.file else None
        return KprofError(f"{what}: {message.text}", where=where, hint=hint)
    return KprofError(f"{what}: {_REPRODUCER.sub('', str(cause))}", hint=hint)


def text_without_locations(module: Module) -> str:
    """Return the text without locations, so that Triton's messages name lines of the text itself.

    Line and column numbers do not change.
    """
    pieces: list[str] = []
    done = 0
    for end in sorted(operation.end for operation in module.walk()):
        start = max(module.line_start(end - 1), done)
        last_line = module.text[start:end]
        printed = last_line.rstrip()
        pieces += [module.text[done:start], _LOCATION.sub("", printed), last_line[len(printed) :]]
        done = end
    return "".join([*pieces, module.text[done:]])


def _placed(error: KprofError, module: Module) -> KprofError:
    """Add the line of text to an error in the module's file, or the file's name to an error elsewhere."""
    where = error.where
    if where is None or where.file != module.file:
        return KprofError(f"{module.file}: {error.what}", where=where, hint=error.hint)
    lines = module.text.split("\n")
    text = lines[where.line - 1].rstrip("\r") if where.line <= len(lines) else ""
    return KprofError(error.what, where=replace(where, text=text), hint=error.hint)


TIME_LIMIT_S = 120

_FUNCTION = re.compile(r"Function (\S+):\s*REG:(\d+) STACK:(\d+)")  # as ``cuobjdump --dump-resource-usage`` prints it
_VGPRS = re.compile(r"\.vgpr_count:\s*(\d+)")
_SPILLED_VGPRS = re.compile(r"\.vgpr_spill_count:\s*(\d+)")


def module_resources(module: Module, text: str, triton: Path | None = None) -> KernelResources | None:
    """Return the resources of ``text``, which is the text of ``module`` or made from it; None without Triton.

    ``triton`` is a folder with the package, if it is not the installed one. Without the vendor's tools, the registers
    are unknown. Raises ``KprofError`` if Triton refuses the module or exceeds the time limit.
    """
    if triton is None and not is_installed("triton"):
        return None
    target = module_target(module)
    # A process for each module: some versions of Triton keep settings of an earlier target.
    with CompilerProcess(triton) as compiler:
        found: KernelResources = compiler.ask(_resources_in_child, text, target, time_limit_s=TIME_LIMIT_S)
    return found


def _resources_in_child(text: str, target: Target, written: Path) -> KernelResources:
    lowered = lowered_in_child(text, target, {}, written)
    registers, spills = _used(lowered, target)
    shared_bytes, warps = lowered.metadata["shared"], lowered.metadata["num_warps"]
    limits = limits_of(str(target))
    is_known = registers is not None and limits.registers
    ctas = ctas_per_sm(limits, shared_bytes, warps, registers) if is_known else None
    return KernelResources(registers, spills, shared_bytes=shared_bytes, ctas_per_sm=ctas)


def lowered_in_child(text: str, target: Target, options: dict[str, Any], written: Path) -> Lowered:
    """Compile a text without records, in a task whose output goes to ``written``.

    Raises ``KprofError`` with the compiler's first error if it refuses.
    """
    import triton

    from kprof_inject.runtime.compiling.instrumentation import lower_without_records, target_of

    try:
        return lower_without_records(text, target_of(target), options)
    except KprofError as error:
        errors = [message.text for message in errors_in(written.read_bytes())[:1]]
        raise KprofError(": ".join([f"Triton {triton.__version__} does not lower it", *errors])) from error


def printed_by(tool: str, *options: str, cubin: bytes) -> str:
    """Return what a tool prints of a cubin. Raises ``OSError`` and ``CalledProcessError``."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, *options, file.name], capture_output=True, text=True, check=True).stdout


def _used(lowered: Lowered, target: Target) -> tuple[int | None, int | None]:
    """Return a thread's registers and spilled words, which NVIDIA's tool and AMD's assembly tell."""
    if target.backend != "cuda":
        vgprs, spilled = _VGPRS.search(lowered.assembly), _SPILLED_VGPRS.search(lowered.assembly)
        return vgprs and int(vgprs[1]), spilled and int(spilled[1])
    from triton import knobs

    from kprof_inject.runtime.devices.cuda_driver import spilled_words

    try:
        printed = printed_by(knobs.nvidia.cuobjdump.path, "--dump-resource-usage", cubin=lowered.binary)
    except (OSError, RuntimeError, subprocess.CalledProcessError):  # some builds of Triton lack the tool
        return None, None
    for name, registers, stack_bytes in _FUNCTION.findall(printed):
        if name == lowered.metadata["name"]:
            return int(registers), spilled_words(int(stack_bytes) // 4, lowered.assembly)
    return None, None
