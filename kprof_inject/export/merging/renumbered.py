"""The events of a second trace, so that they can stand beside those of a first in one file.

Both number their processes and arrows as they like: each GPU is process 0 to its own rank. Only these numbers are
changed, and times where the two count from different bases; all else keeps its text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal

from kprof_inject.export.merging.torch_trace import ARROW_IDS, TorchTrace, member_spans, nanoseconds, packed_text

_CHUNK_EVENTS = 4096


@dataclass(frozen=True, slots=True)
class Renumbering:
    """``pids`` has the new name of each process that needs one, ``ids_from`` is what to add to the number of an arrow,
    ``later_ns`` to a time. ``mark`` is put behind an arrow's id that is text."""

    pids: Mapping[int | str, int | str]
    ids_from: int
    later_ns: int
    mark: str


def renumbered_events(trace: TorchTrace, numbers: Renumbering) -> Iterator[bytes]:
    """All events of the trace, each with a comma before it, in chunks."""
    chunk: list[str] = []
    for begin, end, event in trace.events():
        chunk.append(",\n" + _renumbered(trace.text[begin:end], event, numbers))
        if len(chunk) == _CHUNK_EVENTS:
            yield packed_text("".join(chunk))
            chunk.clear()
    yield packed_text("".join(chunk))


def _renumbered(text: str, event: Mapping[str, object], numbers: Renumbering) -> str:
    changes = dict(_changes(event, numbers))
    if not changes:
        return text
    parts, at = [], 0
    for name, begin, end in member_spans(text):
        if name in changes:
            parts += [text[at:begin], changes[name]]
            at = end
    return "".join([*parts, text[at:]])


def _changes(event: Mapping[str, object], numbers: Renumbering) -> Iterator[tuple[str, str]]:
    pid = event.get("pid")
    if isinstance(pid, int | str) and pid in numbers.pids:
        yield "pid", json.dumps(numbers.pids[pid])
    for name in ARROW_IDS:
        number = event.get(name)
        if isinstance(number, int):
            yield name, str(number + numbers.ids_from)
        elif isinstance(number, str):
            yield name, json.dumps(number + numbers.mark)
    at_ns = nanoseconds(event.get("ts"))
    if numbers.later_ns and at_ns is not None:
        yield "ts", f"{Decimal(at_ns + numbers.later_ns) / 1000:.3f}"
