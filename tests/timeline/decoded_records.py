"""From records as warps wrote them to what the decoder makes of them, by row and warp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from buffers import Cta, Entry, buffer_words, num_warps_of
from numpy.typing import NDArray

from kprof_inject.capture.buffer_layouts import LAYOUTS, RawCtas
from kprof_inject.timeline.records import Records, record_decoder

# Each id is its scope.
EVERY_ID = {scope_id: scope_id for scope_id in range(256)}


def read(
    ctas: Sequence[Cta | None], slots: int, recorded: Sequence[int] | None = None, *, clock_bits: int = 43
) -> RawCtas:
    warps = num_warps_of(ctas)
    words = buffer_words(ctas, slots, recorded=recorded, clock_bits=clock_bits)
    return LAYOUTS["timed"].read(words, warps, range(warps) if recorded is None else recorded)


def lookup(scope_of_id: Mapping[int, int]) -> NDArray[np.int16]:
    table = np.full(256, -1, dtype=np.int16)
    table[list(scope_of_id)] = list(scope_of_id.values())
    return table


def decoded(
    raw: RawCtas,
    scope_of_id: Mapping[int, int] = EVERY_ID,
    *,
    clock_bits: int = 64,
    clock_hz: float = 0.0,
    stores_moved: bool = False,
) -> Records:
    """The records of all CTAs at once."""
    decoder = record_decoder(
        raw, lookup(scope_of_id), clock_bits=clock_bits, clock_hz=clock_hz, stores_moved=stores_moved
    )
    return decoder.decode(slice(0, len(raw.cta)))


def entries_of(records: Records, group: int) -> list[Entry]:
    """The records of one warp; a group is ``row * warps + warp``."""
    mine = records.group == group
    columns = (records.scope[mine], records.is_end[mine], records.cycles[mine])
    return [Entry(*values) for values in zip(*(column.tolist() for column in columns), strict=True)]
