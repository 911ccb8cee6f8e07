"""Tags: values of the kernel's own that are recorded with a scope, each time that it begins.

A tag is a pair of records right before its scope's start. What they store as their clock is the value: ``runtime``
gives them that in place of the counter, and finds them by the operation that stands before them, the carrier. It is
inline assembly without an instruction, so that no compiler moves it, or joins two of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kprof_inject.capture.schema import MAX_TAGS
from kprof_inject.errors import KprofError, Position, did_you_mean
from kprof_inject.quantities import listed
from kprof_inject.select.functions import Function
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.sites import Site
from kprof_inject.ttgir.dialect import EVENT, RECORDS
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.scalars import Scalar, scalars_at
from kprof_inject.ttgir.ssa_values import loop_arguments
from kprof_inject.ttgir.strings import quote

OPTION = "--tag"
CARRIER = "// kprof_tag"
"""The assembly of a carrier: a comment."""

# As Triton's printer calls them.
_CONSTANT = re.compile(r"%(?:c-?\d+_\w+|true|false)(?:_\d+)?")
_WRITTEN = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>%[\w$.-]+(?:#\d+)?|[A-Za-z_]\w*)")
_HINT = "write --tag NAME=VALUE, where VALUE is a variable of the kernel's source, or a value of its TTGIR such as %pid"
_MOST_LISTED = 30
# No name of Python's has a dot in it.
_PREFIX = "%kprof.tag."
# The value that the carrier has to have, and the constraints of the assembly: NVIDIA's clock is read in halves, AMD's
# as a whole (Proton's ReadCounterOp lowering).
_TARGET = re.compile(r'ttg\.target"? = "(cuda|hip)')
_CARRIED = {"cuda": ("i32", "=r,0"), "hip": ("i64", "=v,0")}
# Of these types values are recorded, by the operation that makes an i32 of them. Which integers have a sign, TTGIR does
# not tell.
_TO_I32 = {"i1": "arith.extui", "i8": "arith.extsi", "i16": "arith.extsi", "i32": "", "index": "arith.index_cast"}


@dataclass(frozen=True, slots=True)
class Tag:
    """What the user wrote: what to call the value, and which one it is."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class PlacedTag:
    """A tag at a site: the name of its records, and the value that it was found to be."""

    name: str
    record: str
    value: Scalar

    def lines(self, number: int, backend: str) -> tuple[str, ...]:
        """The operations that give the value to the carrier, that being the last; ``number`` tells them from others."""
        carried, constraints = _CARRIED[backend]
        value, kind = self.value.name, self.value.type
        lines = []
        for operation, wider in ((_TO_I32[kind], "i32"), ("arith.extui", carried)):
            if operation and kind != wider:
                widened = f"{_PREFIX}{number}.{wider}"
                lines.append(f"{widened} = {operation} {value} : {kind} to {wider}")
                value, kind = widened, wider
        assembly = f"{{constraints = {quote(constraints)}, packed_element = 1 : i32, pure = false}}"
        lines.append(
            f"{_PREFIX}{number} = tt.elementwise_inline_asm {quote(CARRIER)} {assembly} {value} : {kind} -> {kind}"
        )
        return tuple(lines)


def is_inserted(operation: Operation) -> bool:
    """Whether an operation records, or gives a record its value or an event its number."""
    return operation.name in (EVENT, *RECORDS) or operation.results.lstrip().startswith(_PREFIX)


def parse_tags(text: str) -> tuple[str, tuple[Tag, ...]]:
    """A selector's text without its tags, and these. Raises ``KprofError`` that points at the tag that is none."""
    selector, *written = re.split(rf"\s+{OPTION}\s+", text)
    tags: dict[str, Tag] = {}
    for one in written:
        found = _WRITTEN.fullmatch(one.strip())
        if found is None:
            raise _wrong(text, one, f"cannot read the tag {one!r}")
        if found["name"] in tags:
            raise _wrong(text, one, f"two tags of one scope are named {found['name']!r}")
        tags[found["name"]] = Tag(found["name"], found["value"])
    if len(tags) > MAX_TAGS:
        raise _wrong(text, written[MAX_TAGS], f"a scope has {MAX_TAGS} tags at most")
    return selector, tuple(tags.values())


def _wrong(text: str, tag: str, what: str) -> KprofError:
    return KprofError(what, where=Position("--at", 1, text.rindex(tag) + 1, text), hint=_HINT, exit_code=2)


def together(tags: Sequence[Tag], more: Sequence[Tag]) -> tuple[Tag, ...]:
    """All of them; of two with one name the first."""
    return tuple({tag.name: tag for tag in (*reversed(more), *reversed(tags))}.values())[::-1][:MAX_TAGS]


