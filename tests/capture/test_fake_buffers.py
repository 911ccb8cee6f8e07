"""The fake GPU fills the profile buffers of all CTAs at once: they are those that are made record by record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from buffers import Cta, Entry, buffer_words
from fake_gpu.profile_buffer import CYCLES_PER_NS, SMS, timed_words, untimed_words

RECORDS = [(0, False), (1, False), (1, True), (255, False), (255, True), (0, True)]


@pytest.mark.parametrize("begun_ns", [0, 1_000, 1_764_000_000_000_000_123])
@pytest.mark.parametrize(("ctas", "warps", "count", "cta_bytes"), [(1, 4, 2, 512), (300, 8, 6, 1024), (5, 2, 6, 128)])
def test_they_are_those_made_record_by_record(ctas: int, warps: int, count: int, cta_bytes: int, begun_ns: int) -> None:
    records = RECORDS[:count]
    launch: Any = SimpleNamespace(
        ctas=ctas, num_warps=warps, cta_bytes=cta_bytes, kernel=SimpleNamespace(records=records)
    )
    for filled, header_words in ((timed_words, 10), (untimed_words, 4)):
        slots = 1 << ((cta_bytes - 4 * (header_words + warps)) // warps // 8).bit_length() - 1
        words = buffer_words([_cta(number, warps, records, begun_ns) for number in range(ctas)], slots)
        if header_words == 4:
            words = np.delete(words, slice(4, 10), axis=1)
        expected = np.zeros((ctas, cta_bytes // 4), dtype=np.uint32)
        used = min(expected.shape[1], words.shape[1])
        expected[:, :used] = words[:, :used]
        assert np.array_equal(filled(launch, begun_ns, 40), expected)


def _cta(number: int, warps: int, records: list[tuple[int, bool]], begun_ns: int) -> Cta:
    init_ns = begun_ns + 32 * number
    clocks = [int(init_ns * CYCLES_PER_NS) + 40 * place for place in range(len(records))]
    entries = [Entry(scope_id, is_end, clock) for (scope_id, is_end), clock in zip(records, clocks, strict=True)]
    pre_final_ns = int(clocks[-1] / CYCLES_PER_NS)
    return Cta([entries] * warps, number % SMS, init_ns, pre_final_ns, pre_final_ns + 100)
