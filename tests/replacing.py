"""``replace`` for records of both kinds."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec


def replace(record: Any, /, **changes: Any) -> Any:
    """A copy of a Struct or a dataclass with other values of some fields."""
    make = msgspec.structs.replace if isinstance(record, msgspec.Struct) else dataclasses.replace
    return make(record, **changes)
