"""Tags: values of the kernel that are recorded with a scope each time it begins.

A tag is a pair of records right before its scope's start, which store the value instead of their clock; of a wide
value, each stores one half. ``runtime`` substitutes the value for the counter; it finds the records by the operation
before them, the carrier: inline assembly without an instruction, so that no compiler moves it or joins two of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from msgspec import Struct

from kprof_inject.capture.schema import HALF_BITS, MAX_TAGS
from kprof_inject.errors import KprofError, Position, did_you_mean
from kprof_inject.quantities import listed
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.sites import Site
from kprof_inject.ttgir.dialect import RECORD
from kprof_inject.ttgir.nodes import Operation
from kprof_inject.ttgir.scalars import Scalar, scalars_at
from kprof_inject.ttgir.ssa_values import loop_arguments
from kprof_inject.ttgir.strings import quote

OPTION = "--tag"
CARRIER = "// kprof_tag"  # the assembly of a carrier of a tag's records: only a comment
HALF_CARRIER = "// kprof_half"  # assembly of a carrier of a single record, which has half of a wide value

# The names that Triton's printer gives to constants.
_CONSTANT = re.compile(r"%(?:c-?\d+_\w+|true|false)(?:_\d+)?")
_WRITTEN = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>%[\w$.-]+(?:#\d+)?|[A-Za-z_]\w*)")
_HINT = "write --tag NAME=VALUE, where VALUE is a variable of the kernel's source, or a value of its TTGIR such as %pid"
_MAX_LISTED = 30
_PREFIX = "%kprof.tag."  # Python's names cannot contain a dot, so this prefix collides with none
# The carrier's type, and the constraints of its assembly: Proton's ReadCounterOp lowering reads NVIDIA's clock in
# halves, and AMD's as a whole.
_CARRIER_TYPES = {"cuda": ("i32", "=r,0"), "hip": ("i64", "=v,0")}
# The types that can be recorded, with the operation that makes an i32 of each. TTGIR does not say which integers are
# signed.
_TO_I32 = {"i1": "arith.extui", "i8": "arith.extsi", "i16": "arith.extsi", "i32": "", "index": "arith.index_cast"}
WIDE = "i64"  # type of a value that two records store
_CARRIER = "tt.elementwise_inline_asm"
TAG_OPERATIONS = frozenset({*_TO_I32.values(), "arith.constant", "arith.shrui", "arith.trunci"} - {""})
"""The operations that compute a tag's value."""


class Tag(Struct, frozen=True):
    """A tag as the user wrote it: a name for the value, and the value."""

    name: str
    value: str


