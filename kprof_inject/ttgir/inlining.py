"""Make one function of a module with helpers, or rather: let Triton do so."""

from __future__ import annotations

import re

from kprof_inject.ttgir.dialect import FUNCTION
from kprof_inject.ttgir.nodes import Module

_NOINLINE = re.compile(r"(\bnoinline = )true\b")


def has_helpers(module: Module) -> bool:
    """Whether the module has more than one function."""
    return sum(operation.name == FUNCTION for operation in module.walk()) > 1


def lowerable(module: Module) -> str:
    """The module's text with ``noinline`` taken off its helpers, so that Triton inlines them before it lowers them.

    Proton lowers modules of one function only ("only one function per module is supported"); Triton's own lowering
    begins with an inliner, from 3.6 on, and 3.5 gets one from ``runtime.versions``. A text that needs none of this
    comes back as it is.
    """
    if not has_helpers(module):
        return module.text
    functions = [operation for operation in module.walk() if operation.name == FUNCTION]
    pieces: list[str] = []
    done = 0
    for function in functions:
        # The generic form has a function's attributes behind its region.
        for start, length in (
            (module.text.index(function.tail.rstrip("\n"), function.start), len(function.tail)),
            (function.end - len(function.closing), len(function.closing)),
        ):
            pieces += [module.text[done:start], _NOINLINE.sub(r"\1false", module.text[start : start + length])]
            done = start + length
    pieces.append(module.text[done:])
    return "".join(pieces)
