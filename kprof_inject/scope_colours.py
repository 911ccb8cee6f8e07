"""The colour of each scope: on the page, in a terminal's bars and in Chrome traces.

The hues are distinguishable with the common kinds of colour blindness: M. Okabe and K. Ito, "Color Universal Design",
2008, in tints that carry dark labels on light and on dark ground. Outer scopes have calm tones, so that the scopes that
do the work are prominent. A colour is never the only sign of a scope: its name is next to it.

Perfetto's UI computes a slice's colour from its name, and no field of its format changes that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from kprof_inject.capture.scopes import ScopeKind


class ScopeColour(Struct, frozen=True):
    """Colour of a scope."""

    rgb: str  # #rrggbb
    cname: str  # the name that a Chrome trace has for it, as the format has no other colours


_OUTER_KINDS = frozenset({ScopeKind.FUNCTION, ScopeKind.LOOP, ScopeKind.PARTITION})

# Each cname is the closest (in OKLab) of Catapult's reserved names, tracing/base/color_scheme.html, that no other inner
# colour has. All calm tones are closest to the same grey.
_GREY = "cq_build_abandoned"
_OUTER = (
    ScopeColour("#9db2c9", _GREY),
    ScopeColour("#c3bda9", _GREY),
    ScopeColour("#b3aac8", _GREY),
    ScopeColour("#a3bfb4", _GREY),
)
_INNER = (
    ScopeColour("#56b4e9", "thread_state_runnable"),
    ScopeColour("#e69f00", "rail_idle"),
    ScopeColour("#2fb58b", "background_memory_dump"),
    ScopeColour("#f0e442", "startup"),
    ScopeColour("#cc79a7", "thread_state_uninterruptible"),
    ScopeColour("#e8793a", "heap_dump_child_node_arrow"),
    ScopeColour("#5a8fd6", "rail_response"),
    ScopeColour("#b5d334", "cq_build_passed"),
    ScopeColour("#b79b7b", "thread_state_unknown"),
    ScopeColour("#8fd3d1", "thread_state_running"),
)
_PALER = 0.72  # part of a colour that is left each time its palette begins anew; the rest is white


def scope_colours(kinds: Iterable[str]) -> list[ScopeColour]:
    """Return a colour for each scope of a scope table, by the scopes' kinds in the order of the table."""
    outer, inner = _endless(_OUTER), _endless(_INNER)
    return [next(outer if kind in _OUTER_KINDS else inner) for kind in kinds]


def _endless(palette: tuple[ScopeColour, ...]) -> Iterator[ScopeColour]:
    part = 1.0
    while True:
        for colour in palette:
            channels = bytes.fromhex(colour.rgb.removeprefix("#"))
            on_white = bytes(round(255 - (255 - channel) * part) for channel in channels)
            yield replace(colour, rgb=f"#{on_white.hex()}")
        part *= _PALER
