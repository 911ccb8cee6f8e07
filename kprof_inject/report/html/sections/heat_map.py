"""How the CTAs fill the SMs over time: a matrix with a row for each SM."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kprof_inject.report.html.sections.packing import packed
from kprof_inject.report.summary import LaunchSummary
from kprof_inject.timeline.statistics.ending import SmWork, end_of_work_ns
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
    row. From ``tail_ns`` on, the launch's tail, SMs run out of work; for ``tail_share`` of the launch they
    idle then, on average; None if that is unknown. A wave is of ``wave_ctas`` CTAs.
    """
    waves = summary.waves
    if waves is None:
        return None
    work = SmWork.of(timeline.ctas)
    shown = work.row_of < _MOST_ROWS
    ctas, row, rows = timeline.ctas[shown], work.row_of[shown], min(len(work.ids), _MOST_ROWS)
    begin_ns = ctas["init_ns"] - timeline.first_ns
    end_ns = end_of_work_ns(ctas) - timeline.first_ns
    first_ns, last_ns = int(begin_ns.min()), int(end_ns.max())
    column_ns = max(last_ns - first_ns, 1) / _COLUMNS
    busy = at_work(row, (begin_ns - first_ns) / column_ns, (end_ns - first_ns) / column_ns, rows, _COLUMNS)
    most = max(float(busy.max()), 1.0)
    return {
        "sms": work.ids[:rows].tolist(),
        "sms_left_out": len(work.ids) - rows,
        "columns": _COLUMNS,
        "begin_ns": first_ns,
        "end_ns": last_ns,
        "most": most,
        "cells": packed(np.rint(busy * (_FULL / most)), "u1"),
        "counts": work.ctas[:rows].tolist(),
        "done_ns": (work.done_ns[:rows] - timeline.first_ns).tolist(),
        "slots": waves.slots_per_sm,
        "wave_ctas": waves.sms * waves.slots_per_sm,
        "tail_ns": int(work.done_ns.max()) - waves.tail.duration_ns - timeline.first_ns,
        "tail_share": summary.ending and summary.ending.idle_share,
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