def backend_of(view: ModuleView) -> str:
    """``cuda`` or ``hip``, by the module's attributes. Raises ``KprofError`` without them."""
    texts = (text for operation in view.module.operations for text in (operation.tail, operation.closing))
    found = next((found[1] for found in map(_TARGET.search, texts) if found), None)
    if found is None:
        raise KprofError(
            "the module does not name its GPU, and a tag needs it",
            where=Position(view.module.file, 1, 1, ""),
            hint='its attributes must name it: ttg.target = "cuda:90"',
        )
    return found


def scalar_of(tag: Tag, view: ModuleView, site: Site) -> Scalar:
    """The value that a tag means where the site begins. Raises ``KprofError`` if there is none, or if it is no integer
    of up to 32 bits, and says which there are."""
    visible = tuple(_visible_at(view, site))
    by_name = next((one for one in visible if one.name == tag.value), None)
    found = by_name or _last_assigned(tag.value, visible, site) or _counted(tag.value, visible, view, site)
    if found and found.type in _TO_I32:
        return found
    what = "is not a value that is visible there"
    if found:
        what = _no_integer(found) if found.name else _lost(found)
    raise KprofError(
        f"tag {tag.name} of {site.label}: {tag.value} {what}",
        where=view.module.position(site.start.offset),
        hint=_choice(tag.value, visible, site),
    )


def _last_assigned(variable: str, visible: Sequence[Scalar], site: Site) -> Scalar | None:
    """The value of a variable: of those in the nearest block, the last part of what the last line before the site
    assigns. The compiler moves what it can to the front, where a line behind the site has assigned nothing yet."""
    calls = (*([site.source] if site.source else []), *site.called_from)
    last_line = calls[-1].line if calls else math.inf
    mine = [one for one in visible if one.variable == variable and one.line <= last_line]
    nearest = [one for one in mine if one.distance == mine[0].distance]
    return max(nearest, key=lambda one: one.line, default=None)


def _counted(variable: str, visible: Sequence[Scalar], view: ModuleView, site: Site) -> Scalar | None:
    """What the nearest loop around the site counts that the source writes with this variable: Triton's pipeliner makes
    new loops, which have lost its name."""
    function, behind = _behind(view, site)
    for loop in behind.owners() if behind else ():
        counter = next(iter(loop_arguments(view.module, loop)), "") if loop.traits.is_loop else ""
        points = function.source_of(loop)[:1]
        if counter and any(view.sources.counter_at(point.file, point.line) == variable for point in points):
            return next((one for one in visible if one.name == counter), None)
    return None


def _no_integer(scalar: Scalar) -> str:
    kind = scalar.type or "a tensor, a pointer or the like"
    return f"is {kind} ({scalar.name}): a tag takes one integer of up to 32 bits"


def _lost(scalar: Scalar) -> str:
    line = f" (line {scalar.line})" if scalar.line else ""
    return f"is assigned in a loop or branch before it{line}, and the TTGIR does not say which value it has then"


def _choice(wanted: str, visible: Sequence[Scalar], site: Site) -> str:
    """The variables that are integers there, and the names of all integers but constants."""
    assigned = dict.fromkeys(one.variable for one in visible if one.variable and one.type in _TO_I32)
    found = {variable: _last_assigned(variable, visible, site) for variable in assigned}
    variables = [variable for variable, one in found.items() if one and one.type in _TO_I32]
    names = [one.name for one in visible if one.type in _TO_I32 and not _CONSTANT.fullmatch(one.name)]
    if not names:
        return "no integer is visible there; select a place after its definition"
    by_name = f"; by its name in the TTGIR: {listed(names, _MOST_LISTED)}"
    there = f"there is {listed(variables, _MOST_LISTED)}" if variables else "no variable is an integer there"
    return did_you_mean(wanted, names if wanted.startswith("%") else variables) + there + by_name


def _visible_at(view: ModuleView, site: Site) -> Iterator[Scalar]:
    """Nothing in an empty block: no operation stands there that could see anything."""
    _, behind = _behind(view, site)
    if behind is not None:
        yield from scalars_at(view.module, behind)


def _behind(view: ModuleView, site: Site) -> tuple[Function, Operation | None]:
    """The function that the site is in, and the operation of its block right behind its start; None in an empty one."""
    function = next(one for one in view.functions if one.symbol == site.function)
    behind = next((one for one in function.operations if one.start >= site.start.offset), None)
    if behind is not None and "}" in view.module.text[site.start.offset : behind.start]:
        behind = None
    return function, behind
