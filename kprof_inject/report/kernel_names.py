"""What kernels are called, so that compiled variants of one can be told from each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from kprof_inject.capture.model import Kernel
from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.errors import printable
from kprof_inject.workspace import DumpedKernel

CONFIG = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""What users and autotuners vary, as far as Triton keeps it apart from the source."""

Facts = Mapping[str, str]
"""What is known of a kernel, by what it is called."""


def kernel_names(kernels: Iterable[Kernel]) -> dict[str, str]:
    """By variant: what ``distinct_names`` calls it, by what an autotuner varies."""
    variants = list({(kernel.name, kernel.variant): kernel for kernel in kernels}.values())
    names = distinct_names([(kernel, _config(kernel)) for kernel in variants])
    return {kernel.variant: printable(name) for kernel, name in zip(variants, names, strict=True)}


def distinct_names(kernels: Sequence[tuple[Kernel, Facts]]) -> list[str]:
    """The name of each kernel; of several with one name, their variants' with the facts in which they differ."""
    alike: dict[str, list[Facts]] = {}
    for kernel, facts in kernels:
        alike.setdefault(kernel.name, []).append(facts)
    differing = {name: iter(_differing(facts)) for name, facts in alike.items()}
    return [
        _variant_name(kernel, next(differing[kernel.name])) if len(alike[kernel.name]) > 1 else kernel.name
        for kernel, _ in kernels
    ]


def _variant_name(kernel: Kernel, facts: Facts) -> str:
    return f"{kernel.variant} ({facts_in_words(facts)})" if facts else kernel.variant


def _config(kernel: Kernel) -> Facts:
    return {name: str(value) for name in CONFIG if (value := kernel.metadata.get(name)) is not None}


def differing_facts(kernels: Sequence[DumpedKernel]) -> dict[str, dict[str, str]]:
    """For each variant: what differs between the kernels of its name; nothing for the only one.

    Other options than those of ``CONFIG`` count only where these do not tell two variants apart. Variants that nothing
    else tells apart have their key as ``variant``.
    """
    by_name = sorted(kernels, key=lambda kernel: kernel.name)
    groups = [list(group) for _, group in groupby(by_name, key=lambda kernel: kernel.name)]
    return {variant: facts for group in groups for variant, facts in _in_group(group).items()}


def facts_in_words(facts: Facts) -> str:
    """``cuda:90, num_warps 4``: a target is known as one without its name."""
    return ", ".join(value if name == "target" else f"{name} {value}" for name, value in facts.items())


def _in_group(group: Sequence[DumpedKernel]) -> dict[str, dict[str, str]]:
    if len(group) == 1:
        return {group[0].variant: {}}
    apart = _differing([dict(_usual_facts(kernel.info)) for kernel in group])
    if _repeated(apart):
        others = _differing([dict(_other_options(kernel.info)) for kernel in group])
        apart = [one | other for one, other in zip(apart, others, strict=True)]
    repeated = _repeated(apart)
    return {
        kernel.variant: facts | ({"variant": kernel.variant} if frozenset(facts.items()) in repeated else {})
        for kernel, facts in zip(group, apart, strict=True)
    }


def _usual_facts(info: DumpedKernelRecord) -> Iterator[tuple[str, str]]:
    if info.target:
        yield "target", str(info.target)
    # An argument's type, or its value where that is a constant.
    yield from {**info.signature, **info.constants}.items()
    yield from ((name, _text(info.options[name])) for name in CONFIG if name in info.options)


def _other_options(info: DumpedKernelRecord) -> Iterator[tuple[str, str]]:
    return ((name, _text(info.options[name])) for name in sorted(info.options) if name not in CONFIG)


def _differing(facts: Sequence[Facts]) -> list[dict[str, str]]:
    """The facts, less those that all have in common."""
    names = dict.fromkeys(name for of_one in facts for name in of_one)
    differ = [name for name in names if len({of_one.get(name) for of_one in facts}) > 1]
    return [{name: of_one[name] for name in differ if name in of_one} for of_one in facts]


def _repeated(facts: Sequence[Facts]) -> set[frozenset[tuple[str, str]]]:
    counts = Counter(frozenset(of_one.items()) for of_one in facts)
    return {key for key, count in counts.items() if count > 1}


def _text(value: Any) -> str:
    return "none" if value is None else str(value)
