"""``replace`` for records of both kinds."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from kprof_inject.capture.model import Kernel

_NEEDED = ("num_warps", "profile_scratch_size")


def replace(record: Any, /, **changes: Any) -> Any:
    """A copy of a Struct or a dataclass with other values of some fields.

    A kernel's ``metadata`` need not have what every capture says of a kernel, and ``num_warps`` is one of its values.
    """
    if isinstance(record, Kernel) and changes.keys() & {"metadata", "num_warps"}:
        known = {name: record.metadata[name] for name in _NEEDED}
        warps = {"num_warps": changes.pop("num_warps")} if "num_warps" in changes else {}
        changes["metadata"] = {**known, **changes.pop("metadata", record.metadata), **warps}
    make = msgspec.structs.replace if isinstance(record, msgspec.Struct) else dataclasses.replace
    return make(record, **changes)
