"""How Proton records: the settings that decide the form of the buffer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Mode:
    """``buffer`` is where a CTA keeps its records (``shared`` or ``global`` memory); ``buffer_bytes`` how many
    bytes it keeps for all its warps together, where 0 leaves the choice to Proton."""

    buffer: str = "shared"
    buffer_bytes: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"buffer": self.buffer, "buffer_bytes": self.buffer_bytes, "clock_bits": 64}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Mode:
        return cls(str(values["buffer"]), int(values["buffer_bytes"]))
