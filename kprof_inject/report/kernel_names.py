"""What the kernels of a report are called, so that variants of one can be told apart."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kprof_inject.capture.reader import Kernel
from kprof_inject.printable import printable

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
