"""Wrap Triton's compiler, name the variants that it makes of a kernel, and make others of its constants' values."""

from __future__ import annotations

import errno
import functools
import hashlib
import inspect
import json
import os
import re
import tempfile
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import triton
import triton.compiler
import triton.compiler.compiler
from triton import knobs
from triton._C.libtriton import get_cache_invalidating_env_vars, ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource, IRSource, make_backend
from triton.runtime.cache import get_override_manager
from triton.runtime.driver import driver

from kprof_inject.capture.edits import MAX_COMBINATIONS, OtherValues, Values, WantedValues, combinations
from kprof_inject.capture.schema import DumpedKernelRecord, Target
from kprof_inject.packages import is_installed_file
from kprof_inject.runtime.faults import first_line
from kprof_inject.ttgir.strings import without_locations
from kprof_inject.workspace import DumpedKernel, Workspace

Compile = Callable[..., Any]

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_MODULES = (triton.compiler.compiler, triton.compiler, triton)


def with_room(compile: Compile) -> Compile:
    """Return a compiler that uses a temporary cache if the workspace's disk is full.

    Without us the program would not fail: its own cache may be on another disk, which has room.
    """

    @functools.wraps(compile)
    def compile_somewhere(*args: Any, **kwargs: Any) -> Any:
        try:
            return compile(*args, **kwargs)
        except OSError as error:
            if error.errno not in _NO_ROOM:
                raise
        with tempfile.TemporaryDirectory(prefix="kprof-inject-") as folder, knobs.cache.scope():
            knobs.cache.dir = folder
            return compile(*args, **kwargs)

    return compile_somewhere


_lock = threading.RLock()


def compiling_alone() -> AbstractContextManager[bool]:
    """Keep other threads from compiling: the process has one set of Triton's knobs, and of the backend's passes."""
    return _lock


def _begin_in_child() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_begin_in_child)


def wrap_compiler(around: Callable[[Compile, Any, Any], Any]) -> Callable[[], None]:
    """Call ``around(original, args, kwargs)`` for every compilation of this process; return a function that ends that.

    Triton's ``jit`` looks up ``compile`` in ``triton.compiler`` at each first launch, Inductor in ``triton``, so both
    names are replaced.
    """
    original: Compile = triton.compiler.compiler.compile

    state = {"around": around}

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        # A kernel function that is launched meanwhile keeps a reference to this wrapper.
        around = state.get("around")
        return around(original, args, kwargs) if around else original(*args, **kwargs)

    def unwrap() -> None:
        state.clear()
        for module in _MODULES:
            if module.compile is compile:
                module.compile = original

    for module in _MODULES:
        module.compile = compile
    return unwrap


_UNSAFE = re.compile(r"[^\w.-]")
_IR_OVERRIDE = "ir_override"
"""Triton's name of the option for a file that replaces a stage, and our name for one that is put in place otherwise."""
# Triton truncates its file names to this length (compiler.py, "255 character limit").
_FILE_NAME_LENGTH = 150
_STAGES = ("ttir", "ttgir", "llir", "ptx", "amdgcn", "cubin", "hsaco")


def variant_of(
    workspace: Workspace, source: Any, target: GPUTarget, given: Mapping[str, Any], texts: Mapping[str, Any]
) -> DumpedKernel:
    """Return the variant that the compiler made of a source with the ``given`` options.

    ``texts`` is the compiled kernel's ``asm``.

    Triton keys its dump and override folders by the source hash, which omits ``num_warps``, ``num_stages`` and every
    other compile option: two configurations of an autotuner share a key. A variant's name includes a digest of all
    options.
    """
    backend = make_backend(target)
    put_in_place = [source] if isinstance(source, str) else []
    if isinstance(source, str):
        context = ir.context()  # does not outlive this name, and the source needs it
        source = IRSource(source, context, backend)
    options = backend.parse_options({**given, **source.parse_options()})
    source_hash = source.hash()
    digest = hashlib.sha256(f"{source_hash} {target} {options.hash()}".encode()).hexdigest()[:16]
    name = str(source.name).removeprefix("@")
    file_name = str(source.name)[:_FILE_NAME_LENGTH]
    overrides = Path(get_override_manager(source_hash).cache_dir)
    if knobs.compilation.override:
        paths = [overrides / f"{file_name}.{stage}" for stage in _STAGES]
        put_in_place += [str(path) for path in paths if path.is_file() and _is_used(path, texts, backend)]
    elif path := getattr(options, _IR_OVERRIDE, None):
        put_in_place.append(path)
    signature, names = getattr(source, "signature", None) or {}, source.fn.arg_names if hasattr(source, "fn") else []
    constants = {
        names[path[0]]: str(value)
        for path, value in (getattr(source, "constants", None) or {}).items()
        if isinstance(path, tuple) and len(path) == 1
    }
    info = DumpedKernelRecord(
        name=name,
        override_key=overrides.name,
        file_name=file_name,
        target=Target(**vars(target)),
        options=as_json(options.__dict__),
        # Triton's words, which MLIR's f32 is not.
        signature={str(name): _MLIR_FLOAT.sub("fp", str(_plain_tuple(kind))) for name, kind in signature.items()},
        constants=constants,
        metadata={_IR_OVERRIDE: put_in_place[-1]} if put_in_place else {},
        triton_version=triton.__version__,
        environment=environment(),
    )
    return workspace.kernel_of(f"{_UNSAFE.sub('_', name)[:80]}-{digest}", info)


