"""Slices, instants and counters' samples as packets of ``TrackEvent``
(https://github.com/google/perfetto/blob/main/protos/perfetto/trace/track_event/track_event.proto)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kprof_inject.export.perfetto_fields import field, fixed64_key, message_fields, varint_fields, varint_key
from kprof_inject.export.perfetto_interning import Interned, Table
from kprof_inject.export.perfetto_order import chunks, places
from kprof_inject.export.perfetto_packets import event_packets
from kprof_inject.export.perfetto_rows import merged, one_behind_the_other, side_by_side
from kprof_inject.export.scene import Arg, Arrows, Events, Kind, Numbers
from kprof_inject.export.varints import ByteColumn, constant, fixed64, picked, varints

# Fields of ``TrackEvent``, and the values of its type.
_CATEGORY, _ARG, _TYPE, _NAME, _TRACK, _COUNTER_VALUE, _FLOW_FROM, _FLOW_TO = 3, 4, 9, 10, 11, 30, 47, 48
_SLICE_BEGIN, _SLICE_END, _INSTANT, _COUNTER = 1, 2, 3, 4

# Fields of ``DebugAnnotation``.
_ARG_NAME, _ARG_INT, _ARG_DOUBLE, _ARG_TEXT = 1, 4, 5, 17


def slices_and_instants(events: Events, interned: Interned) -> Iterator[bytes]:
    """Their packets. The strings that they use are in ``interned`` before the first is asked for."""
    kinds = [_same_for_all(kind, interned) for kind in events.kinds]
    arg_names = [_arg_name(arg.name, interned) for arg in events.args]
    is_instant = np.array([kind.is_instant for kind in events.kinds], dtype=bool)
    return (
        _starts_and_ends(_rows(events, rows), kinds, arg_names, is_instant) for rows in chunks(events)
    )