class PlacedTag(Struct, frozen=True):
    """A tag at a site: its name, its records' name, and the value found there."""

    name: str
    record: str
    value: Scalar

    def lines(self, number: int, backend: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the operations before the first record and before the second; ``number`` makes the names unique."""
        name, value, kind = f"{_PREFIX}{number}", self.value.name, self.value.type
        if kind != WIDE:
            return tuple(_carried(name, value, kind, CARRIER, backend)), ()
        lower = f"{name}.low = arith.trunci {value} : {WIDE} to i32"
        upper = [
            f"{name}.bits = arith.constant {HALF_BITS} : {WIDE}",
            f"{name}.shifted = arith.shrui {value}, {name}.bits : {WIDE}",
            f"{name}.high = arith.trunci {name}.shifted : {WIDE} to i32",
        ]
        return (
            (lower, *_carried(f"{name}.lower", f"{name}.low", "i32", HALF_CARRIER, backend)),
            (*upper, *_carried(f"{name}.upper", f"{name}.high", "i32", HALF_CARRIER, backend)),
        )


def _carried(name: str, value: str, kind: str, carrier: str, backend: str) -> Iterator[str]:
    carried, constraints = _CARRIER_TYPES[backend]
    for operation, wider in ((_TO_I32[kind], "i32"), ("arith.extui", carried)):
        if operation and kind != wider:
            yield f"{name}.{wider} = {operation} {value} : {kind} to {wider}"
            value, kind = f"{name}.{wider}", wider
    assembly = f"{{constraints = {quote(constraints)}, packed_element = 1 : i32, pure = false}}"
    yield f"{name} = {_CARRIER} {quote(carrier)} {assembly} {value} : {kind} -> {kind}"


def is_inserted(operation: Operation) -> bool:
    """Return whether an operation is a record or computes its value; if Triton printed it, only carriers are known."""
    return has_our_name(operation) or operation.name == RECORD or is_carrier(operation)


def has_our_name(operation: Operation) -> bool:
    """Return whether the operation's result has a name that we give."""
    return operation.results.lstrip().startswith(_PREFIX)


def is_carrier(operation: Operation) -> bool:
    """Return whether an operation passes a value to records."""
    return operation.name == _CARRIER and any(text in operation.tail for text in (quote(CARRIER), quote(HALF_CARRIER)))


def parse_tags(text: str) -> tuple[str, tuple[Tag, ...]]:
    """Split a selector's text into the selector and its tags. Raises ``KprofError`` that points at a bad tag."""
    selector, *written = re.split(rf"\s+{OPTION}\s+", text)
    tags: dict[str, Tag] = {}
    for item in written:
        found = _WRITTEN.fullmatch(item.strip())
        if found is None:
            raise _wrong(text, item, f"cannot read the tag {item!r}")
        if found["name"] in tags:
            raise _wrong(text, item, f"two tags of one scope are named {found['name']!r}", "give each its own name")
        tags[found["name"]] = Tag(found["name"], found["value"])
    if len(tags) > MAX_TAGS:
        raise _wrong(text, written[MAX_TAGS], f"a scope takes at most {MAX_TAGS} tags", "leave out the others")
    return selector, tuple(tags.values())


def _wrong(text: str, tag: str, what: str, hint: str = _HINT) -> KprofError:
    return KprofError(what, where=Position("--at", 1, text.rindex(tag) + 1, text), hint=hint, exit_code=2)


def merge_tags(tags: Sequence[Tag], more: Sequence[Tag]) -> tuple[Tag, ...]:
    """Merge tags; of two with the same name, the first wins."""
    return tuple({tag.name: tag for tag in (*reversed(more), *reversed(tags))}.values())[::-1][:MAX_TAGS]


def backend_of(view: ModuleView) -> str:
    """Return ``cuda`` or ``hip`` from the module's attributes. Raises ``KprofError`` without them."""
    backend = view.module.attribute("ttg.target").partition(":")[0]
    if backend not in _CARRIER_TYPES:
        where = view.module.position(view.module.operations[0].start)
        hint = 'its attributes must name it: ttg.target = "cuda:90"'
        raise KprofError("a tag needs to know the GPU, and the module does not name it", where=where, hint=hint)
    return backend


def scalar_of(tag: Tag, view: ModuleView, site: Site) -> Scalar:
    """Return the value that a tag means where the site begins. Raises ``KprofError`` if there is no such integer."""
    function = next(function for function in view.functions if function.symbol == site.function)
    following = next((operation for operation in function.operations if operation.start >= site.start.offset), None)
    if following is not None and "}" in view.module.text[site.start.offset : following.start]:
        following = None  # the block is empty
    visible = tuple(scalars_at(view.module, following)) if following else ()
    found = next((scalar for scalar in visible if scalar.name == tag.value), None)
    found = found or _last_assigned(tag.value, visible, site)
    # Triton's pipeliner makes new loops, which have lost the variable's name.
    for loop in following.owners() if following and not found else ():
        counter = next(iter(loop_arguments(view.module, loop)), "") if loop.traits.is_loop else ""
        points = function.source_of(loop)[:1]
        if counter and any(view.sources.counter_at(point.file, point.line) == tag.value for point in points):
            found = next((scalar for scalar in visible if scalar.name == counter), None)
            break
    if found and _is_integer(found):
        return found
    what = "is not visible there"
    if found and found.name:
        what = f"is {found.type or 'a tensor, a pointer or the like'} ({found.name}), but a tag takes one integer"
    elif found:
        line = f" (line {found.line})" if found.line else ""
        what = f"is assigned in a loop or branch before it{line}, so its value there is unknown"
    raise KprofError(
        f"tag {tag.name} of {site.label}: {tag.value} {what}",
        where=view.module.position_of_word(site.start.offset),
        hint=_choices(tag.value, visible, site),
    )


def _last_assigned(variable: str, visible: Sequence[Scalar], site: Site) -> Scalar | None:
    # The compiler moves computations to the front, so a line after the site has not assigned anything yet.
    calls = (*([site.source] if site.source else []), *site.called_from)
    last_line = calls[-1].line if calls else math.inf
    assigned = [scalar for scalar in visible if scalar.variable == variable and scalar.line <= last_line]
    nearest = [scalar for scalar in assigned if scalar.distance == assigned[0].distance]
    return max(nearest, key=lambda scalar: scalar.line, default=None)


def _is_integer(scalar: Scalar) -> bool:
    return scalar.type in (WIDE, *_TO_I32)


def _choices(wanted: str, visible: Sequence[Scalar], site: Site) -> str:
    assigned = dict.fromkeys(scalar.variable for scalar in visible if scalar.variable and _is_integer(scalar))
    found = {variable: _last_assigned(variable, visible, site) for variable in assigned}
    variables = [variable for variable, scalar in found.items() if scalar and _is_integer(scalar)]
    names = [scalar.name for scalar in visible if _is_integer(scalar) and not _CONSTANT.fullmatch(scalar.name)]
    if not names:
        return "no integer is visible there; select a place after its definition"
    there = f"visible integers: {listed(variables, _MAX_LISTED)}; " if variables else "visible integers "
    by_name = f"by their names in the TTGIR: {listed(names, _MAX_LISTED)}"
    return did_you_mean(wanted, names if wanted.startswith("%") else variables) + there + by_name