def _is_used(override: Path, texts: Mapping[str, Any], backend: Any) -> bool:
    """Return True if Triton replaced a stage with an override, which it ignores if its cache has the kernel.

    Stages after TTGIR count as replaced: a cached stage that differs from the file may come from an earlier edit.
    """
    stage = override.suffix[1:]
    if stage not in ("ttir", "ttgir"):
        return True
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    try:
        # Not an IRSource, which crashes on a module without a function.
        return bool(str(ir.parse_mlir_module(str(override), context)) == texts.get(stage))
    except RuntimeError:  # it is no module, so Triton did not read it
        return False


def put_in_place(variant: DumpedKernel) -> str:
    """Return the file with which the program replaces what Triton compiles, or the IR file that it compiles.

    If it replaces several stages, the last one's file counts. Empty if there is none.
    """
    return str(variant.info.metadata.get(_IR_OVERRIDE) or "")


ANOTHER_TTGIR = "its TTGIR in the workspace is not what the program compiles now; dump it again"
"""Reason to leave a kernel alone: a file was edited, or the program no longer puts the TTGIR of the dump in place."""
_ALIAS = re.compile(r"#loc\d* =")


def same_code(*modules: str) -> bool:
    """Return True if modules, as Triton prints them, differ only in locations and in which helpers are inlined."""
    texts = set(modules)
    if len(texts) > 1:
        bare = (_ALIAS.sub("", without_locations(text)) for text in texts)
        texts = {" ".join(text.replace("noinline = true", "noinline = false").split()) for text in bare}
    return len(texts) == 1


def call_of(compile_function: Callable[..., Any], args: Any, kwargs: Any) -> tuple[Any, GPUTarget, dict[str, Any]]:
    """Return the source, the target and the given options of a call of the compiler."""
    call = inspect.signature(compile_function).bind(*args, **kwargs).arguments
    return call["src"], call.get("target") or driver.active.get_current_target(), dict(call.get("options") or {})


# Inductor sets the first to its own assembler (torch's compile_tasks.py, "_set_triton_ptxas_path"), whose version the
# assembly names. Triton's cache key omits both.
_ASSEMBLERS = ("TRITON_PTXAS_PATH", "TRITON_PTXAS_BLACKWELL_PATH")
# Triton names only variables that are set. A program may have set these, and ``try`` sets the first.
_MAY_BE_SET = ("DISABLE_LLVM_OPT", "DISABLE_MMA_V3", "DISABLE_MMA_V5")


def environment_names() -> tuple[str, ...]:
    """Return the names of the environment variables that a compiled kernel depends on."""
    return (*dict.fromkeys((*get_cache_invalidating_env_vars(), *_MAY_BE_SET)), *_ASSEMBLERS)


def environment() -> dict[str, str]:
    """Return the present environment variables that a compiled kernel depends on."""
    return {name: os.environ[name] for name in environment_names() if name in os.environ}


def is_harmless_setting(name: str, value: str) -> bool:
    """Return whether a saved variable may be set: an assembler or a plugin that it names must be installed.

    That is one of the present environment, or one that torch or Triton brought along.
    """
    return "PATH" not in name or os.environ.get(name) == value or is_installed_file(value, "torch", "triton")


_MLIR_FLOAT = re.compile(r"\bf(?=(?:16|32|64)\b)")


def _plain_tuple(kind: Any) -> Any:
    return tuple(map(_plain_tuple, kind)) if isinstance(kind, tuple) else kind


def as_json(values: dict[str, Any]) -> dict[str, Any]:
    """Convert Triton's values for JSON: targets to their fields, and what JSON cannot express to text."""
    text = json.dumps(values, default=lambda value: vars(value) if hasattr(value, "__dict__") else str(value))
    return dict(json.loads(text))


_FIRST_STAGE = "ttir"


def other_values(source: Any, target: GPUTarget, given: Mapping[str, Any], wanted: WantedValues) -> list[OtherValues]:
    """Return the TTIR of a kernel with each combination of the wanted values of its constants, by Triton's front end.

    Only the program's process has the kernel's source and what it refers to. Nothing is compiled further, and nothing
    is launched.

    ``given`` are the compile options as the program gives them. There are none for kernels without these constants, and
    without TTIR.
    """
    if type(source) is not ASTSource:
        return []
    plain = {path[0]: getattr(value, "value", value) for path, value in source.constants.items() if len(path) == 1}
    present = {source.fn.arg_names[index]: value for index, value in plain.items() if type(value) in (int, bool)}
    return [_made(source, target, given, values) for values in combinations(wanted, present)[:MAX_COMBINATIONS]]


def _made(source: Any, target: GPUTarget, given: Mapping[str, Any], values: Values) -> OtherValues:
    if any("tensordesc" in str(kind) for kind in source.signature.values()):
        return OtherValues(values=values, refusal="the program's tensor descriptors have the shape of its blocks")
    try:
        # As ``triton.compile`` makes it: by the front end, and the first stage's passes.
        indices = {(source.fn.arg_names.index(name),): value for name, value in values.items()}
        other = ASTSource(source.fn, source.signature, {**source.constants, **indices}, source.attrs)
        backend = make_backend(target)
        options = backend.parse_options({**given, **other.parse_options()})
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        implementation = backend.get_codegen_implementation(options)
        module = other.make_ir(target, options, implementation, backend.get_module_map(), context)
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, other.language)
        ttir = str(stages[_FIRST_STAGE](module, {"target": target, **vars(options)}))
    except Exception as error:  # noqa: BLE001 (the front end's errors have no common base)
        return OtherValues(values=values, refusal=f"Triton refuses them: {first_line(error)}")
    return OtherValues(values=values, ttir=ttir)
