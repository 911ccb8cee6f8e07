"""The clock that is assumed of a device where a capture tells none."""

from __future__ import annotations

USUAL_CLOCK_HZ = 1.5e9
