"""What one record costs: the time that a warp takes longer for each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordCost:
    """``cycles`` of the SM's counter from one record to the next where nothing stands between them, on one device and in
    one ``Mode``. ``source`` says where the figure comes from: "measured" on that device when the capture was made, or
    "shipped", measured by us on a device of the same name."""

    cycles: float
    source: str
