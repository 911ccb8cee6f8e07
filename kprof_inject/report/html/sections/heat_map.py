"""How the CTAs fill the SMs over time: a matrix with a row for each SM."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.report.html.sections.packing import packed
from kprof_inject.report.summary import LaunchSummary
from kprof_inject.timeline.groups import largest
from kprof_inject.timeline.timeline import Timeline

_COLUMNS = 400
# No device has as many; a damaged header may name any.
_MOST_ROWS = 512
_FULL = 255


def sm_heat_map(timeline: Timeline, summary: LaunchSummary) -> dict[str, Any] | None:
    """None where no timer says when CTAs ran. All times are nanoseconds since ``Timeline.first_ns``.

    ``cells`` has a byte for each SM (ascending, those of ``sms``) and each of ``columns`` parts of the time from
    ``begin_ns`` to ``end_ns``: how many CTAs were at work on the average, of which 255 are ``most``. ``done_ns`` is
    when each SM had done the last of its work, ``counts`` how many CTAs it ran, ``sms_left_out`` how many SMs have no
    row. From ``tail_ns`` on, when the first of all SMs was done, they are no longer all at work. A wave is of
    ``wave_ctas`` CTAs.
    """
    if summary.waves is None:
        return None
    sms, row = np.unique(timeline.ctas["sm"], return_inverse=True)
    shown = row < _MOST_ROWS
    ctas, row, rows = timeline.ctas[shown], row[shown], min(len(sms), _MOST_ROWS)
    begin_ns = ctas["init_ns"] - timeline.first_ns
    # Timers that contradict each other make no CTA run backwards.
    end_ns = np.maximum(ctas["pre_final_ns"] - timeline.first_ns, begin_ns)
    first_ns, last_ns = int(begin_ns.min()), int(end_ns.max())
    column_ns = max(last_ns - first_ns, 1) / _COLUMNS
    busy = at_work(row, (begin_ns - first_ns) / column_ns, (end_ns - first_ns) / column_ns, rows, _COLUMNS)
    most = max(float(busy.max()), 1.0)
    done_ns = largest(row, end_ns, rows)
    return {
        "sms": sms[:rows].tolist(),
        "sms_left_out": len(sms) - rows,
        "columns": _COLUMNS,
        "begin_ns": first_ns,
        "end_ns": last_ns,
        "most": most,
        "cells": packed(np.rint(busy * (_FULL / most)), "u1"),
        "counts": np.bincount(row, minlength=rows).tolist(),
        "done_ns": done_ns.tolist(),
        "slots": summary.waves.slots_per_sm,
        "wave_ctas": summary.waves.sms * summary.waves.slots_per_sm,
        "tail_ns": int(done_ns.min()),
    }


def at_work(
    row: NDArray[np.int64], begin: NDArray[np.float64], end: NDArray[np.float64], rows: int, columns: int
) -> NDArray[np.float64]:
    """How many CTAs each row had in each column on the average, shape (rows, columns). ``begin`` and ``end`` count
    columns, 0 to ``columns``."""
    from_begins = _running(row, begin, rows, columns)
    busy: NDArray[np.float64] = np.maximum(from_begins - _running(row, end, rows, columns), 0)
    return busy


def _running(row: NDArray[np.int64], since: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.float64]:
    """The same of what never ends: of its first column, a part, and all of each later one."""
    # One column more, for what begins with the end.
    column = since.astype(np.int64)
    cell = row * (columns + 1) + column
    shape = rows, columns + 1
    begun = np.bincount(cell, minlength=rows * (columns + 1)).reshape(shape)
    missed = np.bincount(cell, since - column, rows * (columns + 1)).reshape(shape)
    running: NDArray[np.float64] = np.cumsum(begun, axis=1, dtype=np.float64) - missed
    return running[:, :columns]
