"""Columns of numbers as the page's JSON holds them: bytes in base64, of which ``packed.js`` makes typed arrays."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import numpy as np
from numpy.typing import NDArray

# What the page calls each type: by it, it chooses the typed array.
_TYPES: dict[str, np.dtype[np.integer[Any]]] = {"u1": np.dtype("u1"), "i4": np.dtype("<i4")}


def packed(values: NDArray[Any], kind: str) -> dict[str, str]:
    """The values as ``kind``: ``u1`` or ``i4``, little-endian, row by row. They have to fit."""
    return {"type": kind, "base64": b64encode(values.astype(_TYPES[kind]).tobytes()).decode()}
