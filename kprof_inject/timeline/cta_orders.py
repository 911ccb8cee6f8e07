"""Orders in which the CTAs of a launch could begin, and how much shorter it would be then."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kprof_inject.capture.edits import COLUMNS, COLUMNS_REVERSED, REVERSED
from kprof_inject.capture.schema import Grid
from kprof_inject.timeline.timeline import Timeline
from kprof_inject.timeline.waves import duration_in_order_ns, launch_duration_ns


def gains_of_orders(timeline: Timeline, slots_per_sm: int) -> dict[str, float]:
    """Return the part by which a launch would be shorter if its CTAs began in other orders, by the orders' names.

    Each CTA takes as long as it did. A gain is negative if the launch would be longer. Of grids without two dimensions,
    it is known for the reversed order alone.
    """
    ctas = timeline.all_ctas
    duration_ns = launch_duration_ns(timeline)
    return {
        name: 1 - duration_in_order_ns(ctas, order, slots_per_sm) / duration_ns
        for name, order in _orders(ctas["cta"].astype(np.int64), timeline.launch.grid).items()
    }


def _orders(ids: NDArray[np.int64], grid: Grid) -> dict[str, NDArray[np.intp]]:
    """Return the orders of CTAs, which are numbered along x first, then y, then z."""
    columns, rows, _ = grid
    orders = {REVERSED: np.argsort(-ids)}
    if columns > 1 and rows > 1:
        x, y, z = ids % columns, ids // columns % rows, ids // (columns * rows)
        orders |= {COLUMNS: np.lexsort((y, x, z)), COLUMNS_REVERSED: np.lexsort((-y, -x, z))}
    return orders
