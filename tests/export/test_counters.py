"""How many CTAs are active, against counting them one by one."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from generated_scenes import process
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kprof_inject.export import drawing as module
from kprof_inject.export.drawing import active_ctas
from kprof_inject.timeline.axis import Axis, DeviceClock
from kprof_inject.timeline.columns import CTA_COLUMNS

ZERO_NS = 1_000_000
CLOCK = DeviceClock(Axis(0, 1, ZERO_NS, 0), None, 0, "")

Span = tuple[int, int, int]
"""SM, begin and end."""


def ctas_of(spans: Sequence[Span]) -> NDArray[np.void]:
    ctas = np.zeros(len(spans), dtype=CTA_COLUMNS)
    for row, (sm, begin_ns, end_ns) in zip(ctas, spans, strict=True):
        row["sm"], row["init_ns"], row["post_final_ns"] = sm, ZERO_NS + begin_ns, ZERO_NS + end_ns
    return ctas


def samples_of(spans: Sequence[Span]) -> dict[str, list[tuple[int, int]]]:
    """Time and value of each counter's samples, in their order; each counter comes once."""
    samples: dict[str, list[tuple[int, int]]] = {}
    launch: Any = SimpleNamespace(timeline=SimpleNamespace(all_ctas=ctas_of(spans)), clock=CLOCK)
    for part in active_ctas(launch, process(7, "active CTAs")):
        assert (part.pid, part.unit) == (7, "CTAs")
        assert not samples.keys() & part.names
        samples |= {name: [] for name in part.names}
        for at, at_ns, value in zip(part.counter.tolist(), part.at_ns.tolist(), part.values.tolist(), strict=True):
            samples[part.names[at]].append((at_ns, value))
    return samples


def counted(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """When the number of these that are active changes, and to what."""
    times = sorted({time for _, begin_ns, end_ns in spans for time in (begin_ns, end_ns)})
    values = [sum(begin_ns <= time < end_ns for _, begin_ns, end_ns in spans) for time in times]
    changes = zip(times, [0, *values], values, strict=False)
    return [(time, value) for time, before, value in changes if value != before]


spans_of_few_sms = st.lists(
    st.tuples(st.sampled_from([0, 3, 131]), st.integers(0, 30), st.integers(0, 12)).map(
        lambda span: (span[0], span[1], span[1] + span[2])
    ),
    max_size=12,
)


@given(spans_of_few_sms, st.sampled_from([1, 2, 1 << 16]))
def test_a_sample_stands_where_the_number_changes(spans: list[Span], chunk_ctas: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_CHUNK_CTAS", chunk_ctas)
        samples = samples_of(spans)
    sms = sorted({sm for sm, _, _ in spans})
    expected = {f"SM {sm}": counted([span for span in spans if span[0] == sm]) for sm in sms}
    assert samples == ({"all SMs": counted(spans), **expected} if spans else {})
    assert list(samples) == (["all SMs", *expected] if spans else [])


def test_a_cta_that_wrote_no_end_does_not_count() -> None:
    assert samples_of([(5, 100, -ZERO_NS), (5, 200, 300)])["SM 5"] == [(200, 1), (300, 0)]
