"""Removal of the second half of a loop's iterations, which shows what an iteration is worth."""

from __future__ import annotations

import re

from kprof_inject.pipeline.removals.replacing import RemovalRefused, own_name
from kprof_inject.rewrite import Replacement
from kprof_inject.ttgir.influence import gives_floats
from kprof_inject.ttgir.nodes import Module, Operation

LOOP = "scf.for"
_NAME = r"%[\w$.#-]+"
_HEAD = re.compile(rf"\s*{_NAME} = (?P<first>{_NAME}) to (?P<last>{_NAME}) step {_NAME}\b")
_TYPE = re.compile(r" : (i32|i64) \{?\s*$")
# They wait for what this warp has issued, however much that is.
_OWN_WAITS = frozenset(("ttg.async_wait", "ttng.warp_group_dot_wait"))


def without_half(module: Module, operation: Operation) -> list[Replacement]:
    """Return the edits that end a loop in the middle of its range."""
    head, kind = _HEAD.match(operation.tail), _TYPE.search(operation.tail)
    if head is None:
        raise RemovalRefused("it is printed in a form that cannot be edited")
    if objection := _objection(module, operation):
        raise RemovalRefused(objection)
    integer = kind[1] if kind else "index"
    whole, two, half, last = (own_name(operation, what) for what in ("whole", "two", "half", "last"))
    lines = [
        f"{whole} = arith.subi {head['last']}, {head['first']} : {integer}",
        f"{two} = arith.constant 2 : {integer}",
        f"{half} = arith.divsi {whole}, {two} : {integer}",
        f"{last} = arith.addi {head['first']}, {half} : {integer}",
    ]
    begin = module.text.index(operation.name, operation.start + len(operation.results)) + len(operation.name)
    return [
        (operation.start, operation.start, " ".join(lines) + " "),
        (begin + head.start("last"), begin + head.end("last"), last),
    ]


def _objection(module: Module, loop: Operation) -> str:
    """Return why others may wait for iterations that are left out, or see that they are; empty if not."""
    for one in module.walk():
        traits = one.traits
        if (traits.is_wait and one.name not in _OWN_WAITS) or traits.is_arrival:
            return f"its warps wait for each other ({one.name})"
    for one in loop.walk():
        traits = one.traits
        if traits.is_atomic or traits.is_output or (traits.writes_global and not gives_floats(one)):
            return f"it does more than compute and store floating-point numbers ({one.name})"
    return ""
