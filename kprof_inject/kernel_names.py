"""Names of kernels that distinguish compiled variants."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from kprof_inject.capture.model import Kernel
from kprof_inject.capture.schema import MAX_NAME_LENGTH, DumpedKernelRecord
from kprof_inject.errors import printable
from kprof_inject.workspace import DumpedKernel

CONFIG = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Options that users and autotuners vary and that Triton stores separately from the source."""

Facts = Mapping[str, str]  # properties of a kernel by name


def kernel_names(kernels: Iterable[Kernel]) -> dict[str, str]:
    """Return the name of each variant from ``distinct_names``, by the options that an autotuner varies."""
    variants = list({(kernel.name, kernel.variant): kernel for kernel in kernels}.values())
    configs = [
        {name: str(value) for name in CONFIG if (value := kernel.metadata.get(name)) is not None} for kernel in variants
    ]
    names = distinct_names(list(zip(variants, configs, strict=True)))
    return {kernel.variant: printable(name) for kernel, name in zip(variants, names, strict=True)}


def without_inner_types(name: str) -> str:
    """Return the name of a C++ kernel with its first template arguments, without their namespaces and arguments.

    For example ``at::native::reduce_kernel<512, 1, ReduceOp, …>``; any other name as it is. Its type and its
    parameters are omitted, too.
    """
    declared = _UNNAMED.sub("", name).removeprefix("void ")
    function, bracket, rest = declared.partition("<")
    is_cut = len(name) >= MAX_NAME_LENGTH
    if "(" in function:
        called = function.partition("(")[0]
        return called if (declared.endswith(")") or is_cut) and " " not in called else name
    if not bracket or not (rest.rstrip().endswith((">", ")")) or is_cut):
        return name
    arguments, depth, start = [], 0, 0
    for position, character in enumerate(rest):
        depth += (character in "<({") - (character in ">)}")
        if (character == "," and not depth) or depth < 0:
            argument = _CAST.sub("", rest[start:position].strip())
            arguments.append(_INNER.split(argument, maxsplit=1)[0].rpartition("::")[2])
            start = position + 1
        if depth < 0:
            break
    shown = arguments[:_MAX_ARGUMENTS] + ["…"] * (len(arguments) > _MAX_ARGUMENTS)
    return f"{function}<{', '.join(shown)}>"


_UNNAMED = re.compile(r"(\(anonymous namespace\)|<unnamed>)::")
_CAST = re.compile(r"^\([^()]*\)")
_INNER = re.compile(r"[<({]")
_MAX_ARGUMENTS = 3


def distinct_names(kernels: Sequence[tuple[Kernel, Facts]]) -> list[str]:
    """Return the name of each kernel; if several share it, the variant's name with the facts that differ."""
    alike: dict[str, list[Facts]] = {}
    for kernel, facts in kernels:
        alike.setdefault(kernel.name, []).append(facts)
    differing = {name: iter(_differing(facts)) for name, facts in alike.items()}
    names = []
    for kernel, _ in kernels:
        own = next(differing[kernel.name])
        variant = f"{kernel.variant} ({facts_in_words(own)})" if own else kernel.variant
        names.append(variant if len(alike[kernel.name]) > 1 else kernel.name)
    return names


def differing_facts(kernels: Sequence[DumpedKernel]) -> dict[str, dict[str, str]]:
    """Return for each variant the facts that differ among the kernels of its name; none for the only one.

    Options outside of ``CONFIG`` count only if those in it do not distinguish two variants. Variants that nothing else
    distinguishes get their key as ``variant``.
    """
    by_name = sorted(kernels, key=lambda kernel: kernel.name)
    groups = [list(group) for _, group in groupby(by_name, key=lambda kernel: kernel.name)]
    return {variant: facts for group in groups for variant, facts in _in_group(group).items()}


def facts_in_words(facts: Facts) -> str:
    """Return facts as ``cuda:90, num_warps 4``; a target needs no name."""
    return ", ".join(value if name == "target" else f"{name} {value}" for name, value in facts.items())


def _in_group(group: Sequence[DumpedKernel]) -> dict[str, dict[str, str]]:
    if len(group) == 1:
        return {group[0].variant: {}}
    apart = _differing([dict(_usual_facts(kernel.info)) for kernel in group])
    if _repeated(apart):
        all_options = [kernel.info.options for kernel in group]
        others = [{name: _text(one[name]) for name in sorted(one) if name not in CONFIG} for one in all_options]
        options = _differing(others)
        apart = [usual | other for usual, other in zip(apart, options, strict=True)]
    repeated = _repeated(apart)
    return {
        kernel.variant: facts | ({"variant": kernel.variant} if frozenset(facts.items()) in repeated else {})
        for kernel, facts in zip(group, apart, strict=True)
    }


def _usual_facts(info: DumpedKernelRecord) -> Iterator[tuple[str, str]]:
    if info.target:
        yield "target", str(info.target)
    # Each argument's type, or its value if it is a constant.
    yield from {**info.signature, **info.constants}.items()
    yield from ((name, _text(info.options[name])) for name in CONFIG if name in info.options)


def _differing(facts: Sequence[Facts]) -> list[dict[str, str]]:
    names = dict.fromkeys(name for kernel in facts for name in kernel)
    differ = [name for name in names if len({kernel.get(name) for kernel in facts}) > 1]
    return [{name: kernel[name] for name in differ if name in kernel} for kernel in facts]


def _repeated(facts: Sequence[Facts]) -> set[frozenset[tuple[str, str]]]:
    counts = Counter(frozenset(kernel.items()) for kernel in facts)
    return {key for key, count in counts.items() if count > 1}


def _text(value: Any) -> str:
    return "none" if value is None else str(value)
