"""Times the inside of one Triton kernel launch by inserting Proton records into its TTGIR."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kprof_inject.version import __version__ as __version__

if TYPE_CHECKING:
    from kprof_inject.api import profile as profile
    from kprof_inject.capture.mode import Mode as Mode
    from kprof_inject.errors import KprofError as KprofError
    from kprof_inject.export.arrow import to_arrow as to_arrow
    from kprof_inject.export.arrow import to_pandas as to_pandas
    from kprof_inject.results import load as load
    from kprof_inject.results import read_buffer as read_buffer

_PLACES = {
    "profile": "kprof_inject.api",
    "load": "kprof_inject.results",
    "read_buffer": "kprof_inject.results",
    "KprofError": "kprof_inject.errors",
    "Mode": "kprof_inject.capture.mode",
    "to_arrow": "kprof_inject.export.arrow",
    "to_pandas": "kprof_inject.export.arrow",
}


def __getattr__(name: str) -> Any:
    # The command line and the program's start-up hook must not load what the API needs.
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """List only the names of the API."""
    return sorted([*_PLACES, "__version__"])
