"""Make the TTIR of a kernel with other values of its constants, by Triton's front end in the program's process.

Only there are the kernel's source and what it refers to. Nothing is compiled further, and nothing is launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource, make_backend

from kprof_inject.capture.edits import MAX_COMBINATIONS, OtherValues, Values, WantedValues, combinations
from kprof_inject.runtime.faults import first_line

_FIRST_STAGE = "ttir"


def other_values(source: Any, target: GPUTarget, given: Mapping[str, Any], wanted: WantedValues) -> list[OtherValues]:
    """Return the TTIR of a kernel with each combination of the wanted values of its constants.

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
        return OtherValues(values=values, ttir=_ttir_of(source, target, given, values))
    except Exception as error:  # noqa: BLE001 (the front end's errors have no common base)
        return OtherValues(values=values, refusal=f"Triton refuses them: {first_line(error)}")


def _ttir_of(source: Any, target: GPUTarget, given: Mapping[str, Any], values: Values) -> str:
    """Return the TTIR, as ``triton.compile`` makes it: by the front end, and the first stage's passes."""
    indices = {(source.fn.arg_names.index(name),): value for name, value in values.items()}
    other = ASTSource(source.fn, source.signature, {**source.constants, **indices}, source.attrs)
    backend = make_backend(target)
    options = backend.parse_options({**given, **other.parse_options()})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = other.make_ir(
        target, options, backend.get_codegen_implementation(options), backend.get_module_map(), context
    )
    stages: dict[str, Any] = {}
    backend.add_stages(stages, options, other.language)
    return str(stages[_FIRST_STAGE](module, {"target": target, **vars(options)}))
