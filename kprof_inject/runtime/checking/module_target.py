"""The machine that a module was compiled for, by the module's own attributes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kprof_inject.errors import KprofError
from kprof_inject.ttgir.nodes import Module

_TARGET = re.compile(r'\bttg\.target"?\s*=\s*"([^"]*)"')
_WARP_SIZE = re.compile(r'\bttg\.threads-per-warp"?\s*=\s*(\d+)')
_KNOWN = re.compile(r"(?:(cuda):(\d+)|(hip):(gfx\w+))")

# What Triton takes where the attribute is missing.
_DEFAULT_WARP_SIZE = 32


@dataclass(frozen=True, slots=True)
class ModuleTarget:
    """``backend`` is ``cuda`` or ``hip``; ``arch`` is a compute capability (90) or the name of an architecture."""

    backend: str
    arch: int | str
    warp_size: int

    def __str__(self) -> str:
        return f"{self.backend}:{self.arch}"


def module_target(module: Module) -> ModuleTarget:
    """What stands in ``ttg.target`` and ``ttg.threads-per-warp``. Raises ``KprofError`` for a file without a target,
    or with one that we cannot compile for."""
    root = module.operations[0]
    if len(module.operations) != 1 or root.name not in ("module", "builtin.module"):
        raise KprofError(
            "the functions of this file stand in no module, so nothing says what they were compiled for",
            where=module.position(root.start),
            hint="give the whole file as Triton writes it",
        )
    # The generic form has the attributes behind the region.
    attributes = f"{root.tail} {root.closing}"
    found = _TARGET.search(attributes)
    if found is None:
        raise KprofError(
            "the module does not say what it was compiled for",
            where=module.position(root.start),
            hint='its attributes must name it: ttg.target = "cuda:90"',
        )
    known = _KNOWN.fullmatch(found[1])
    if known is None:
        raise KprofError(
            f"the target {found[1]!r} is none that kprof-inject can compile for",
            where=module.position(root.start),
            hint='it takes "cuda:90" and the like, and "hip:gfx942" and the like',
        )
    warp_size = _WARP_SIZE.search(attributes)
    size = int(warp_size[1]) if warp_size else _DEFAULT_WARP_SIZE
    if known[1]:
        return ModuleTarget("cuda", int(known[2]), size)
    return ModuleTarget("hip", known[4], size)
