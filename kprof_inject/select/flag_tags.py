"""Record the flags of waits and signals: the address and the value, as tags of their scopes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from kprof_inject.capture.schema import MAX_TAGS, FlagRecord, TagRecord
from kprof_inject.capture.scopes import ScopeKind
from kprof_inject.select.module_view import ModuleView
from kprof_inject.select.sites import Site
from kprof_inject.select.tags import visible_at
from kprof_inject.ttgir.flags import FlagUse, Operand
from kprof_inject.ttgir.scalars import Scalar

# Python's names cannot contain a dot, so no tag of the user's has these names.
_ADDRESS, _VALUE = "flag.address", "flag.value"
_KINDS = (ScopeKind.SPIN, ScopeKind.SIGNAL)


def flags_at(view: ModuleView, sites: Iterable[tuple[Site, int]]) -> list[FlagUse | None]:
    """Return the flag that each site uses; None if it uses none.

    A site comes with the number of its tags. Values that do not fit in, or that are not visible where the site begins,
    are left out.
    """
    pairs = list(sites)
    if not any(site.kind in _KINDS for site, _ in pairs):
        return [None] * len(pairs)
    uses = {
        (function.symbol, function.before(operation)): use
        for function in view.functions
        for operation, use in (*function.polled_flags.items(), *function.signals.items())
    }
    found = (uses.get((site.function, site.start)) if site.kind in _KINDS else None for site, _ in pairs)
    return [
        use and _recordable(use, site, MAX_TAGS - tags, view) for use, (site, tags) in zip(found, pairs, strict=True)
    ]


def _recordable(use: FlagUse, site: Site, room: int, view: ModuleView) -> FlagUse:
    visible = {scalar.name for scalar in visible_at(view, site)}

    def if_visible(value: Operand | None, needed: int) -> Operand | None:
        return value if value is not None and value.name in visible and room >= needed else None

    address = if_visible(use.address, 1)
    # Without its address, a flag's value is of no use.
    return replace(use, address=address, value=if_visible(use.value, 2) if address else None)


def flag_values(use: FlagUse | None) -> tuple[tuple[str, Scalar], ...]:
    """Return the values of a flag to record, by the names of their tags."""
    values = ((_ADDRESS, use.address), (_VALUE, use.value)) if use else ()
    return tuple((name, Scalar(value.name, "", 0, value.type, 0)) for name, value in values if value)


def flag_record(use: FlagUse | None, tags: Mapping[str, TagRecord]) -> FlagRecord | None:
    """Return the scope table's record of a flag, with its ``tags`` by their names."""
    if use is None:
        return None
    return FlagRecord(
        does=use.does,
        address=tags.get(_ADDRESS),
        value=tags.get(_VALUE),
        constant=use.constant,
        condition=use.condition,
    )
