"""Times the inside of one Triton kernel launch by inserting Proton records into its TTGIR."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kprof_inject.version import __version__ as __version__

if TYPE_CHECKING:
    from kprof_inject.api import profile as profile


def __getattr__(name: str) -> Any:
    # The command line and the program's start-up hook must not load what the API needs.
    if name == "profile":
        from kprof_inject.api import profile

        return profile
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
