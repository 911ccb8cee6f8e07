"""What the kernels are called, so that compiled variants of one can be told apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from kprof_inject.capture.model import Kernel
from kprof_inject.capture.schema import DumpedKernelRecord
from kprof_inject.errors import printable
from kprof_inject.workspace import DumpedKernel

# What the kernels of a report are called, so that variants of one can be told apart.

CONFIG = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""What an autotuner varies, as far as Triton keeps it apart from the source."""


def kernel_names(kernels: Iterable[Kernel]) -> dict[str, str]:
    """By variant: the kernel's name, or, where it has several variants, the variant's with what they differ in."""
    by_name: dict[str, dict[str, Kernel]] = {}
    for kernel in kernels:
        by_name.setdefault(kernel.name, {})[kernel.variant] = kernel
    return {
        variant: printable(told_apart(kernel, _config(kernel), list(map(_config, alike.values()))))
        for alike in by_name.values()
        for variant, kernel in alike.items()
    }


def told_apart(kernel: Kernel, facts: Mapping[str, str], alike: Sequence[Mapping[str, str]]) -> str:
    """What a kernel with these facts is called among those of its name, whose facts are ``alike``: an unknown one is
    empty, and is not told."""
    if len(alike) == 1:
        return kernel.name
    told = [f"{name} {text}" for name, text in facts.items() if text and len({one[name] for one in alike}) > 1]
    return f"{kernel.variant} ({', '.join(told)})" if told else kernel.variant


def _config(kernel: Kernel) -> dict[str, str]:
    values = {name: kernel.metadata.get(name) for name in CONFIG}
    return {name: "" if value is None else str(value) for name, value in values.items()}


# What tells the compiled variants of one kernel apart.

# What users set. All other options count only where these do not tell two variants apart.
_USUAL_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def distinctions(kernels: Sequence[DumpedKernel]) -> dict[str, dict[str, str]]:
    """For each variant: what differs between the kernels of its name, as names and values; nothing for the only one.

    Variants that nothing else tells apart have their key as ``variant``."""
    by_name = sorted(kernels, key=lambda kernel: kernel.name)
    groups = [list(group) for _, group in groupby(by_name, key=lambda kernel: kernel.name)]
    return {variant: facts for group in groups for variant, facts in _in_group(group).items()}


def in_words(facts: Mapping[str, str]) -> str:
    """``cuda:90, num_warps 4``: a target is known as one without its name."""
    return ", ".join(value if name == "target" else f"{name} {value}" for name, value in facts.items())


def _in_group(group: Sequence[DumpedKernel]) -> dict[str, dict[str, str]]:
    if len(group) == 1:
        return {group[0].variant: {}}
    usual = _differing([dict(_usual(kernel.info)) for kernel in group])
    others = _differing([dict(_other_options(kernel.info)) for kernel in group])
    apart = [one | other for one, other in zip(usual, others, strict=True)] if _repeated(usual) else usual
    repeated = _repeated(apart)
    return {
        kernel.variant: facts | ({"variant": kernel.variant} if _as_key(facts) in repeated else {})
        for kernel, facts in zip(group, apart, strict=True)
    }


def _usual(info: DumpedKernelRecord) -> Iterator[tuple[str, str]]:
    options = info.options
    if info.target:
        yield "target", str(info.target)
    # An argument's type, or its value where that is a constant.
    yield from {**info.signature, **info.constants}.items()
    yield from ((name, _text(options[name])) for name in _USUAL_OPTIONS if name in options)


def _other_options(info: DumpedKernelRecord) -> Iterator[tuple[str, str]]:
    options = info.options
    return ((name, _text(options[name])) for name in sorted(options) if name not in _USUAL_OPTIONS)


def _differing(facts: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """The facts, less those that all have in common."""
    names = dict.fromkeys(name for of_one in facts for name in of_one)
    differ = [name for name in names if len({of_one.get(name) for of_one in facts}) > 1]
    return [{name: of_one[name] for name in differ if name in of_one} for of_one in facts]


def _repeated(facts: Sequence[Mapping[str, str]]) -> set[frozenset[tuple[str, str]]]:
    return {key for key, count in Counter(map(_as_key, facts)).items() if count > 1}


def _as_key(facts: Mapping[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(facts.items())


def _text(value: Any) -> str:
    return "none" if value is None else str(value)
