"""What the kernels of a report are called, so that variants of one can be told apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
        variant: printable(_name(kernel, list(alike.values())))
        for alike in by_name.values()
        for variant, kernel in alike.items()
    }


def _name(kernel: Kernel, alike: Sequence[Kernel]) -> str:
    if len(alike) == 1:
        return kernel.name
    differing = [name for name in CONFIG if len({str(one.metadata.get(name)) for one in alike}) > 1]
    told = [f"{name} {kernel.metadata[name]}" for name in differing if kernel.metadata.get(name) is not None]
    return f"{kernel.variant} ({', '.join(told)})" if told else kernel.variant
